package identity

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"exnet/fabric"
)

// Trust says whose keys are trusted. The zero Trust trusts nobody.
type Trust struct {
	authorities []*x509.Certificate
	names       []Name // names of the authorities
	pinned      map[string]fabric.NodeID
	denied      map[string]bool
}

// LoadTrust reads a trust file. The error wraps ErrFile if ParseTrust rejects the text, or
// if others may write the file.
func LoadTrust(path string) (Trust, error) {
	text, err := readOwn(path, 0o022, "write")
	if err != nil {
		return Trust{}, err
	}
	t, err := ParseTrust(text)
	if err != nil {
		return Trust{}, fmt.Errorf("identity: %s: %w", path, err)
	}
	return t, nil
}

// ParseTrust reads the text of a trust file: certificates of authorities in PEM, and
// lines
//
//	node 2 SHA256:...   the key with this fingerprint is node 2's
//	deny SHA256:...     the key with this fingerprint is nobody's, whoever signed it
//	# a comment
func ParseTrust(text []byte) (Trust, error) {
	t := Trust{pinned: make(map[string]fabric.NodeID), denied: make(map[string]bool)}
	for number := 1; len(text) > 0; number++ {
		line, rest, _ := strings.Cut(string(text), "\n")
		if !strings.HasPrefix(line, "-----BEGIN ") {
			if err := t.addLine(line); err != nil {
				return Trust{}, fmt.Errorf("%w: line %d: %w", ErrFile, number, err)
			}
			text = []byte(rest)
			continue
		}
		block, after := pem.Decode(text)
		if block == nil || block.Type != certBlock {
			return Trust{}, fmt.Errorf("%w: line %d: not a whole certificate", ErrFile, number)
		}
		if err := t.addAuthority(block.Bytes); err != nil {
			return Trust{}, fmt.Errorf("line %d: %w", number, err)
		}
		number += strings.Count(string(text[:len(text)-len(after)]), "\n") - 1
		text = after
	}
	if len(t.authorities)+len(t.pinned) == 0 {
		return Trust{}, fmt.Errorf("%w: it trusts nobody: add the certificate of an authority, or lines such as node 2 %s... (exn-tun key show)", ErrFile, fingerprintPrefix)
	}
	return t, nil
}

// addLine adds one line.
func (t *Trust) addLine(line string) error {
	line, _, _ = strings.Cut(line, "#")
	f := strings.Fields(line)
	switch {
	case len(f) == 0:
		return nil
	case len(f) == 3 && f[0] == "node" && checkFingerprint(f[2]):
		n, err := strconv.ParseUint(f[1], 10, 16)
		if err != nil {
			return fmt.Errorf("%q is not a node ID", f[1])
		}
		if old, ok := t.pinned[f[2]]; ok && old != fabric.NodeID(n) {
			return fmt.Errorf("the key already belongs to node %d", old)
		}
		t.pinned[f[2]] = fabric.NodeID(n)
		return nil
	case len(f) == 2 && f[0] == "deny" && checkFingerprint(f[1]):
		t.denied[f[1]] = true
		return nil
	}
	return fmt.Errorf("write node ID %s... or deny %[1]s..., or a certificate", fingerprintPrefix)
}

// addAuthority adds the certificate of an authority.
func (t *Trust) addAuthority(der []byte) error {
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	name, err := nameOf(c)
	if err != nil {
		return err
	}
	if !name.Authority || !c.IsCA {
		return fmt.Errorf("%w: the certificate belongs to %v, not to an authority: pin its key with node %d %s", ErrFile, name, name.Node, Fingerprint(c))
	}
	t.authorities, t.names = append(t.authorities, c), append(t.names, name)
	return nil
}

// Peer is a node whose key is trusted.
type Peer struct {
	Name
	Fingerprint string
	Cert        *x509.Certificate
}

// Verify returns the owner of a certificate if the certificate is trusted at now.
// Otherwise the error wraps ErrStranger, ErrFabric, ErrTime, ErrNode or ErrFile.
func (t Trust) Verify(c *x509.Certificate, fabricName string, now time.Time) (Peer, error) {
	p := Peer{Cert: c, Fingerprint: Fingerprint(c)}
	var err error
	if p.Name, err = nameOf(c); err != nil {
		return p, err
	}
	if err := checkKey(c); err != nil {
		return p, err
	}
	if err := t.vouchFor(p, now); err != nil {
		if p.Fabric != fabricName && errors.Is(err, ErrStranger) {
			err = fmt.Errorf("%w: this is fabric %s: %w", ErrFabric, fabricName, err)
		}
		return p, err
	}
	if p.Authority {
		return p, fmt.Errorf("%w: the peer shows the certificate of an authority, not of a node", ErrStranger)
	}
	if p.Fabric != fabricName {
		return p, fmt.Errorf("%w: the peer is %v, this is fabric %s", ErrFabric, p.Name, fabricName)
	}
	return p, nil
}

// vouchFor returns nil if a certificate is pinned or signed by an authority.
func (t Trust) vouchFor(p Peer, now time.Time) error {
	if t.denied[p.Fingerprint] {
		return fmt.Errorf("%w: %s, which claims to be %v, is denied", ErrStranger, p.Fingerprint, p.Name)
	}
	if n, ok := t.pinned[p.Fingerprint]; ok {
		if n != p.Node {
			return fmt.Errorf("%w: the key %s is pinned for node %d, but its certificate names %v", ErrNode, p.Fingerprint, n, p.Name)
		}
		return checkTimes(p.Cert, p.Name, now)
	}
	for i, a := range t.authorities {
		if p.Cert.CheckSignatureFrom(a) != nil {
			continue
		}
		if t.names[i].Fabric != p.Fabric {
			return fmt.Errorf("%w: %v has signed for %v", ErrFabric, t.names[i], p.Name)
		}
		if err := checkTimes(a, t.names[i], now); err != nil {
			return err
		}
		if err := checkTimes(p.Cert, p.Name, now); err != nil {
			return err
		}
		return t.checkChain(p.Cert, a, now)
	}
	return fmt.Errorf("%w: %s claims to be %v, but no authority of the trust file has signed its certificate, and the key is not pinned", ErrStranger, p.Fingerprint, p.Name)
}

// checkChain makes the standard library check the rest of a certificate.
func (t Trust) checkChain(c, authority *x509.Certificate, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	_, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStranger, err)
	}
	return nil
}

// Summary describes in a few words which keys are trusted.
func (t Trust) Summary() string {
	names := make(map[string]bool)
	for _, n := range t.names {
		names[n.String()] = true
	}
	parts := slices.Sorted(maps.Keys(names))
	if n := len(t.pinned); n > 0 {
		parts = append(parts, fmt.Sprintf("%d pinned keys", n))
	}
	return strings.Join(parts, ", ")
}

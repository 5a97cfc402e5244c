package identity

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"exnet/fabric"
)

// Errors of this package. The text of the error that wraps them says which file, node
// or key it is about, and what to do.
var (
	// ErrFile says that a file cannot be used: it is not of the expected form, or
	// others may read or write it.
	ErrFile = errors.New("unusable file")

	// ErrStranger says that nothing vouches for a key: no authority of the trust file
	// has signed its certificate, and the file does not have its fingerprint.
	ErrStranger = errors.New("key is not trusted")

	// ErrFabric says that a certificate is for another fabric.
	ErrFabric = errors.New("another fabric")

	// ErrTime says that a certificate has expired, or is not valid yet.
	ErrTime = errors.New("certificate is not valid now")

	// ErrNode says that a certificate is for another node.
	ErrNode = errors.New("another node")
)

// Name identifies the owner of a certificate. The zero Name identifies nobody.
type Name struct {
	Fabric string
	// Node is the node's ID; ignored if Authority is set.
	Node      fabric.NodeID
	Authority bool
}

// scheme of the URIs: exnet://lab/node/7, and exnet://lab of an authority.
const scheme = "exnet"

// nodePath begins the path of a node's URI.
const nodePath = "/node/"

// URI returns the name in the form of certificates.
func (n Name) URI() *url.URL {
	u := &url.URL{Scheme: scheme, Host: n.Fabric}
	if !n.Authority {
		u.Path = nodePath + strconv.Itoa(int(n.Node))
	}
	return u
}

// String returns the name for messages.
func (n Name) String() string {
	if n.Authority {
		return "the authority of fabric " + n.Fabric
	}
	return fmt.Sprintf("node %d of fabric %s", n.Node, n.Fabric)
}

// nameOf returns the name in a certificate, or ErrFile if it has none or more than one.
func nameOf(c *x509.Certificate) (Name, error) {
	if len(c.URIs) != 1 {
		return Name{}, fmt.Errorf("%w: certificate with %d names was not made by exn-tun key", ErrFile, len(c.URIs))
	}
	return parseName(c.URIs[0])
}

// parseName is the inverse of URI. It accepts nothing else.
func parseName(u *url.URL) (Name, error) {
	n := Name{Fabric: u.Host, Authority: u.Path == ""}
	var err error
	if !n.Authority {
		var id uint64
		text, ok := strings.CutPrefix(u.Path, nodePath)
		id, err = strconv.ParseUint(text, 10, 16)
		n.Node = fabric.NodeID(id)
		if !ok && err == nil {
			err = errors.New("no node")
		}
	}
	if err != nil || n.Fabric == "" || *n.URI() != *u {
		return Name{}, fmt.Errorf("%w: %q is not the name of a node", ErrFile, u)
	}
	return n, nil
}

// FingerprintLen is how many characters a fingerprint has.
const FingerprintLen = len(fingerprintPrefix) + 43

const fingerprintPrefix = "SHA256:"

// Fingerprint returns the fingerprint of a certificate's public key.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return fingerprintPrefix + base64.RawStdEncoding.EncodeToString(sum[:])
}

// checkFingerprint reports whether s has the form of a fingerprint.
func checkFingerprint(s string) bool {
	text, ok := strings.CutPrefix(s, fingerprintPrefix)
	sum, err := base64.RawStdEncoding.Strict().DecodeString(text)
	return ok && err == nil && len(sum) == sha256.Size
}

// checkTimes returns ErrTime if a certificate is not valid at now. Clocks that differ are
// the usual reason for a certificate that is not valid yet.
func checkTimes(c *x509.Certificate, who Name, now time.Time) error {
	text := func(t time.Time) string { return t.UTC().Format(time.DateTime) }
	switch {
	case now.Before(c.NotBefore):
		return fmt.Errorf("%w: that of %v begins at %s UTC, but here it is %s: set the clocks of both hosts (NTP)", ErrTime, who, text(c.NotBefore), text(now))
	case now.After(c.NotAfter):
		return fmt.Errorf("%w: that of %v ended at %s UTC, here it is %s: renew it with exn-tun key sign, or set the clock", ErrTime, who, text(c.NotAfter), text(now))
	}
	return nil
}

// checkKey refuses keys of other kinds.
func checkKey(c *x509.Certificate) error {
	if _, ok := c.PublicKey.(ed25519.PublicKey); !ok {
		return fmt.Errorf("%w: the key is %v, not ed25519: make one with exn-tun key", ErrFile, c.PublicKeyAlgorithm)
	}
	return nil
}

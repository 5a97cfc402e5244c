package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	_ "exnet/internal/linux"
)

const (
	keySuffix  = ".key"
	certSuffix = ".crt"
	keyBlock   = "PRIVATE KEY"
	certBlock  = "CERTIFICATE"
	// maxFile is the largest file that is read, in bytes.
	maxFile = 1 << 20
)

// backdate is how long before its creation a certificate becomes valid. Clocks may
// differ by less.
const backdate = 5 * time.Minute

// Pair is a key with its certificate.
type Pair struct {
	Name Name
	Cert *x509.Certificate
	key  ed25519.PrivateKey
}

// Fingerprint returns the fingerprint of the key.
func (p *Pair) Fingerprint() string { return Fingerprint(p.Cert) }

// tlsPair returns the pair for handshakes.
func (p *Pair) tlsPair() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.Cert.Raw}, PrivateKey: p.key, Leaf: p.Cert}
}

// Paths returns the files of a pair, which base names: "lab-ca", or either of the files.
func Paths(base string) (key, cert string) {
	base = strings.TrimSuffix(strings.TrimSuffix(base, keySuffix), certSuffix)
	return base + keySuffix, base + certSuffix
}

// Create makes a key for name and its certificate, which is valid for life. The
// authority by signs the certificate, or the key itself if by is nil; an authority's
// own certificate is always signed by its own key.
func Create(name Name, by *Pair, life time.Duration) (*Pair, error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	p := &Pair{Name: name, key: key}
	if by == nil {
		by = p
	}
	if p.Cert, err = makeCertificate(name, pub, by, life, time.Now()); err != nil {
		return nil, err
	}
	return p, nil
}

// Sign makes a certificate, signed by the authority by, for the key and name of
// another certificate. The validity of request is ignored.
func Sign(by *Pair, request *x509.Certificate, life time.Duration) (*x509.Certificate, error) {
	name, err := nameOf(request)
	if err == nil {
		err = checkKey(request)
	}
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	if name.Authority {
		return nil, fmt.Errorf("identity: %w: the certificate belongs to %v; only a node's certificate can be signed", ErrFile, name)
	}
	return makeCertificate(name, request.PublicKey.(ed25519.PublicKey), by, life, time.Now())
}

// makeCertificate makes a certificate for pub, signed by a pair.
func makeCertificate(name Name, pub ed25519.PublicKey, by *Pair, life time.Duration, now time.Time) (*x509.Certificate, error) {
	if by.Cert != nil && (!by.Name.Authority || by.Name.Fabric != name.Fabric) {
		return nil, fmt.Errorf("identity: %w: %v cannot sign for %v", ErrFabric, by.Name, name)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	t := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name.String()},
		NotBefore:             now.Add(-backdate).UTC().Truncate(time.Second),
		NotAfter:              now.Add(life).UTC().Truncate(time.Second),
		URIs:                  []*url.URL{name.URI()},
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
	}
	parent := by.Cert
	if name.Authority {
		t.IsCA, t.MaxPathLenZero, t.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
		if parent != nil && parent.NotAfter.Before(t.NotAfter) {
			t.NotAfter = parent.NotAfter
		}
	}
	if parent == nil {
		parent = t
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, pub, by.key)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	return x509.ParseCertificate(der)
}

// Save writes both files of a new pair, which must not be there yet.
func (p *Pair) Save(base string) error {
	keyPath, certPath := Paths(base)
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	if _, err := os.Lstat(certPath); err == nil {
		return fmt.Errorf("identity: %s already exists: choose another name, or remove it", certPath)
	}
	if err := writeNew(keyPath, 0o600, pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der})); err != nil {
		return err
	}
	return writeNew(certPath, 0o644, PEM(p.Cert))
}

// PEM returns a certificate as its file has it.
func PEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: c.Raw})
}

// writeNew makes a new file.
func writeNew(path string, mode os.FileMode, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("identity: %s already exists: choose another name, or remove it", path)
	}
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("identity: %w", errors.Join(err, os.Remove(path)))
	}
	return nil
}

// Replace replaces the certificate in a file atomically: a reader finds the old one or
// the new one.
func Replace(path string, c *x509.Certificate) error {
	if err := renameio.WriteFile(path, PEM(c), 0o644, renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	return nil
}

// Load reads a pair, which base names as in Paths. The error wraps ErrFile if the files
// were not made by exn-tun key, do not belong together, or others may read the key.
func Load(base string) (*Pair, error) {
	keyPath, certPath := Paths(base)
	text, err := readOwn(keyPath, 0o077, "read")
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != keyBlock || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, fmt.Errorf("identity: %w: %s has no private key: make one with exn-tun key", ErrFile, keyPath)
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := any.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, fmt.Errorf("identity: %w: the key in %s is not ed25519: make one with exn-tun key", ErrFile, keyPath)
	}
	cert, name, err := LoadCert(certPath)
	if err != nil {
		return nil, err
	}
	if !key.Public().(ed25519.PublicKey).Equal(cert.PublicKey) {
		return nil, fmt.Errorf("identity: %w: %s is not the certificate of the key in %s", ErrFile, certPath, keyPath)
	}
	return &Pair{Name: name, Cert: cert, key: key}, nil
}

// LoadCert reads one certificate, and the name in it.
func LoadCert(path string) (*x509.Certificate, Name, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, Name{}, err
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != certBlock || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, Name{}, fmt.Errorf("identity: %w: %s is not one certificate", ErrFile, path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	var name Name
	if err == nil {
		name, err = nameOf(cert)
	}
	if err == nil {
		err = checkKey(cert)
	}
	if err != nil {
		return nil, Name{}, fmt.Errorf("identity: %s: %w", path, err)
	}
	return cert, name, nil
}

// readFile reads a file of bounded size.
func readFile(path string) ([]byte, error) { return readOwn(path, 0, "") }

// readOwn reads a file that must have none of the mode bits others. do says in the error
// what these bits let others do.
func readOwn(path string, others uint32, do string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("identity: %w", &os.PathError{Op: "stat", Path: path, Err: err})
	}
	mode := st.Mode & 0o777
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, fmt.Errorf("identity: %w: %s is not a regular file", ErrFile, path)
	case st.Size > maxFile:
		return nil, fmt.Errorf("identity: %w: %s has %d bytes, more than %d", ErrFile, path, st.Size, maxFile)
	case mode&others != 0:
		return nil, fmt.Errorf("identity: %w: others may %s %s (mode %04o): chmod %03o %[3]s, and make a new one if somebody did", ErrFile, do, path, mode, mode&^others)
	case others != 0 && st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return nil, fmt.Errorf("identity: %w: %s belongs to user %d: chown it to root or to the node's user", ErrFile, path, st.Uid)
	}
	text := make([]byte, st.Size)
	n, err := f.Read(text)
	if err != nil && st.Size > 0 {
		return nil, fmt.Errorf("identity: %w", err)
	}
	return text[:max(n, 0)], nil
}

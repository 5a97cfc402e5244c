package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// Config says which files a Store has. The zero value of a field means its default.
type Config struct {
	// Key names the node's pair, as Paths takes it. Required.
	Key string
	// Trust is the trust file. Required.
	Trust string
	// Fabric is the name of the fabric. Required.
	Fabric string
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Log gets a message when changed files cannot be read. Default: none.
	Log *slog.Logger
}

// soon is how long before a certificate expires that the node warns of it.
const soon = 14 * 24 * time.Hour

// Store holds a node's own pair and the keys that it trusts, as its files say.
//
// Concurrency: all methods may be called from many goroutines.
type Store struct {
	cfg Config

	mu         sync.Mutex
	pair       *Pair     // +checklocks:mu
	trust      Trust     // +checklocks:mu
	generation uint64    // +checklocks:mu
	seen       [3]stamp  // +checklocks:mu
	told       string    // +checklocks:mu
	warned     time.Time // +checklocks:mu
}

// stamp identifies a version of a file.
type stamp struct {
	size  int64
	mtime time.Time
	mode  os.FileMode
}

// Open reads the files. The error wraps ErrFile, ErrTime or ErrFabric, or the error of
// opening a file; the node cannot start.
func Open(cfg Config) (*Store, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{cfg: cfg}
	seen := s.fileStamps()
	pair, trust, err := s.readFiles()
	if err != nil {
		return nil, err
	}
	if pair.Name.Authority {
		return nil, fmt.Errorf("identity: %w: %s is the key of %v, which must not be on nodes: make one with exn-tun key node", ErrFile, cfg.Key, pair.Name)
	}
	if pair.Name.Fabric != cfg.Fabric {
		return nil, fmt.Errorf("identity: %w: the certificate of %s is for %v, not for fabric %s", ErrFabric, cfg.Key, pair.Name, cfg.Fabric)
	}
	if err := checkTimes(pair.Cert, pair.Name, cfg.Now()); err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pair, s.trust, s.seen = pair, trust, seen
	return s, nil
}

// readFiles reads all files.
func (s *Store) readFiles() (*Pair, Trust, error) {
	pair, err := Load(s.cfg.Key)
	if err != nil {
		return nil, Trust{}, err
	}
	trust, err := LoadTrust(s.cfg.Trust)
	return pair, trust, err
}

// fileStamps returns the present versions of the files.
func (s *Store) fileStamps() (all [3]stamp) {
	key, cert := Paths(s.cfg.Key)
	for i, path := range []string{key, cert, s.cfg.Trust} {
		if st, err := os.Stat(path); err == nil {
			all[i] = stamp{st.Size(), st.ModTime(), st.Mode()}
		}
	}
	return all
}

// Refresh reads the files again if they have changed. It returns true if the trusted keys, or
// the node's own pair, have changed. If the files cannot be used, it changes nothing and logs
// that once. It also warns once a day of a certificate that expires soon.
func (s *Store) Refresh() bool {
	now := s.fileStamps()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warnLocked()
	if now == s.seen {
		return false
	}
	pair, trust, err := s.readFiles()
	if err == nil && pair.Name != s.pair.Name {
		err = fmt.Errorf("identity: %w: the certificate is now that of %v, this is %v: restart the node to change that", ErrNode, pair.Name, s.pair.Name)
	}
	if err != nil {
		if err.Error() != s.told { // the file may be incomplete, and complete at the next look
			s.told = err.Error()
			s.cfg.Log.Warn("cannot read the changed key and trust files; the old ones stay in use", "reason", err)
		}
		return false
	}
	s.pair, s.trust, s.seen, s.told = pair, trust, now, ""
	s.generation++
	s.cfg.Log.Info("read the changed key and trust files", "fingerprint", pair.Fingerprint(), "until", pair.Cert.NotAfter, "trust", trust.Summary())
	return true
}

// +checklocks:s.mu
func (s *Store) warnLocked() {
	now := s.cfg.Now()
	if s.pair.Cert.NotAfter.Sub(now) > min(soon, s.pair.Cert.NotAfter.Sub(s.pair.Cert.NotBefore)/4) || now.Sub(s.warned) < 24*time.Hour {
		return
	}
	s.warned = now
	s.cfg.Log.Warn("the node's certificate expires soon: renew it with exn-tun key sign", "until", s.pair.Cert.NotAfter)
}

// Pair returns this node's pair.
func (s *Store) Pair() *Pair {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pair
}

// Trust returns the keys that the node trusts.
func (s *Store) Trust() Trust {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trust
}

// Generation changes whenever Refresh has found something new.
func (s *Store) Generation() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation
}

// Now is the time by the Store's clock.
func (s *Store) Now() time.Time { return s.cfg.Now() }

// Check returns why a certificate that was trusted is trusted no longer, or nil.
func (s *Store) Check(c *x509.Certificate) error {
	_, err := s.Trust().Verify(c, s.cfg.Fabric, s.cfg.Now())
	return err
}

// Renewed returns the certificate in der, which renews old: it must be for the same key and
// the same node. The error wraps ErrFile or ErrNode, or is one of Check's.
func (s *Store) Renewed(old *x509.Certificate, der []byte) (*x509.Certificate, error) {
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("identity: %w: %w", ErrFile, err)
	}
	was, err := nameOf(old)
	if err != nil {
		return nil, err
	}
	p, err := s.Trust().Verify(c, s.cfg.Fabric, s.cfg.Now())
	if err != nil {
		return nil, err
	}
	if p.Name != was || p.Fingerprint != Fingerprint(old) {
		return nil, fmt.Errorf("identity: %w: %v with the key %s shows a certificate of %v with the key %s", ErrNode, was, Fingerprint(old), p.Name, p.Fingerprint)
	}
	return c, nil
}

// protocol is the ALPN protocol that both sides must name; certificates are for nothing else.
const protocol = "exnet"

// TLS returns the configuration for both sides of a handshake: mutual, TLS 1.3, without
// session tickets, so that each handshake checks the certificates.
func (s *Store) TLS() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{protocol},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // host names mean nothing; VerifyConnection checks the certificate
		SessionTicketsDisabled: true,
		// Links write large pieces, for which small records cost more than they gain.
		DynamicRecordSizingDisabled: true,
		GetCertificate:              func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.Pair().tlsPair(), nil },
		GetClientCertificate:        func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.Pair().tlsPair(), nil },
		VerifyConnection: func(c tls.ConnectionState) error {
			_, err := s.PeerOf(c)
			return err
		},
		Time: s.cfg.Now,
	}
}

// PeerOf returns the peer at the other end of a connection.
func (s *Store) PeerOf(c tls.ConnectionState) (Peer, error) {
	if len(c.PeerCertificates) != 1 || c.NegotiatedProtocol != protocol {
		return Peer{}, fmt.Errorf("%w: %d certificates for the protocol %q", ErrStranger, len(c.PeerCertificates), c.NegotiatedProtocol)
	}
	return s.Trust().Verify(c.PeerCertificates[0], s.cfg.Fabric, s.cfg.Now())
}

// ErrRefused says that the other side does not trust this node's key.
var ErrRefused = errors.New("the peer does not trust this node's key")

// Reason adds to the error of a handshake, or of the first read after it, what to do.
func Reason(err error) error {
	// The alert's own type is not exported; only package tls gives this name to what the
	// other side says.
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return err
	}
	return fmt.Errorf("%w (%w): see its log, and its trust file", ErrRefused, err)
}

package fabrictest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/internal/sealed"
	"exnet/fabric/link"
	"exnet/fabric/link/mem"
	"exnet/fabric/link/stream"
	"exnet/fabric/nic"
)

// StreamConfig is how stream links of a test are made.
type StreamConfig struct {
	Conns  int                                 // of each link
	TLS    bool                                // over TLS
	Driven bool                                // with a Driver for each NIC
	Pipe   func(tb testing.TB) (a, b net.Conn) // makes a connection; default: TCP
	Link   stream.Config                       // Peer, Conns and Driver are set

	PeerEngine stream.Engine // belongs to Link.Engine
}

// StreamLinks returns the kinds of stream links.
func StreamLinks() []Link {
	kind := func(name string, cfg StreamConfig) Link {
		return Link{Name: name, Lazy: true, New: func(tb testing.TB, n int) []*nic.NIC { return NewStream(tb, n, cfg) }}
	}
	return []Link{
		kind("stream", StreamConfig{Conns: 1}), kind("stream-4", StreamConfig{Conns: 4}),
		kind("stream-driven", StreamConfig{Conns: 1, Driven: true}), kind("stream-driven-4", StreamConfig{Conns: 4, Driven: true}),
		kind("stream-tls", StreamConfig{Conns: 1, TLS: true}), kind("stream-tls-4", StreamConfig{Conns: 4, TLS: true}),
	}
}

// longWait is for links of tests that have nothing to do with silence: the machine may be
// busy.
const longWait = 30 * time.Second

// NewStream is New over stream links.
func NewStream(tb testing.TB, n int, cfg StreamConfig) []*nic.NIC {
	tb.Helper()
	drivers := make([]link.Driver, n)
	nics := make([]*nic.NIC, n)
	for i := range nics {
		nics[i] = NewNIC(tb, fabric.NodeID(i))
		if err := mem.NewFabric().Attach(nics[i]); err != nil { // the way to itself
			tb.Fatal(err)
		}
		if cfg.Driven {
			drivers[i] = NewDriver(tb)
		}
		for j := range i {
			c := cfg
			c.Link.Driver = drivers[i]
			JoinStream(tb, nics[i], nics[j], c, drivers[j])
		}
	}
	return nics
}

// JoinStream joins two NICs by a stream link that is closed when the test ends, and
// returns its ends. The driver of x is in cfg.Link.
func JoinStream(tb testing.TB, x, y *nic.NIC, cfg StreamConfig, driver link.Driver) (lx, ly *stream.Link) {
	tb.Helper()
	cx := cfg.Link
	cx.Peer = y.ID()
	if cx.HelloTimeout == 0 {
		cx.HelloTimeout = longWait
	}
	if cx.DownAfter == 0 {
		cx.DownAfter = longWait
	}
	cy := cx
	cy.Peer, cy.Driver, cy.Engine = x.ID(), driver, cfg.PeerEngine
	cx.Conns, cy.Conns = nil, nil
	for range cfg.Conns {
		a, b := connectPair(tb, cfg)
		cx.Conns = append(cx.Conns, a)
		cy.Conns = append([]net.Conn{b}, cy.Conns...) // in another order
	}
	var errx, erry error
	var both sync.WaitGroup
	both.Go(func() { lx, errx = stream.New(x, cx) })
	both.Go(func() { ly, erry = stream.New(y, cy) })
	both.Wait()
	for _, l := range []*stream.Link{lx, ly} {
		if l != nil {
			tb.Cleanup(func() {
				_ = l.Close() // a test may have closed it
				<-l.Done()
			})
		}
	}
	if errx != nil || erry != nil {
		tb.Fatal(errx, erry)
	}
	return lx, ly
}

func connectPair(tb testing.TB, cfg StreamConfig) (a, b net.Conn) {
	tb.Helper()
	pipe := TCP
	if cfg.Pipe != nil {
		pipe = cfg.Pipe
	}
	a, b = pipe(tb)
	if !cfg.TLS {
		return a, b
	}
	client, server := tls.Client(sealed.Under(a), TLSConfig(tb)), tls.Server(sealed.Under(b), TLSConfig(tb))
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		tb.Fatal(err)
	}
	if err := <-done; err != nil {
		tb.Fatal(err)
	}
	return client, server
}

// TCP returns the ends of a TCP connection over the loopback interface.
func TCP(tb testing.TB) (a, b net.Conn) {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		tb.Fatal(err)
	}
	return a, b
}

var certificate = sync.OnceValues(func() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
})

// TLSConfig is the configuration of either end, which believes anybody.
func TLSConfig(tb testing.TB) *tls.Config {
	tb.Helper()
	cert, err := certificate()
	if err != nil {
		tb.Fatal(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13,
		DynamicRecordSizingDisabled: true,
	}
}

package broker

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkClaim is one round trip: a claim that finds nothing.
func BenchmarkClaim(b *testing.B) {
	s, _ := startServer(b, Config{})
	c := dialClient(b, ClientConfig{Path: s.Path()})
	ln := listen(b, "tcp4", "127.0.0.1:0")
	conn := connect(b, ln, ln.Addr().String())
	raw := rawOf(b, conn.server)
	done := make(chan error, 1)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Claim(Socket{Conn: raw}, func(_ Granted, err error) { done <- err }); err != nil {
			b.Fatal(err)
		}
		if err := <-done; err != ErrNone {
			b.Fatal(err)
		}
	}
}

// BenchmarkSetUp is what a connection costs all three: an offer, the look at the
// page until it is there, the claim and the hand-over.
func BenchmarkSetUp(b *testing.B) {
	s, _ := startServer(b, Config{})
	client, server := dialClient(b, ClientConfig{Path: s.Path()}), dialClient(b, ClientConfig{Path: s.Path()})
	ln := listen(b, "tcp4", "127.0.0.1:0")
	server.Listen(Socket{Conn: rawOf(b, ln)}, nil)
	conn := connect(b, ln, ln.Addr().String())
	raw0, raw1 := rawOf(b, conn.client), rawOf(b, conn.server)
	bundle := newBundle(b, conn.key)
	defer bundle.handedOver()
	defer unix.Close(bundle.bell0)
	eventually(b, "the listener is shown", func() bool { return client.Listener(conn.key.Server.Port()) })
	bucket := conn.key.Bucket()
	done := make(chan result, 1)
	b.ReportAllocs()
	for b.Loop() {
		if err := client.Offer(Socket{Conn: raw0}, bundle.nonce, bundle.seg, bundle.bell, nil); err != nil {
			b.Fatal(err)
		}
		for {
			if _, may := server.MayHaveOffer(bucket, 0); may {
				break
			}
			time.Sleep(time.Microsecond)
		}
		if err := server.Claim(Socket{Conn: raw1}, func(g Granted, err error) { done <- result{g, err} }); err != nil {
			b.Fatal(err)
		}
		r := <-done
		if r.err != nil {
			b.Fatal(r.err)
		}
		unix.Close(r.Segment)
		unix.Close(r.Bell)
	}
}

// BenchmarkOffer is what offers cost the broker, which nobody claims.
func BenchmarkOffer(b *testing.B) {
	s, _ := startServer(b, Config{})
	client := dialClient(b, ClientConfig{Path: s.Path()})
	ln := listen(b, "tcp4", "127.0.0.1:0")
	client.Listen(Socket{Conn: rawOf(b, ln)}, nil)
	conn := connect(b, ln, ln.Addr().String())
	raw := rawOf(b, conn.client)
	bundle := newBundle(b, conn.key)
	defer bundle.handedOver()
	defer unix.Close(bundle.bell0)
	eventually(b, "the listener is shown", func() bool { return client.Listener(conn.key.Server.Port()) })
	b.ReportAllocs()
	for b.Loop() {
		for client.Offer(Socket{Conn: raw}, bundle.nonce, bundle.seg, bundle.bell, nil) == ErrBusy {
			time.Sleep(10 * time.Microsecond)
		}
	}
}

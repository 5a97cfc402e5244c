package broker

import (
	"errors"
	"testing"
	"time"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"

	"golang.org/x/sys/unix"
)

// BenchmarkClaim is one round trip: a claim that finds nothing.
func BenchmarkClaim(b *testing.B) {
	s, _ := startServer(b, Config{})
	c := dialClient(b, client.Config{Path: s.Path()})
	ln := listen(b, "tcp4", "127.0.0.1:0")
	conn := connect(b, ln, ln.Addr().String())
	raw := rawOf(b, conn.server)
	done := make(chan error, 1)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Claim(client.Socket{Conn: raw}, func(_ client.Granted, err error) { done <- err }); err != nil {
			b.Fatal(err)
		}
		if err := <-done; err != client.ErrNone {
			b.Fatal(err)
		}
	}
}

// BenchmarkSetUp is what a connection costs all three: an offer, the look at the
// page until it is there, the claim and the hand-over.
func BenchmarkSetUp(b *testing.B) {
	s, _ := startServer(b, Config{})
	dialer, server := dialClient(b, client.Config{Path: s.Path()}), dialClient(b, client.Config{Path: s.Path()})
	ln := listen(b, "tcp4", "127.0.0.1:0")
	server.Listen(client.Socket{Conn: rawOf(b, ln)}, nil)
	conn := connect(b, ln, ln.Addr().String())
	raw0, raw1 := rawOf(b, conn.client), rawOf(b, conn.server)
	bundle := newBundle(b, conn.key)
	defer bundle.handedOver()
	defer unix.Close(bundle.bell0)
	brokertest.Eventually(b, "the listener is shown", func() bool { return dialer.Listener(conn.key.Server.Port()) })
	bucket := conn.key.Bucket()
	done := make(chan result, 1)
	b.ReportAllocs()
	for b.Loop() {
		if err := dialer.Offer(client.Socket{Conn: raw0}, bundle.nonce, bundle.seg, bundle.bell, nil); err != nil {
			b.Fatal(err)
		}
		for {
			if _, may := server.MayHaveOffer(bucket, 0); may {
				break
			}
			time.Sleep(time.Microsecond)
		}
		if err := server.Claim(client.Socket{Conn: raw1}, func(g client.Granted, err error) { done <- result{g, err} }); err != nil {
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

// BenchmarkConnect is a program that comes and goes: its connection to the broker, until it has the
// broker's greeting.
func BenchmarkConnect(b *testing.B) {
	s, _ := startServer(b, Config{})
	b.ReportAllocs()
	for b.Loop() {
		c, err := client.Dial(client.Config{Path: s.Path()})
		if err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(c.Wait(b.Context()), c.Close()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOffer is what offers cost the broker, which nobody claims.
func BenchmarkOffer(b *testing.B) {
	s, _ := startServer(b, Config{})
	dialer := dialClient(b, client.Config{Path: s.Path()})
	ln := listen(b, "tcp4", "127.0.0.1:0")
	dialer.Listen(client.Socket{Conn: rawOf(b, ln)}, nil)
	conn := connect(b, ln, ln.Addr().String())
	raw := rawOf(b, conn.client)
	bundle := newBundle(b, conn.key)
	defer bundle.handedOver()
	defer unix.Close(bundle.bell0)
	brokertest.Eventually(b, "the listener is shown", func() bool { return dialer.Listener(conn.key.Server.Port()) })
	b.ReportAllocs()
	for b.Loop() {
		for dialer.Offer(client.Socket{Conn: raw}, bundle.nonce, bundle.seg, bundle.bell, nil) == wire.ErrBusy {
			time.Sleep(10 * time.Microsecond)
		}
	}
}

// BenchmarkSocket is the control for BenchmarkClaim: the same messages over such a
// socket, with a descriptor one way, and nothing done with them.
func BenchmarkSocket(b *testing.B) {
	ends := brokertest.SocketPair(b)
	defer ends[0].Close()
	ln := listen(b, "tcp4", "127.0.0.1:0")
	fd := fdOf(b, ln)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer ends[1].Close()
		in, _ := rpc.NewInbound(ends[1], wire.MaxLen, wire.MaxDescriptors)
		out, _ := rpc.NewOutbox(ends[1], 1)
		for {
			m, fds, err := in.Next()
			if err != nil {
				return
			}
			fds.Close()
			out.Post(m)
		}
	}()
	in, _ := rpc.NewInbound(ends[0], wire.MaxLen, wire.MaxDescriptors)
	out, _ := rpc.NewOutbox(ends[0], 1)
	m := make([]byte, wire.HeaderLen)
	b.ReportAllocs()
	for b.Loop() {
		out.Post(m, fd)
		if _, _, err := in.Next(); err != nil {
			b.Fatal(err)
		}
	}
	ends[0].Close()
	<-done
}

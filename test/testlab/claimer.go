package testlab

import (
	"net"
	"testing"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
)

// Claimer is a UDP socket that takes flows: the test does what it likes with those that it is
// granted.
type Claimer struct {
	Addr *net.UDPAddr
	s    client.Socket
	c    *client.Client
}

// NewClaimer makes one until the test's end.
func NewClaimer(t testing.TB, c *client.Client) *Claimer {
	t.Helper()
	s, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	raw, err := s.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	r := &Claimer{s.LocalAddr().(*net.UDPAddr), client.Socket{Conn: raw, UDP: true}, c}
	a := c.Listen(r.s, func(why wire.Reason) { t.Errorf("the receiver is refused: %v", why) })
	t.Cleanup(a.Close)
	return r
}

// Offered calls send until a flow is offered to a socket of this network namespace.
func (r *Claimer) Offered(t testing.TB, send func()) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !r.c.FlowsOpen(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no flow is offered")
		}
		send()
	}
}

// Granted calls send until a flow is offered to the receiver, and claims that.
func (r *Claimer) Granted(t testing.TB, send func()) client.Granted {
	t.Helper()
	type answer struct {
		g   client.Granted
		err error
	}
	for range 1000 {
		r.Offered(t, send)
		got := make(chan answer, 1)
		if err := r.c.Claim(r.s, func(g client.Granted, err error) { got <- answer{g, err} }); err != nil {
			continue // the Client connects again
		}
		if a := <-got; a.err == nil {
			return a.g
		}
	}
	t.Fatal("no flow is granted")
	return client.Granted{}
}

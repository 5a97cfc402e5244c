package daemon

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/relay"
	"exnet/directsockets/segment"
	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
)

// runCarrier runs the carrier of a node, which gives offers to its programs.
func runCarrier(t *testing.T, card *nic.NIC, offers chan relay.Offer) *carrier {
	t.Helper()
	c := &carrier{met: make(map[fabric.NodeID]emp.Link), ended: make(chan struct{})}
	var err error
	if c.engine, err = relay.New(relay.Config{NIC: card, Offered: func(o relay.Offer) { offers <- o }}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.carryConnections(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, c.engine.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// A link through shared memory that ends while both nodes live is made again, and connections go on
// through it. They end once the node has left the fabric.
func TestCarriedThroughNextLink(t *testing.T) {
	var cards [2]*nic.NIC
	var nodes [2]*carrier
	offers := make(chan relay.Offer, 1)
	for i := range nodes {
		cards[i] = fabrictest.NewNIC(t, fabric.NodeID(i+1))
		nodes[i] = runCarrier(t, cards[i], offers)
	}
	var links [2]emp.Link
	link := func() {
		x, y := fabrictest.JoinSHM(t, cards[0], cards[1])
		links = [2]emp.Link{x, y}
		for i, c := range nodes {
			c.followLink(fabric.NodeID(2-i), links[i], false)
		}
	}
	cut := func() {
		for _, l := range links {
			_ = l.Close() // the other end may have found that first
			<-l.Done()
		}
	}
	link()
	client, server := carriedPair(t, nodes[0], offers)
	carry := func(what string) {
		t.Helper()
		for sent := false; ; time.Sleep(time.Millisecond) {
			if !sent {
				n, err := client.Send([]byte(what))
				if err != nil && err != segment.ErrAgain {
					t.Fatalf("sending %q: %v", what, err)
				}
				sent = n > 0
			}
			server.Awake()
			server.PromotedAt()
			got := make([]byte, 100)
			n, err := server.Recv(got)
			if string(got[:n]) == what {
				return
			}
			if n > 0 || err != segment.ErrAgain && err != segment.ErrNotPromoted {
				t.Fatalf("%q instead of %q, %v", got[:n], what, err)
			}
		}
	}
	carry("by the first link")
	cut()
	link()
	carry("by the second link")
	cut()
	nodes[0].nodeLeft(2)
	for client.Err() == nil {
		client.Awake()
		time.Sleep(time.Millisecond)
	}
	if err := client.Err(); err != segment.ErrReset {
		t.Errorf("its node has left: %v", err)
	}
}

// carriedPair returns the two ends of a connection, from a node to the one that gets the offers.
func carriedPair(t *testing.T, from *carrier, offers chan relay.Offer) (client, server *segment.End) {
	t.Helper()
	end := func(fd, bell int, side segment.Side) *segment.End {
		seg, err := segment.Map(fd)
		_ = unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		e, err := segment.NewEnd(seg, side, bell, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close(false); seg.Retire() })
		return e
	}
	info := segment.Info{Nonce: segment.NewNonce(), Client: netip.MustParseAddrPort("10.0.0.1:40000"), Server: netip.MustParseAddrPort("10.0.0.2:80")}
	seg, err := segment.Create(info, segment.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Retire()
	bells, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var fds [2]int
	for i := range fds {
		if fds[i], err = unix.FcntlInt(uintptr(seg.Fd()), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
	}
	client = end(fds[0], bells[0], segment.Client)
	if err := from.engine.Offer(2, 1, false, fds[1], bells[1]); err != nil {
		t.Fatal(err)
	}
	o := <-offers
	server = end(o.Segment, o.Bell, segment.Server)
	if err := server.Attach(); err != nil {
		t.Fatal(err)
	}
	for err := segment.ErrAgain; err != nil; err = client.Promote(0) {
		if client.Attached() && err != segment.ErrAgain {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	return client, server
}

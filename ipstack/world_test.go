package ipstack

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"exnet/exteth"
	"exnet/fabric"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/faketime"
)

// world is a hub with nodes on one manual clock.
type world struct {
	t     testing.TB
	hub   *hub
	clock *faketime.ManualClock
	fast  bool
	mtu   int // of the nodes that are added
}

func newWorld(t testing.TB, fast bool) *world {
	return &world{t: t, hub: newHub(), clock: faketime.NewManualClock(), fast: fast, mtu: 65535}
}

// node is one node of a world.
type node struct {
	w    *world
	link *fakeLink
	host *fakeHost
	*Stack
}

// add adds a host-mode node with addresses.
func (w *world) add(id fabric.NodeID, addrs ...string) *node {
	w.t.Helper()
	n := &node{w: w, host: &fakeHost{}}
	n.link, n.Stack = attach(w.t, w.hub, id, w.mtu, Config{Host: n.host, NoFastPath: !w.fast, Clock: w.clock})
	for _, a := range addrs {
		if err := n.AddAddress(netip.MustParsePrefix(a)); err != nil {
			w.t.Fatal(err)
		}
	}
	w.settle()
	return n
}

// attach starts a stack at the hub. The test closes it.
func attach(t testing.TB, h *hub, id fabric.NodeID, mtu int, cfg Config) (*fakeLink, *Stack) {
	t.Helper()
	l := &fakeLink{hub: h, node: id, mtu: mtu, buffers: newBufferPool(t)}
	cfg.Link = l
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.stack = s
	h.mu.Lock()
	h.nodes[id] = l
	h.mu.Unlock()
	t.Cleanup(func() { closeStack(t, s, cfg.Clock) })
	return l, s
}

func closeStack(t testing.TB, s *Stack, clock tcpip.Clock) {
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if c, ok := clock.(*faketime.ManualClock); ok {
		c.RunImmediatelyScheduledJobs()
	}
}

// leave takes a node from the hub, as a NIC that is closed.
func (n *node) leave() {
	n.w.hub.mu.Lock()
	defer n.w.hub.mu.Unlock()
	delete(n.w.hub.nodes, n.link.node)
}

// settle delivers all frames and runs all timers that are due.
func (w *world) settle() {
	for busy := true; busy; {
		w.clock.RunImmediatelyScheduledJobs()
		for busy = false; w.hub.deliver(false); busy = true {
		}
	}
}

// advance lets time pass in small steps, with the hub working.
func (w *world) advance(d time.Duration) {
	const step = 10 * time.Millisecond
	for ; d > 0; d -= step {
		w.clock.Advance(min(d, step))
		w.settle()
	}
}

// send sends a packet of the node's host and lets the hub work.
func (n *node) send(p []byte, off ...exteth.Offload) {
	n.w.t.Helper()
	n.post(p, off...)
	n.w.settle()
}

// post is send without letting the hub work.
func (n *node) post(p []byte, off ...exteth.Offload) {
	n.w.t.Helper()
	b := n.link.buffers.get(p)
	if len(off) > 0 {
		b.Offload = off[0]
	}
	n.FromHost(b)
}

// expect fails unless the host got exactly the packets want.
func (n *node) expect(want ...[]byte) {
	n.w.t.Helper()
	got := n.host.take()
	if len(got) != len(want) {
		n.w.t.Fatalf("node %d: host got %d packets, want %d: %x", n.link.node, len(got), len(want), got)
	}
	for i := range want {
		if !bytes.Equal(got[i].packet, want[i]) {
			n.w.t.Fatalf("node %d: host got packet\n%x, want\n%x", n.link.node, got[i].packet, want[i])
		}
	}
}

// grown fails unless a counter has grown by want since before.
func (n *node) grown(before Stats, c Counter, want uint64) {
	n.w.t.Helper()
	if got := n.Stats()[c] - before[c]; got != want {
		n.w.t.Errorf("node %d: %v grew by %d, want %d", n.link.node, c, got, want)
	}
}

// bothPaths runs a test with and without the fast path.
func bothPaths(t *testing.T, f func(t *testing.T, w *world)) {
	for _, fast := range []bool{true, false} {
		name := "fast"
		if !fast {
			name = "netstack"
		}
		t.Run(name, func(t *testing.T) { f(t, newWorld(t, fast)) })
	}
}

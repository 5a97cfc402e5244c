package ipstack

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/faketime"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// hub is a fabric of function calls: it keeps frames until it is pumped.
type hub struct {
	mu    sync.Mutex
	cond  sync.Cond
	nodes map[fabric.NodeID]*fakeLink // +checklocks:mu
	queue []hubFrame                  // +checklocks:mu
	log   []hubFrame                  // +checklocks:mu; all frames that were sent, while logging
	logOn bool                        // +checklocks:mu
	stop  bool                        // +checklocks:mu
}

type hubFrame struct {
	src   fabric.NodeID
	off   exteth.Offload
	frame []byte
}

func newHub() *hub {
	h := &hub{nodes: make(map[fabric.NodeID]*fakeLink)}
	h.cond.L = &h.mu
	return h
}

// take returns the next frame, or false if there is none (any more).
func (h *hub) take(wait bool) (hubFrame, []*fakeLink, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.queue) == 0 && wait && !h.stop {
		h.cond.Wait()
	}
	if len(h.queue) == 0 {
		return hubFrame{}, nil, false
	}
	f := h.queue[0]
	h.queue = h.queue[1:]
	var to []*fakeLink
	if f.frame[0]&1 != 0 {
		for id, l := range h.nodes {
			if id != f.src {
				to = append(to, l)
			}
		}
		slices.SortFunc(to, func(a, b *fakeLink) int { return int(a.node) - int(b.node) })
	} else if l := h.nodes[nodeOf(f.frame)]; l != nil {
		to = append(to, l)
	}
	return f, to, true
}

func nodeOf(frame []byte) fabric.NodeID { return fabric.NodeID(frame[4])<<8 | fabric.NodeID(frame[5]) }

// deliver hands the next frame to its receivers.
func (h *hub) deliver(wait bool) bool {
	f, to, ok := h.take(wait)
	if !ok {
		return false
	}
	for _, l := range to {
		before := bytes.Clone(f.frame)
		_ = l.stack.ReceiveFrame(f.src, f.off, f.frame)
		if !bytes.Equal(before, f.frame) {
			panic("ReceiveFrame wrote to a borrowed frame")
		}
	}
	return true
}

// run delivers frames until close is called.
func (h *hub) run() (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for h.deliver(true) {
		}
	}()
	return func() {
		h.mu.Lock()
		h.stop = true
		h.queue = nil
		h.mu.Unlock()
		h.cond.Broadcast()
		<-done
	}
}

// startLog makes the hub keep every frame from here on.
func (h *hub) startLog() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log, h.logOn = nil, true
}

func (h *hub) logged() []hubFrame {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.log)
}

// fakeLink is a node's place at the hub.
type fakeLink struct {
	hub     *hub
	node    fabric.NodeID
	stack   *Stack
	buffers *bufferPool
	mtu     int

	mu   sync.Mutex
	fail func(dst [6]byte) error // +checklocks:mu; the link's answer, nil: deliver
	see  func(hubFrame)          // +checklocks:mu; called for every frame sent
}

var _ Link = (*fakeLink)(nil)

func (l *fakeLink) NodeID() fabric.NodeID   { return l.node }
func (l *fakeLink) MAC() [6]byte            { return arp.DefaultPrefix().MAC(l.node) }
func (l *fakeLink) Free(b *exteth.TxBuffer) { l.buffers.free(b) }
func (l *fakeLink) setFail(f func([6]byte) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = f
}

func (l *fakeLink) MTU() int { return l.mtu }

func (l *fakeLink) Transmit(b *exteth.TxBuffer) error {
	defer l.Free(b)
	return l.TransmitCopy(b.Offload, b.Frame())
}

func (l *fakeLink) TransmitCopy(off exteth.Offload, parts ...[]byte) error {
	f := hubFrame{src: l.node, off: off, frame: bytes.Join(parts, nil)}
	l.mu.Lock()
	fail, see := l.fail, l.see
	l.mu.Unlock()
	if fail != nil {
		if err := fail([6]byte(f.frame)); err != nil {
			return err
		}
	}
	if see != nil {
		see(f)
	}
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.frame[0]&1 == 0 && h.nodes[nodeOf(f.frame)] == nil {
		return fmt.Errorf("hub: %w", fabric.ErrNoRoute)
	}
	if h.logOn {
		h.log = append(h.log, f)
	}
	if !h.stop {
		h.queue = append(h.queue, f)
		h.cond.Signal()
	}
	return nil
}

// fakeHost records what the stack hands up.
type fakeHost struct {
	mu  sync.Mutex
	err error        // +checklocks:mu
	got []hostPacket // +checklocks:mu
}

type hostPacket struct {
	off    exteth.Offload
	packet []byte
}

var _ Host = (*fakeHost)(nil)

func (h *fakeHost) WritePacket(off exteth.Offload, p []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	h.got = append(h.got, hostPacket{off, bytes.Clone(p)})
	return nil
}

// takeAll returns what the host got since the last call.
func (h *fakeHost) takeAll() []hostPacket {
	h.mu.Lock()
	defer h.mu.Unlock()
	got := h.got
	h.got = nil
	return got
}

// take is takeAll without the MLD reports that netstack sends when an address
// is added anywhere.
func (h *fakeHost) take() []hostPacket {
	return slices.DeleteFunc(h.takeAll(), func(p hostPacket) bool {
		const afterRouterAlert = v6HdrLen + 8
		return !isIPv4(p.packet) && p.packet[v6NextOff] == extHopByHop && isMLD(header.ICMPv6Type(p.packet[afterRouterAlert]))
	})
}

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

// countOf fails unless a counter has grown by want since before.
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

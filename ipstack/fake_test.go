package ipstack

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/foreign"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// hub is a fabric of function calls: it keeps frames until it is pumped.
type hub struct {
	mu    sync.Mutex
	cond  sync.Cond
	nodes map[fabric.NodeID]*fakeLink // +checklocks:mu
	queue []hubFrame                  // +checklocks:mu
	// log: all frames that were sent, while logging.
	log   []hubFrame // +checklocks:mu
	logOn bool       // +checklocks:mu
	stop  bool       // +checklocks:mu
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

// lent is a frame as exteth gives it: the rest of it in memory of its sender.
func lent(frame []byte) foreign.Frame {
	return foreign.Split(foreign.Of(frame), make([]byte, exteth.HeadLen))
}

// deliver hands the next frame to its receivers.
func (h *hub) deliver(wait bool) bool {
	f, to, ok := h.take(wait)
	if !ok {
		return false
	}
	for _, l := range to {
		_ = l.stack.ReceiveFrame(f.src, f.off, lent(bytes.Clone(f.frame)))
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

	mu sync.Mutex
	// fail: the link's answer, nil: deliver.
	fail func(dst [6]byte) error // +checklocks:mu
	// see: called for every frame sent.
	see func(hubFrame) // +checklocks:mu
}

var _ Link = (*fakeLink)(nil)

func (l *fakeLink) NodeID() fabric.NodeID { return l.node }

func (l *fakeLink) MAC() [6]byte { return arp.DefaultPrefix().MAC(l.node) }

func (l *fakeLink) Free(b *exteth.TxBuffer) { l.buffers.free(b) }

func (l *fakeLink) setFail(f func([6]byte) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = f
}

func (l *fakeLink) MTU() int { return l.mtu }

func (l *fakeLink) Post(b *exteth.TxBuffer) error {
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

func (h *fakeHost) WritePacket(off exteth.Offload, p foreign.Frame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	h.got = append(h.got, hostPacket{off, p.AppendTo(nil)})
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

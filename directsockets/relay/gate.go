package relay

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"

	"exnet/directsockets/segment"
	"exnet/fabric"
	"exnet/fabric/link"
)

// gates are those of all connections, by the addresses of their packets.
//
// Concurrency: all methods may be called from many goroutines.
type gates struct {
	n    atomic.Int32
	held atomic.Int32 // packets
	mu   sync.RWMutex
	// of has more than one gate for a pair of addresses that is used again.
	of map[flow]*Gate // +checklocks:mu
}

// flow is where a packet of a connection comes from, and where it goes.
type flow struct{ from, to netip.AddrPort }

// Gate holds packets of a shadow that must not overtake what its program has written to the
// segment, and keeps out those that may have overtaken what the far program has written.
//
// Concurrency: all methods may be called from many goroutines.
type Gate struct {
	flow  flow
	relay *segment.Relay
	ask   func()        // has the Engine see to what is held; set before use
	conn  *conn         // belongs to the poll list's owner; set before use
	all   *atomic.Int32 // packets that all gates hold; set before use

	// acked is up to where the far kernel has acknowledged what this one has sent, plus hasAcked;
	// 0: it has not been heard.
	acked atomic.Uint64

	mu   sync.Mutex
	held []func() // +checklocks:mu
	// free: all pass from now on. It is no state of the connection: what the program here sends
	// goes by TCP for good, whatever becomes of the other direction. After PAUSE its relay is
	// Silent.
	free bool // +checklocks:mu
	// stopped: the connection is suspended. Its state is the Engine's.
	stopped bool // +checklocks:mu
	// port is the way by which the session of the connection goes; nil: the programs do not use
	// the segment yet.
	port link.Port // +checklocks:mu
	// Packets that were dropped: of the program here, and of the far one.
	dropped, early uint64 // +checklocks:mu
}

// maxHeld is how many packets of a connection are held, maxAllHeld of all. Each connection may hold
// one, also while it is suspended: what TCP sends first is what it sends again, and its peer has to
// get it as soon as the link is back, for TCP waits twice as long after each loss.
const maxHeld, maxAllHeld = 16, 256

func newGate(local, remote netip.AddrPort, r *segment.Relay) *Gate {
	return &Gate{flow: flow{local, remote}, relay: r}
}

func (g *gates) add(gate *Gate, ask func()) {
	gate.ask, gate.all = ask, &g.held
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.of == nil {
		g.of = make(map[flow]*Gate)
	}
	if g.of[gate.flow] == nil {
		g.n.Add(1)
	}
	g.of[gate.flow] = gate
}

// remove removes a gate, and lets pass what it holds.
func (g *gates) remove(gate *Gate) {
	g.mu.Lock()
	if g.of[gate.flow] == gate {
		delete(g.of, gate.flow)
		g.n.Add(-1)
	}
	g.mu.Unlock()
	gate.openForGood()
}

// connOf returns the connection that has a flow; nil: none has. The poll list's owner calls it.
func (g *gates) connOf(f flow) *conn {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if gate := g.of[f]; gate != nil {
		return gate.conn
	}
	return nil
}

// gateOf returns the gate of a flow whose program has sent something in the segment; nil: there is
// none.
func (g *gates) gateOf(f flow) *Gate {
	g.mu.RLock()
	gate := g.of[f]
	g.mu.RUnlock()
	if gate == nil || gate.relay.Silent() {
		return nil
	}
	return gate
}

// Gate returns the gate for an IP packet that a program here sends; nil: it may pass. reset: it is
// a RST. It borrows packet until return.
func (e *Engine) Gate(packet []byte) (gate *Gate, reset bool) {
	g := &e.gates
	if g.n.Load() == 0 {
		return nil, false
	}
	f, says := parsePacket(packet)
	if says != saysMore && says != saysReset {
		return nil, false
	}
	return g.gateOf(f), says == saysReset
}

// Admits reports whether an IP packet from a node may reach a program here. One that carries data
// or an end may not while its connection is suspended, or where it comes by another link than the
// session: a node that has begun anew holds nothing back, and has not been heard yet. TCP sends it
// again. It borrows packet until return.
func (e *Engine) Admits(from fabric.NodeID, packet []byte) bool {
	g := &e.gates
	if g.n.Load() == 0 {
		return true
	}
	f, says := parsePacket(packet)
	if says != saysMore && says != saysSame {
		return true
	}
	g.mu.RLock()
	gate := g.of[flow{f.to, f.from}]
	g.mu.RUnlock()
	if gate == nil {
		return true
	}
	if says == saysSame || gate.admits(e.portOf(from)) {
		gate.noteAcknowledged(acknowledgmentOf(packet))
		return true
	}
	e.stats.EarlyDropped.Add(1)
	return false
}

// hasAcked is beside each number in Gate.acked.
const hasAcked = 1 << 32

// noteAcknowledged notes what the far kernel has acknowledged. An older packet may come later.
func (g *Gate) noteAcknowledged(number uint32) {
	for {
		old := g.acked.Load()
		if old != 0 && int32(number-uint32(old)) <= 0 || g.acked.CompareAndSwap(old, hasAcked|uint64(number)) {
			return
		}
	}
}

// admits reports whether packets that come by a port are in order.
func (g *Gate) admits(port link.Port) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.stopped && (g.port == nil || g.port == port) {
		return true
	}
	g.early++
	return false
}

// Hold takes a packet as a function that sends it, and calls it when the packet may pass: at once,
// or later from any goroutine. False: the packet was dropped. TCP sends a dropped packet again,
// except a reset. So without room a reset passes at once; by TCP, too, it may overtake data.
func (e *Engine) Hold(g *Gate, reset bool, send func()) bool {
	g.mu.Lock()
	switch room := g.roomLocked(reset); {
	case g.free || reset && !room:
		g.mu.Unlock()
		send()
		return true
	case !room:
		g.dropped++
		g.mu.Unlock()
		e.stats.HeldDropped.Add(1)
		return false
	}
	g.held = append(g.held, send)
	g.all.Add(1)
	g.mu.Unlock()
	e.stats.Held.Add(1)
	g.ask()
	return true
}

// roomLocked reports whether one more packet may be held. While the connection is suspended TCP
// only repeats what it has sent, except for a reset.
//
// +checklocks:g.mu
func (g *Gate) roomLocked(reset bool) bool {
	n := len(g.held)
	return n == 0 || n < maxHeld && g.all.Load() < maxAllHeld && (reset || !g.stopped)
}

// stop holds one packet, and resets, until start.
func (g *Gate) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
}

// start lets packets pass in order with the session that goes by a port.
func (g *Gate) start(port link.Port) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped, g.port = false, port
}

// countHeld returns how many packets are held.
func (g *Gate) countHeld() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.held)
}

// passFirst lets the first n packets pass.
func (g *Gate) passFirst(n int) {
	g.mu.Lock()
	n = min(n, len(g.held))
	held := g.held[:n:n]
	g.held = g.held[n:]
	g.all.Add(int32(-n))
	g.mu.Unlock()
	for _, send := range held {
		send()
	}
}

// openForGood lets all packets pass from now on.
func (g *Gate) openForGood() {
	g.mu.Lock()
	held := g.held
	g.held, g.free = nil, true
	g.all.Add(int32(-len(held)))
	g.mu.Unlock()
	for _, send := range held {
		send()
	}
}

// Offsets in IP and TCP headers (RFC 791, 8200, 9293).
const (
	ip4LenOff   = 2
	ip4ProtoOff = 9
	ip4SrcOff   = 12
	ip4DstOff   = 16
	ip4Len      = 20
	ip6LenOff   = 4
	ip6ProtoOff = 6
	ip6SrcOff   = 8
	ip6DstOff   = 24
	ip6Len      = 40
	protoTCP    = 6
	tcpDstOff   = 2
	tcpSeqOff   = 4
	tcpAckOff   = 8
	tcpDataOff  = 12
	tcpFlagsOff = 13
	tcpSumOff   = 16
	tcpLen      = 20
	tcpFIN      = 1
	tcpSYN      = 2
	tcpRST      = 4
	tcpACK      = 16
)

// tcpOf returns where the header of TCP begins in a packet in which parsePacket has found one.
func tcpOf(p []byte) int {
	if p[0]>>4 == 6 {
		return ip6Len
	}
	return int(p[0]&0xf) * 4
}

// acknowledgmentOf is a packet's acknowledgement number. Call it if parsePacket has returned
// saysMore or saysSame.
func acknowledgmentOf(p []byte) uint32 { return binary.BigEndian.Uint32(p[tcpOf(p)+tcpAckOff:]) }

// says is what a packet means to its receiver's program.
type says uint8

const (
	saysNothing says = iota
	saysSame         // no more than was said before: an acknowledgement, a probe of the keep-alive
	saysMore         // data, or that there is no more
	saysReset
)

// parsePacket returns the addresses of a TCP packet, and what it says. Extension headers of IPv6
// make it no TCP packet.
func parsePacket(p []byte) (f flow, s says) {
	if len(p) < ip4Len {
		return f, saysNothing
	}
	var from, to netip.Addr
	var head, total int
	switch p[0] >> 4 {
	case 4:
		head, total = int(p[0]&0xf)*4, int(binary.BigEndian.Uint16(p[ip4LenOff:]))
		if p[ip4ProtoOff] != protoTCP || head < ip4Len {
			return f, saysNothing
		}
		from, to = netip.AddrFrom4([4]byte(p[ip4SrcOff:])), netip.AddrFrom4([4]byte(p[ip4DstOff:]))
	case 6:
		if len(p) < ip6Len || p[ip6ProtoOff] != protoTCP {
			return f, saysNothing
		}
		head, total = ip6Len, ip6Len+int(binary.BigEndian.Uint16(p[ip6LenOff:]))
		from, to = netip.AddrFrom16([16]byte(p[ip6SrcOff:])), netip.AddrFrom16([16]byte(p[ip6DstOff:]))
	default:
		return f, saysNothing
	}
	total = min(total, len(p))
	if total < head+tcpLen {
		return f, saysNothing
	}
	t := p[head:]
	data := total - head - int(t[tcpDataOff]>>4)*4
	switch flags := t[tcpFlagsOff]; {
	case flags&tcpRST != 0:
		s = saysReset
	case data > 0 || flags&tcpFIN != 0:
		s = saysMore
	case flags&(tcpACK|tcpSYN) == tcpACK:
		s = saysSame
	default:
		return f, saysNothing
	}
	return flow{netip.AddrPortFrom(from, binary.BigEndian.Uint16(t)), netip.AddrPortFrom(to, binary.BigEndian.Uint16(t[tcpDstOff:]))}, s
}

package relay

import (
	"encoding/binary"
	"slices"
)

// Keep-alive does nothing on TCP while what a program has sent is not acknowledged: the time of
// retransmissions decides then (RFC 1122, 4.2.3.6; Linux, tcp_keepalive_timer). The kernel's
// keep-alive of a shadow does not know what its program has sent in the segment. So the node
// answers the shadow's probes while it does not know that all of that has arrived.

// maxProbe is how long a probe is at most: the headers of IPv4 and TCP with all options.
const maxProbe = 60 + 60

// Probe is to be called with each IP packet that a program here sends, before it goes anywhere. If
// it is a probe of a shadow's keep-alive, and the far node has not said that all has come that the
// program has sent, Config.Answer is called with the answer of the far kernel. The packet may go
// where it goes nevertheless. It borrows packet until return.
//
// A probe begins one byte before what the far kernel wants next (RFC 1122, 4.2.3.6). So the answer
// says no more than the far kernel has said, whatever is sent before it comes.
func (e *Engine) Probe(packet []byte) {
	if e.gates.n.Load() == 0 || len(packet) > maxProbe || e.cfg.Answer == nil {
		return
	}
	f, says := parsePacket(packet)
	if says != saysSame {
		return
	}
	g := e.gates.gateOf(f)
	if g == nil {
		return
	}
	begins := binary.BigEndian.Uint32(packet[tcpOf(packet)+tcpSeqOff:])
	if g.acked.Load() != hasAcked|uint64(begins+1) {
		return
	}
	p := slices.Clone(packet)
	_ = e.doLater(func() { // closed: all are over
		if c := g.conn; c.mayOwe() {
			e.cfg.Answer(c.node.id, p, answerProbe(p))
		}
	})
}

// mayOwe reports whether the program here has sent what may not have arrived.
func (c *conn) mayOwe() bool {
	if isSuspended(c.state) {
		return !c.owes.IsZero() || c.relay.Waiting()
	}
	return c.state != stateOver && (c.relay.Waiting() || len(c.queue) > 0 || c.events != c.arrived)
}

// confirmArrival asks whether all has arrived of a program that has sent nothing since the last
// call.
func (e *Engine) confirmArrival(c *conn) {
	if !c.isCarrying() || c.events == c.arrived {
		return
	}
	if c.events == c.looked && c.before == 0 && len(c.queue) == 0 {
		e.sendFence(c, 0)
	}
	c.looked = c.events
	e.watchSuspended()
}

// Options of TCP (RFC 9293, 3.2; RFC 7323, 3.2).
const (
	optionEnd       = 0
	optionNone      = 1
	optionTimes     = 8
	optionTimesLen  = 10
	optionTimesVal  = 2
	optionTimesEcho = 6
)

// answerProbe makes a probe of the keep-alive its answer: nothing new, and all has come, also the
// byte before the next one, which is what the probe seems to send. Its window is the prober's own,
// until the far kernel says another one. The checksum is that of the pseudo header only, and tcp is
// where it is to be completed from. parsePacket has found saysSame in p.
func answerProbe(p []byte) (tcp int) {
	src, dst, n := ip4SrcOff, ip4DstOff, 4
	if p[0]>>4 == 6 {
		src, dst, n = ip6SrcOff, ip6DstOff, 16
	}
	tcp = tcpOf(p)
	t := p[tcp:]
	swapBytes(p, src, dst, n)
	swapBytes(t, 0, tcpDstOff, 2)
	swapBytes(t, tcpSeqOff, tcpAckOff, 4)
	binary.BigEndian.PutUint32(t[tcpAckOff:], binary.BigEndian.Uint32(t[tcpAckOff:])+1)
	head := min(int(t[tcpDataOff]>>4)*4, len(t))
	for o := t[tcpLen:head]; len(o) > 1 && o[0] != optionEnd; {
		size := int(o[1])
		switch {
		case o[0] == optionNone:
			size = 1
		case size < 2 || size > len(o):
			size = len(o)
		case o[0] == optionTimes && size == optionTimesLen:
			swapBytes(o, optionTimesVal, optionTimesEcho, 4)
		}
		o = o[size:]
	}
	sum := uint32(protoTCP + head)
	for at := src; at < src+2*n; at += 2 { // both addresses
		sum += uint32(binary.BigEndian.Uint16(p[at:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(t[tcpSumOff:], uint16(sum))
	return tcp
}

// swapBytes exchanges n bytes at a with those at b.
func swapBytes(p []byte, a, b, n int) {
	for i := range n {
		p[a+i], p[b+i] = p[b+i], p[a+i]
	}
}

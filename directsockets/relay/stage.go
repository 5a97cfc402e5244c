package relay

import (
	"fmt"

	"exnet/fabric/atu"
	"exnet/fabric/rma"
	"exnet/foreign"
)

var errStage = fmt.Errorf("%w: an impossible batch", errPeer)

// stage is where a node's batches for a virtual device arrive. It belongs to the poll
// list's owner.
type stage struct {
	mem     []byte
	region  *atu.Region // nil: the node was not told of it
	base    atu.NLA
	arrived [places]span // PUTs that have ended
	// held are messages after a batch that has not arrived; the first one says which.
	held []parcel
}

// span is a part of a place; of no bytes: none.
type span struct{ off, n uint32 }

// lend tells a node where its batches for a device go, once.
func (e *Engine) lend(n *node, box int) {
	s := &e.channel(n, box).stage
	if s.region != nil {
		return
	}
	mem := make([]byte, places*placeLen)
	region, err := e.cfg.NIC.ATU().Register(e.boxes[box].vpid, mem, atu.Write)
	if err != nil {
		return // it sends all messages one by one
	}
	nla, err := region.Lend(n.id)
	if err != nil {
		_ = region.Close()
		return
	}
	s.mem, s.region, s.base = mem, region, nla
	var b [lendLen]byte
	e.postLater(n, box, kindStage, tagLend, appendNLA(b[:0], nla))
}

// landed is told that a node has written to this one's memory.
func (e *Engine) landed(box int, note rma.Notification) {
	n := e.nodes[note.Node]
	if n == nil || n.down || n.channels[box] == nil {
		return
	}
	s := &n.channels[box].stage
	start := note.Local - (rma.LastFragment(0, note.Len))
	at := uint64(start - s.base)
	if s.region == nil || at >= places*placeLen {
		e.ringLanded(box, note)
		return
	}
	s.arrived[at/placeLen] = span{uint32(at % placeLen), uint32(note.Len)}
	e.unhold(n, box)
}

// maxArrived is how many PUTs may have ended of which no message has told yet, for each device:
// more than there can be under way (package stream has 512 of a peer's).
const maxArrived = 1 << 14

// sweep forgets PUTs to rings of connections that no longer exist.
func (b *box) sweep(conns map[uint32]*conn) {
	live := make(map[atu.NLA]int)
	for _, c := range conns {
		for last, n := range b.arrived {
			if c.in != nil && uint64(last-c.in.NLA()) < uint64(c.in.Len()) {
				live[last] = n
			}
		}
	}
	b.arrived = live
}

// ringLanded is told that a node has written to a ring.
func (e *Engine) ringLanded(box int, note rma.Notification) {
	b := &e.boxes[box]
	if len(b.arrived) >= maxArrived {
		b.sweep(e.conns)
		if len(b.arrived) >= maxArrived {
			e.lose(e.nodes[note.Node]) // it writes and does not say so
			return
		}
	}
	b.arrived[note.Local] = note.Len
	if c := b.awaited[note.Local]; c != nil {
		delete(b.awaited, note.Local)
		if !c.over {
			e.goOn(c)
		}
	}
}

// unhold continues what waits for batches, as far as these have arrived.
func (e *Engine) unhold(n *node, box int) {
	s := &n.channels[box].stage
	for len(s.held) > 0 && !n.down {
		p := s.held[0]
		if p.kind == kindStage && p.tag == tagBatch {
			ok, err := e.unpack(n, box, p.flow, p.data)
			if err != nil {
				e.refuse(n, err)
			} else if !ok {
				return
			}
		} else {
			e.hear(n, box, p.flow, p.kind, p.tag, p.data)
		}
		s.held = s.held[1:]
	}
}

// unpack does what the messages of a batch say. False: it has not arrived.
func (e *Engine) unpack(n *node, box int, flow uint16, said []byte) (ok bool, err error) {
	b, err := parseBatch(said)
	if err != nil {
		return false, err
	}
	s := &n.channels[box].stage
	if s.region == nil || b.place >= places || b.n == 0 || b.off > placeLen || b.n > placeLen-b.off {
		return false, errStage
	}
	if s.arrived[b.place] != (span{b.off, b.n}) {
		return false, nil
	}
	s.arrived[b.place] = span{}
	// The peer may write there again: what is looked at is a copy.
	if e.scratch == nil {
		e.scratch = make([]byte, placeLen)
	}
	rest := e.scratch[:foreign.Of(s.mem).Part(int(b.place*placeLen+b.off), int(b.n)).CopyTo(e.scratch)]
	e.stats.BatchesReceived.Add(1)
	for len(rest) > 0 && !n.down {
		k, tag, payload, more, ok := parseHead(rest)
		if !ok || k == kindStage && tag == tagBatch || k == 0 || k > kindStage {
			return false, errStage
		}
		e.hear(n, box, flow, k, tag, payload)
		rest = more
	}
	var id [idLen]byte
	e.postLater(n, box, kindStage, tagTaken, appendID(id[:0], b.place))
	return true, nil
}

// close gives the memory back that peers and this node use.
func (ch *channel) close(later func(func())) {
	for _, r := range []*atu.Region{ch.region, ch.stage.region} {
		if r != nil {
			later(func() { _ = r.Close() }) // it is closed once
		}
	}
}

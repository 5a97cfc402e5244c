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
	region  *atu.Region // nil: the node was not told about it
	base    atu.NLA
	places  [places]stagePlace
	batches uint32 // that were taken
	// held are messages after a batch that has not arrived; the first one says which.
	held []parcel
}

// stageState is how far a place of a stage has come. The peer has it from TAKEN to the end of its
// PUT.
//
//	free ── PUT ended ─▶ arrived ── BATCH ─▶ taken ── TAKEN was sent ─▶ free
type stageState uint8

const (
	stageFree stageState = iota
	stageArrived
	stageTaken
)

type stagePlace struct {
	state stageState
	n     uint32 // arrived: bytes
}

// lendPlaces tells a node where its batches for a device go, once.
func (e *Engine) lendPlaces(n *node, box int) {
	s := &e.channelOf(n, box).stage
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

// noteLanded is called when a node has written to this one's memory.
func (e *Engine) noteLanded(box int, note rma.Notification) {
	n := e.nodes[note.Node]
	if n == nil || n.down || n.channels[box] == nil || note.VPID != e.boxes[box].vpid {
		return
	}
	ch := n.channels[box]
	s := &ch.stage
	start := note.Local - (rma.LastFragment(0, note.Len))
	at := uint64(start - s.base)
	if s.region == nil || at >= places*placeLen {
		e.ringLanded(ch, note)
		return
	}
	p := &s.places[at/placeLen]
	if p.state != stageFree || at%placeLen != 0 || note.Len > placeLen {
		e.endSession(n, fmt.Errorf("%w: a PUT of %d bytes at %d, in state %d", errStage, note.Len, at, p.state))
		return
	}
	*p = stagePlace{stageArrived, uint32(note.Len)}
	e.processHeld(ch)
}

// maxArrived is how many ended PUTs of a node and device to rings may wait for their message: more
// than there can be under way (package stream has 512 of a peer).
const maxArrived = 1 << 14

// forgetPuts forgets PUTs to rings of connections that no longer exist.
func (ch *channel) forgetPuts(conns map[uint32]*conn) {
	live := make(map[atu.NLA]int)
	for _, c := range conns {
		if c.node != ch.node || c.device != ch.box {
			continue
		}
		for last, n := range ch.arrived {
			if uint64(last-c.in.NLA()) < uint64(c.in.Len()) {
				live[last] = n
			}
		}
	}
	ch.arrived = live
}

// ringLanded is called when a node has written to a ring.
func (e *Engine) ringLanded(ch *channel, note rma.Notification) {
	if len(ch.arrived) >= maxArrived {
		ch.forgetPuts(e.conns)
		if len(ch.arrived) >= maxArrived {
			e.endSession(ch.node, fmt.Errorf("%w: it writes, and does not say so", errPeer))
			return
		}
	}
	ch.arrived[note.Local] = note.Len
	if c := ch.awaited[note.Local]; c != nil {
		delete(ch.awaited, note.Local)
		e.goOn(c)
	}
}

// processHeld processes messages that waited for batches that have now arrived.
func (e *Engine) processHeld(ch *channel) {
	s := &ch.stage
	for len(s.held) > 0 && !ch.node.down {
		p := s.held[0]
		if p.kind != kindStage || p.tag != tagBatch {
			e.hearMessage(ch, p.kind, p.tag, p.data)
		} else if !e.processBatch(ch, p.data) {
			return
		}
		s.held = s.held[1:]
	}
}

// processBatch processes the messages of a batch. False: it has not arrived.
func (e *Engine) processBatch(ch *channel, said []byte) (ok bool) {
	ok, err := e.unpackBatch(ch, said)
	if err != nil {
		e.endSession(ch.node, err)
	}
	return ok
}

// unpackBatch processes the messages of a batch. False: it has not arrived. An error: it is not
// what was sent, or not the next one (then none of it was processed), or it has an impossible
// message.
func (e *Engine) unpackBatch(ch *channel, said []byte) (ok bool, err error) {
	b, err := parseBatch(said)
	if err != nil {
		return false, err
	}
	s := &ch.stage
	if s.region == nil || b.place >= places || b.n == 0 || b.n > placeLen || b.number != s.batches {
		return false, fmt.Errorf("%w: number %d of %d bytes in place %d, the next one is %d", errStage, b.number, b.n, b.place, s.batches)
	}
	switch p := s.places[b.place]; {
	case p.state == stageFree:
		return false, nil
	case p.state != stageArrived || p.n != b.n:
		return false, fmt.Errorf("%w: %d bytes in place %d, in state %d with %d", errStage, b.n, b.place, p.state, p.n)
	}
	// The peer can write there again: what is looked at is a copy.
	if e.scratch == nil {
		e.scratch = make([]byte, placeLen)
	}
	rest := e.scratch[:foreign.Of(s.mem).Part(int(b.place)*placeLen, int(b.n)).CopyTo(e.scratch)]
	if sum := checksum(rest); sum != b.sum {
		return false, fmt.Errorf("%w: number %d has the checksum %08x instead of %08x", errStage, b.number, sum, b.sum)
	}
	e.stats.BatchesReceived.Add(1)
	s.batches++
	ch.cur = nil // it names its connections
	for len(rest) > 0 && !ch.node.down {
		k, tag, payload, more, ok := parseHead(rest)
		if !ok || k == kindStage && tag == tagBatch || k == 0 || k > kindStage {
			return false, errStage
		}
		e.hearMessage(ch, k, tag, payload)
		rest = more
	}
	s.places[b.place] = stagePlace{state: stageTaken}
	ch.owed = append(ch.owed, b)
	e.markForFlush(ch)
	return true, nil
}

// releaseMemory gives the memory back that peers and this node use.
func (ch *channel) releaseMemory(later func(func())) {
	for _, r := range []*atu.Region{ch.region, ch.stage.region} {
		if r != nil {
			later(func() { _ = r.Close() }) // it is closed once
		}
	}
}

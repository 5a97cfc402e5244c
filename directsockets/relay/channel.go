package relay

import (
	"encoding/binary"
	"errors"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

const (
	// places is how many batches to one device of a node are on their way, at most.
	places = 8
	// placeLen is how many bytes a batch has, at most.
	placeLen = 64 << 10
	// few is how many messages go one by one: a batch is a PUT and a message.
	few = 8
)

// channel queues what goes to one virtual device of a node, in order. It belongs to the poll list's
// owner.
//
//	post ─▶ place ─── flush ─┬─ few ──▶ a VELO message for each
//	                         └─ many ─▶ one PUT to the same place at the peer, and BATCH
type channel struct {
	node    *node
	box     int
	places  [places]place
	order   []int  // places that have what was not sent yet; the last one may get more
	dirty   bool   // among Engine.dirty
	starved bool   // somebody was refused a place
	mem     []byte // of the places; nil: nothing was sent yet
	region  *atu.Region
	remote  atu.NLA // of the peer's places; 0: it has not said yet
	joins   bool    // the peer takes PUTs for several messages (tagJoined)
	stage   stage
}

// place has messages as a batch has them, one after the other.
type place struct {
	buf      []byte // nil: it is free
	class    fabric.Class
	messages int  // in buf that were not sent
	large    bool // one of them is too large for VELO
	sent     int  // bytes of these that were, one by one
	started  bool // its PUT has begun
	putting  bool // and has not ended
	said     bool // BATCH was sent, and the peer has not taken it yet
}

// putting is a place whose PUT is under way.
type putting struct {
	ch    *channel
	place *place
}

// A message in a batch: its head, then the payload.
const (
	headKindOff = 0 // uint8
	headTagOff  = 1 // uint8
	headSizeOff = 2 // uint16
	headLen     = 4
)

func putHead(p []byte, k kind, tag uint8, n int) {
	p[headKindOff], p[headTagOff] = byte(k), tag
	binary.LittleEndian.PutUint16(p[headSizeOff:], uint16(n))
}

// parseHead returns the first message of a batch, and what follows it.
func parseHead(p []byte) (k kind, tag uint8, payload, rest []byte, ok bool) {
	if len(p) < headLen {
		return 0, 0, nil, nil, false
	}
	n := int(binary.LittleEndian.Uint16(p[headSizeOff:]))
	if n > len(p)-headLen {
		return 0, 0, nil, nil, false
	}
	return kind(p[headKindOff]), p[headTagOff], p[headLen : headLen+n], p[headLen+n:], true
}

// channel returns that of a box.
func (e *Engine) channel(n *node, box int) *channel {
	ch := n.channels[box]
	if ch == nil {
		ch = &channel{node: n, box: box}
		n.channels[box] = ch
	}
	return ch
}

// room returns a place of a class that has n bytes free; nil: there is none now.
func (ch *channel) room(class fabric.Class, n int) *place {
	if len(ch.order) > 0 {
		p := &ch.places[ch.order[len(ch.order)-1]]
		if p.class == class && !p.started && len(p.buf)+n <= placeLen {
			return p
		}
	}
	for i := range ch.places {
		p := &ch.places[i]
		if p.buf != nil {
			continue
		}
		if ch.mem == nil {
			ch.mem = make([]byte, places*placeLen)
		}
		p.buf = ch.mem[i*placeLen : i*placeLen : (i+1)*placeLen]
		p.class = class
		ch.order = append(ch.order, i)
		return p
	}
	ch.starved = true
	return nil
}

// clear frees the place.
func (p *place) clear() { *p = place{} }

// add appends a message.
func (p *place) add(k kind, tag uint8, payload []byte) { copy(p.extend(k, tag, len(payload)), payload) }

// extend appends a message, and returns where its n bytes go.
func (p *place) extend(k kind, tag uint8, n int) []byte {
	at := len(p.buf)
	p.buf = p.buf[:at+headLen+n]
	putHead(p.buf[at:], k, tag, n)
	p.messages++
	return p.buf[at+headLen:]
}

// touch marks a channel to be flushed at the end of the poll.
func (e *Engine) touch(ch *channel) {
	if !ch.dirty {
		ch.dirty = true
		e.dirty = append(e.dirty, ch)
	}
}

// flush sends what a channel has, as far as it goes: what is left waits for credit or for the
// peer to take batches.
func (e *Engine) flush(ch *channel) {
	ch.dirty = false
	done := 0
	for done < len(ch.order) && !ch.node.down && e.ship(ch, ch.order[done]) {
		done++
	}
	ch.order = ch.order[:copy(ch.order, ch.order[done:])]
	if done > 0 {
		e.relieve(ch)
	}
}

// relieve resumes the connections that were refused a place.
func (e *Engine) relieve(ch *channel) {
	if ch.starved {
		ch.starved = false
		e.resume(ch.node)
	}
}

// ship sends a place. False: not now, or not all of it.
func (e *Engine) ship(ch *channel, i int) bool {
	p := &ch.places[i]
	if !p.started && !p.large && (p.messages <= few || ch.remote == 0) {
		return e.shipEach(ch, p)
	}
	if !p.started && !e.startBatch(ch, i) {
		return false
	}
	var b [batchLen]byte
	if e.sendVELO(ch, p.class, kindStage, tagBatch, batch{uint32(i), uint32(p.sent), uint32(len(p.buf) - p.sent)}.append(b[:0])) != nil {
		return false
	}
	p.said = true
	return true
}

// shipEach sends the messages of a place one by one.
func (e *Engine) shipEach(ch *channel, p *place) bool {
	for p.sent < len(p.buf) {
		k, tag, payload, rest, _ := parseHead(p.buf[p.sent:])
		if e.sendVELO(ch, p.class, k, tag, payload) != nil {
			return false
		}
		p.sent = len(p.buf) - len(rest)
		p.messages--
	}
	p.clear()
	return true
}

// startBatch starts the PUT of a place. False: not now.
func (e *Engine) startBatch(ch *channel, i int) bool {
	p, b := &ch.places[i], &e.boxes[ch.box]
	off, n := atu.NLA(i*placeLen+p.sent), len(p.buf)-p.sent
	local := ch.region.NLA() + off
	last := rma.LastFragment(local, n)
	p.started, p.putting = true, true
	b.batches[last] = putting{ch, p}
	err := b.rma.Put(rma.PutReq{Local: local, Remote: ch.remote + off, Len: n, Node: ch.node.id, VPID: b.vpid, Class: p.class, Notify: rma.NotifyRequester | rma.NotifyCompleter})
	if err == nil {
		e.stats.Batches.Add(1)
		return true
	}
	delete(b.batches, last)
	p.started, p.putting = false, false
	if !errors.Is(err, fabric.ErrAgain) { // or when others have ended
		e.lose(ch.node)
	}
	return false
}

// lent is told where the peer takes batches.
func (e *Engine) lent(n *node, box int, nla atu.NLA) error {
	ch := e.channel(n, box)
	if ch.remote != 0 {
		return errStage
	}
	if ch.mem == nil {
		ch.mem = make([]byte, places*placeLen)
	}
	region, err := e.cfg.NIC.ATU().Register(e.boxes[box].vpid, ch.mem, atu.Read)
	if err != nil {
		return nil // one by one, then
	}
	ch.region, ch.remote = region, nla
	return nil
}

// batched is told that the PUT of a place has ended.
func (e *Engine) batched(ch *channel, p *place, status fabric.Status) {
	p.putting = false
	if status != fabric.StatusOK {
		e.lose(ch.node)
		return
	}
	e.leave(ch, p)
}

// taken is told that the peer has taken a batch.
func (e *Engine) taken(n *node, box int, i uint32) error {
	ch := n.channels[box]
	if ch == nil || i >= places || !ch.places[i].said {
		return errStage
	}
	p := &ch.places[i]
	p.said = false
	e.leave(ch, p)
	return nil
}

// leave frees a place once the peer has taken what was in it, and nobody reads it.
func (e *Engine) leave(ch *channel, p *place) {
	if !p.putting && !p.said {
		p.clear()
		e.relieve(ch)
	}
}

// sendVELO sends a message now. After an error but ErrAgain the node is lost.
func (e *Engine) sendVELO(ch *channel, class fabric.Class, k kind, tag uint8, p []byte) error {
	n, b := ch.node, &e.boxes[ch.box]
	if len(p) == 0 {
		p = empty[:]
	}
	err := b.velo.Send(velo.Descriptor{Dst: n.id, VPID: b.vpid, Tag: tag, Class: class, Type: uint8(k), Quiet: true}, p)
	switch {
	case err == nil:
		if bit := uint32(1) << ch.box; n.raised&bit == 0 {
			n.raised |= bit
			e.raised = append(e.raised, raise{n, ch.box})
		}
	case errors.Is(err, fabric.ErrAgain):
		e.stats.NoCredit.Add(1)
		return fabric.ErrAgain
	default:
		e.lose(n)
	}
	return err
}

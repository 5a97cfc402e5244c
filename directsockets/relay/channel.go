package relay

import (
	"encoding/binary"
	"errors"
	"fmt"

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
	// few is up to how many messages go one by one: a batch takes a PUT and a message.
	few = 8
)

// channel queues messages for one virtual device of a node, in order, and has the state of what
// comes from there. It belongs to the poll list's owner.
//
//	post ─▶ place ─── flush ─┬─ few ──▶ a VELO message for each
//	                         └─ many ─▶ one PUT to the same place at the peer, and BATCH
//
// TAKEN needs no place, or two nodes that are both out of places would deadlock.
type channel struct {
	node   *node
	box    int
	places [places]place
	order  []int   // places with messages that were not sent yet; the last one may get more
	owed   []batch // that were taken; the peer is to be told
	// No states: dirty says in which list the channel is, and starved that room is to be told.
	dirty   bool   // among Engine.dirty
	starved bool   // somebody was refused a place
	mem     []byte // of the places; nil: nothing was sent yet
	region  *atu.Region
	remote  atu.NLA // of the peer's places; 0: it has not said yet
	batches uint32  // batches that were sent
	named   uint32  // connection that is selected at the peer, by the last message; 0: none
	stage   stage
	cur     *conn // what the peer has selected; nil: none. It may have ended

	// PUTs of the peer to rings, by the address of their last fragment.
	arrived map[atu.NLA]int   // those that have ended, and their bytes
	awaited map[atu.NLA]*conn // who waits for one

	// HELLO goes either way for itself, and neither waits for the other.
	greeted    bool   // HELLO was said
	greetedFar uint64 // for this session of the peer
	met        bool   // HELLO was heard
	flow       uint16 // by which it came
	answered   int    // 1 + the flow whose messages were answered by HELLO; 0: none
}

// putting is a place whose PUT is under way.
type putting struct {
	ch *channel
	i  int
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

// channelOf returns the channel of a box.
func (e *Engine) channelOf(n *node, box int) *channel {
	ch := n.channels[box]
	if ch == nil {
		ch = &channel{node: n, box: box, arrived: make(map[atu.NLA]int), awaited: make(map[atu.NLA]*conn)}
		n.channels[box] = ch
	}
	return ch
}

// placeFor returns a place of a class that has n bytes free; nil: there is none now.
func (ch *channel) placeFor(class fabric.Class, n int) *place {
	if len(ch.order) > 0 {
		p := &ch.places[ch.order[len(ch.order)-1]]
		if p.state == placeFilling && p.class == class && len(p.buf)+n <= placeLen {
			return p
		}
	}
	for i := range ch.places {
		p := &ch.places[i]
		if p.state != placeFree || p.step(eventFill) != nil {
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

// markForFlush marks a channel to be flushed at the end of the poll.
func (e *Engine) markForFlush(ch *channel) {
	if !ch.dirty {
		ch.dirty = true
		e.dirty = append(e.dirty, ch)
	}
}

// flushChannel sends what a channel has, until credit or places run out; the rest waits.
func (e *Engine) flushChannel(ch *channel) {
	ch.dirty = false
	if ch.node.down || ch.node.port == nil || !e.sendHello(ch) || !e.tellTaken(ch) {
		return
	}
	done := 0
	for done < len(ch.order) && !ch.node.down && e.sendPlace(ch, ch.order[done]) {
		done++
	}
	ch.order = ch.order[:copy(ch.order, ch.order[done:])]
	if done > 0 {
		e.resumeRefused(ch)
	}
}

// tellTaken tells the peer which batches were taken. False: it waits for credit.
func (e *Engine) tellTaken(ch *channel) bool {
	for len(ch.owed) > 0 {
		var p [takenLen]byte
		if e.sendVELO(ch, 0, kindStage, tagTaken, appendID(appendID(p[:0], ch.owed[0].place), ch.owed[0].number)) != nil {
			return false
		}
		ch.stage.places[ch.owed[0].place] = stagePlace{}
		ch.owed = ch.owed[:copy(ch.owed, ch.owed[1:])]
	}
	return true
}

// hasToSend reports whether the channel has something to send.
func (ch *channel) hasToSend() bool { return len(ch.order) > 0 || len(ch.owed) > 0 || !ch.greeted }

// resumeRefused resumes the connections that were refused a place.
func (e *Engine) resumeRefused(ch *channel) {
	if ch.starved {
		ch.starved = false
		e.resumeRoom(ch.node)
	}
}

// sendPlace sends a place. False: not now, or not all of it.
func (e *Engine) sendPlace(ch *channel, i int) bool {
	p := &ch.places[i]
	if p.state == placeFilling {
		if !p.large && (p.messages <= few || ch.remote == 0) {
			e.stepPlace(ch, p, eventSplit)
		} else if !e.startBatch(ch, i) {
			return false
		}
	}
	if p.state == placeSingles {
		return e.shipEach(ch, p)
	}
	var b [batchLen]byte
	say := batch{place: uint32(i), n: uint32(len(p.buf)), number: p.number, sum: p.sum}
	if e.sendVELO(ch, p.class, kindStage, tagBatch, say.append(b[:0])) != nil {
		return false
	}
	ch.named = p.named
	return e.stepPlace(ch, p, eventTold)
}

// stepPlace brings a place to its next state. False: the step is impossible, and the node is lost.
func (e *Engine) stepPlace(ch *channel, p *place, ev placeEvent) bool {
	if err := p.step(ev); err != nil {
		e.endSession(ch.node, err)
		return false
	}
	if p.state == placeFree {
		e.resumeRefused(ch)
	}
	return true
}

// shipEach sends the messages of a place one by one, except a SELECT of what is selected already.
func (e *Engine) shipEach(ch *channel, p *place) bool {
	for p.sent < len(p.buf) {
		k, tag, payload, rest, _ := parseHead(p.buf[p.sent:])
		var id uint32
		if k == kindSelect {
			id = selectedID(payload)
		}
		if id == 0 || id != ch.named {
			if e.sendVELO(ch, p.class, k, tag, payload) != nil {
				return false
			}
		}
		if id != 0 {
			ch.named = id
		}
		p.sent = len(p.buf) - len(rest)
	}
	return e.stepPlace(ch, p, eventSent)
}

// startBatch starts the PUT of a place. False: not now.
func (e *Engine) startBatch(ch *channel, i int) bool {
	p := &ch.places[i]
	p.number, p.sum = ch.batches, checksum(p.buf)
	if !e.putBatch(ch, i, func() { e.markForFlush(ch) }) {
		return false
	}
	e.stats.Batches.Add(1)
	ch.batches++
	return e.stepPlace(ch, p, eventPut)
}

// putBatch has the NIC bring a place to the peer. False: not now, and again is called when a new
// try may succeed; or the node is lost.
func (e *Engine) putBatch(ch *channel, i int, again func()) bool {
	p, b := &ch.places[i], &e.boxes[ch.box]
	off, n := atu.NLA(i*placeLen), len(p.buf)
	local := ch.region.NLA() + off
	err := b.rma.Put(rma.PutReq{Local: local, Remote: ch.remote + off, Len: n, Node: ch.node.id, VPID: b.vpid, Class: p.class, Notify: rma.NotifyRequester | rma.NotifyCompleter})
	switch {
	case err == nil:
		b.batches[rma.LastFragment(local, n)] = putting{ch, i}
	case errors.Is(err, fabric.ErrAgain): // until others have ended
		b.later = append(b.later, again)
	default:
		e.loseLink(ch.node)
	}
	return err == nil
}

// repeatBatch brings a place again, because the peer had no room for its notification.
func (e *Engine) repeatBatch(ba putting) {
	if !ba.ch.node.down {
		e.putBatch(ba.ch, ba.i, func() { e.repeatBatch(ba) })
	}
}

// noteLent is called when the peer has said where it takes batches.
func (e *Engine) noteLent(ch *channel, nla atu.NLA) error {
	if ch.remote != 0 {
		return errStage
	}
	if ch.mem == nil {
		ch.mem = make([]byte, places*placeLen)
	}
	region, err := e.cfg.NIC.ATU().Register(e.boxes[ch.box].vpid, ch.mem, atu.Read)
	if err != nil {
		return nil // one by one, then
	}
	ch.region, ch.remote = region, nla
	return nil
}

// endPut is called when the PUT of a place has ended.
func (e *Engine) endPut(ba putting, status fabric.Status) {
	if ba.ch.node.down {
		return
	}
	switch status {
	case fabric.StatusOK:
	case fabric.StatusOverrun:
		e.afterOverrun(func() { e.repeatBatch(ba) })
		return
	case fabric.StatusProtection: // the peer has forgotten the session, and is about to say so
		e.loseSession(ba.ch.node)
		return
	default:
		if errors.Is(status.Err(), fabric.ErrPeerDown) {
			e.loseLink(ba.ch.node)
		} else {
			e.endSession(ba.ch.node, fmt.Errorf("relay: a batch: %w", status.Err()))
		}
		return
	}
	e.stepPlace(ba.ch, &ba.ch.places[ba.i], eventEnded)
}

// noteTaken is called when the peer has taken a batch.
func (e *Engine) noteTaken(ch *channel, i, number uint32) error {
	if i >= places || ch.places[i].number != number {
		return errStage
	}
	p := &ch.places[i]
	if err := p.step(eventTaken); err != nil {
		return err
	}
	if p.state == placeFree {
		e.resumeRefused(ch)
	}
	return nil
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
		n.spoke = true
		if bit := uint32(1) << ch.box; n.raised&bit == 0 {
			n.raised |= bit
			e.raised = append(e.raised, raise{n, ch.box})
		}
	case errors.Is(err, fabric.ErrAgain):
		e.stats.NoCredit.Add(1)
		return fabric.ErrAgain
	default:
		e.loseLink(n)
	}
	return err
}

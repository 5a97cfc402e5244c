package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"exnet/directsockets/segment"
	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/rma"
)

const (
	// maxJoined is how many bytes of a ring one PUT brings, at most.
	maxJoined = 256 << 10
	// quiet is which part of a ring may be consumed without being told about.
	quiet = 8
	// inline is how much data of a ring goes with the message that announces it, instead of by
	// a PUT of its own.
	inline = 16 << 10
)

// pumpConn takes what the program has sent, and sends it. It returns how many messages that
// was, and how many bytes of data.
func (e *Engine) pumpConn(c *conn, budget int) (n, bytes int) {
	c.blocked, c.due, c.class = false, false, fabric.Class(c.relay.Class())
	switch c.state {
	case stateNew, stateCalling:
		e.callPeer(c)
	case stateOffered:
		e.acceptConn(c)
	case stateCut, stateFinishedCut, stateAnswering:
		e.sendResume(c)
	}
	if e.ends && (c.state == stateAttached || c.state == stateUp) && e.canPart(c) {
		e.on(c, onEnd)
	}
	if !c.isCarrying() {
		return 0, 0
	}
	held := c.gate.countHeld()
	mark, err := c.relay.Mark() // before the messages: what the program said comes after those
	if err != nil {
		e.failConn(c, err)
		return 0, 0
	}
	drained := false
	for n < budget && !drained && c.isCarrying() && !c.blocked {
		if !e.sendQueue(c) || len(c.queue) >= window {
			break
		}
		k, size, err := e.packSmall(c, budget-n)
		n, bytes = n+k, bytes+size
		if err == nil && n < budget && !c.blocked {
			k, size, err = e.takeOne(c, &mark)
			n, bytes, drained = n+k, bytes+size, k == 0
		}
		if err != nil {
			e.failConn(c, err)
			return n, bytes
		}
	}
	e.startJoined(c)
	if c.isCarrying() && e.sendQueue(c) && drained && len(c.queue) == 0 {
		e.sendMarks(c, mark, held)
		if c.told == mark {
			e.sendPart(c)
		}
	}
	if c.isCarrying() {
		e.giveBack(c)
	}
	return n, bytes
}

// packSmall takes small messages straight to the channel, as many as come next.
func (e *Engine) packSmall(c *conn, most int) (n, bytes int, err error) {
	if len(c.queue) > 0 {
		return 0, 0, nil
	}
	for n < most && !c.blocked && !c.node.down {
		to := e.selectedPlace(c, segment.PackHead+segment.MaxVELO)
		if to == nil {
			break
		}
		var k, size int
		at := len(to.buf)
		to.buf, k, size, err = c.relay.Pack(to.buf, most-n, c.nextStamp())
		to.messages += k
		c.said += uint64(k)
		if e.tap.Load() == nil {
			c.wentOut += uint64(size)
		} else {
			e.showPacked(c, to.buf[at:])
		}
		n, bytes = n+k, bytes+size
		if k == 0 || err != nil {
			break
		}
	}
	c.events += uint64(n)
	e.stats.MessagesSent.Add(uint64(n))
	e.stats.BytesSent.Add(uint64(bytes))
	return n, bytes, err
}

// takeOne takes the next message, if there is one, and sends or queues it. mark was read before:
// what it says of an earlier PAUSE ends with PROMOTE.
func (e *Engine) takeOne(c *conn, mark *segment.Mark) (n, bytes int, err error) {
	en := e.takeEntry(c)
	ok, err := c.relay.Take(&en.msg)
	if err != nil || !ok {
		e.recycleEntry(en)
		return 0, 0, err
	}
	c.events++
	e.stats.MessagesSent.Add(1)
	switch en.msg.Tag {
	case segment.TagPromote:
		mark.Flags &^= segment.MarkStands
		c.told.Flags &^= segment.MarkStands
	case segment.TagPause: // it goes with it: see sendEntry
		mark.Flags |= c.offMark()
	case segment.TagRMAInfo:
		_, bytes = en.msg.Place()
	case segment.TagVELO, segment.TagVELOLast:
		bytes = en.msg.Len
	}
	e.showSent(c, &en.msg, bytes)
	e.stats.BytesSent.Add(uint64(bytes))
	if en.msg.Tag == segment.TagRMAInfo {
		en.early = e.channelOf(c.node, c.device).remote != 0
		if en.put = putInside; !en.early || bytes > inline {
			en.put, en.size = putOpen, bytes
		}
	}
	switch {
	case en.put == putOpen:
		c.queue = append(c.queue, en)
		e.joinPut(c, en)
	case len(c.queue) == 0 && e.sendEntry(c, en):
		e.recycleEntry(en)
	default:
		c.queue = append(c.queue, en)
	}
	return 1, bytes, nil
}

// offMark returns MarkOff, if the program here is switched off.
func (c *conn) offMark() segment.MarkFlags {
	m, _ := c.relay.Mark() // an error is found by the next look
	return m.Flags & segment.MarkOff
}

// joinPut sends the data of a message by the same PUT as the message before it, if it follows
// that in the ring and the peer accepts that. Otherwise its PUT is the next to be started.
func (e *Engine) joinPut(c *conn, en *entry) {
	if first := c.joining; first != nil {
		start, _ := first.msg.Place()
		off, _ := en.msg.Place()
		if start+first.size == off && first.size+en.size <= maxJoined {
			first.size += en.size
			en.put, en.size = putBefore, 0
			return
		}
		e.startJoined(c)
	}
	c.joining = en
	if !en.early {
		e.startJoined(c)
	}
}

// startJoined starts the PUT that was collecting data.
func (e *Engine) startJoined(c *conn) {
	if en := c.joining; en != nil {
		c.joining = nil
		e.startPut(c, en)
	}
}

// sendEntry sends a message that was taken. False: not now.
func (e *Engine) sendEntry(c *conn, en *entry) bool {
	switch en.msg.Tag {
	case segment.TagRMAInfo:
	case segment.TagPause:
		how, off := byte(demotePauses), c.offMark()
		if off != 0 {
			how |= demoteOff
		}
		sent := e.sendMessage(c, kind(segment.TagDemote), []byte{how})
		if sent {
			c.told.Flags |= off
		}
		return sent
	default:
		return e.sendMessage(c, kind(en.msg.Tag), en.msg.Payload())
	}
	var b [infoOff + segment.MaxVELO]byte
	wait := 0 // for the PUT of so many bytes
	if en.early {
		wait = en.size
	}
	info := append(appendID(b[:0], uint32(wait)), en.msg.Payload()...)
	if en.put != putInside {
		return e.sendMessage(c, kind(en.msg.Tag), info)
	}
	_, n := en.msg.Place()
	to := e.selectedPlace(c, headLen+len(info)+n)
	if to == nil {
		return false
	}
	p := to.addRoom(kind(en.msg.Tag), c.nextStamp(), len(info)+n)
	c.said++
	c.relay.Fetch(&en.msg, p[copy(p, info):])
	to.large = true
	return true
}

// startPut brings the data of a message to the far program's ring.
func (e *Engine) startPut(c *conn, en *entry) {
	off, _ := en.msg.Place()
	n, b := en.size, &e.boxes[c.device]
	local := c.out.NLA() + atu.NLA(off)
	last := rma.LastFragment(local, n)
	if b.puts[last] != nil { // its data was consumed, and the end of its PUT is not known here yet
		e.startLater(b, c, en)
		return
	}
	notify := rma.NotifyRequester
	if en.early {
		notify |= rma.NotifyCompleter
	}
	err := b.rma.Put(rma.PutReq{Local: local, Remote: c.remote + atu.NLA(off), Len: n, Node: c.node.id, VPID: b.vpid, Class: c.class, Notify: notify})
	switch {
	case err == nil:
		if b.puts[last] = en; !en.isMoving() {
			en.put = putRunning
		}
	case errors.Is(err, fabric.ErrAgain): // until others have ended
		e.startLater(b, c, en)
	default:
		e.loseLink(c.node)
	}
}

// startLater has a PUT be started when another one has ended.
func (e *Engine) startLater(b *box, c *conn, en *entry) {
	if en.isMoving() { // it is a repetition
		b.later = append(b.later, func() { e.repeatPut(en) })
		return
	}
	en.put = putDue
	b.later = append(b.later, func() { e.activateConn(c) })
}

// repeatPut starts a PUT again for whose notification the peer had no room. It has counted as
// running all the time.
func (e *Engine) repeatPut(en *entry) {
	if en.isForgotten() {
		e.recycleEntry(en)
		return
	}
	e.startPut(en.c, en)
}

// overrunPause is how long a PUT waits that a peer has refused because it had too many
// notifications.
const overrunPause = time.Millisecond

// afterOverrun has f be called when the peer may have room again.
func (e *Engine) afterOverrun(f func()) {
	e.stats.Overruns.Add(1)
	time.AfterFunc(overrunPause, func() { _ = e.doLater(f) }) // closed: all is over
}

// endTransfer is called when a PUT has ended. A peer that refuses one has ended the connection,
// or waits for a new session, and will say so.
func (e *Engine) endTransfer(en *entry, status fabric.Status) {
	c := en.c
	if status == fabric.StatusOverrun && !en.isForgotten() {
		e.afterOverrun(func() { e.repeatPut(en) })
		return
	}
	said := en.put == putSaid
	en.put = putLanded
	if status == fabric.StatusOK {
		e.stats.Puts.Add(1)
	} else {
		e.stats.PutsFailed.Add(1)
	}
	switch {
	case en.isForgotten(), status == fabric.StatusOK && said:
		e.recycleEntry(en)
	case status == fabric.StatusOK:
		e.activateConn(c)
	case errors.Is(status.Err(), fabric.ErrPeerDown):
		e.loseLink(c.node)
	case status != fabric.StatusProtection || !e.on(c, onShunned):
		e.failConn(c, fmt.Errorf("relay: a PUT to a ring: %w", status.Err()))
	}
}

// sendQueue sends queued messages whose data has arrived. False: it waits for credit.
func (e *Engine) sendQueue(c *conn) bool {
	for len(c.queue) > 0 {
		en := c.queue[0]
		if en.put == putDue {
			e.startPut(c, en)
		}
		if !en.isReady() {
			for _, next := range c.queue[1:] {
				if next.put == putDue {
					e.startPut(c, next)
				}
			}
			return true
		}
		if !e.sendEntry(c, en) {
			return false
		}
		if c.queue = c.queue[1:]; en.isMoving() {
			en.put = putSaid
		} else {
			e.recycleEntry(en)
		}
	}
	c.queue = nil
	return true
}

// sendMessage sends a message for a connection. False: not now.
func (e *Engine) sendMessage(c *conn, k kind, p []byte) bool {
	to := e.selectedPlace(c, headLen+len(p))
	if to == nil {
		return false
	}
	to.addMessage(k, c.nextStamp(), p)
	c.said++
	return true
}

// selectedPlace returns the place for messages of a connection, with room for n bytes and with the
// connection selected; nil: not now.
func (e *Engine) selectedPlace(c *conn, n int) *place {
	node, ch := c.node, e.channelOf(c.node, c.device)
	if node.down {
		c.blocked = true
		return nil
	}
	to := ch.placeFor(c.class, headLen+selectLen+n)
	if to == nil {
		e.blockConn(c)
		return nil
	}
	if to.named != c.far {
		var p [selectLen]byte
		to.addMessage(kindSelect, 0, selection{c.far, c.farKey, c.said, c.id}.append(p[:0]))
		to.named = c.far
	}
	e.markForFlush(ch)
	return to
}

// sendMarks tells the peer what the program says beside its messages. Call it when all of those
// were sent.
// held is how many packets of the shadow waited before that was read.
func (e *Engine) sendMarks(c *conn, mark segment.Mark, held int) {
	if mark != c.told {
		var p [markLen]byte
		if !e.sendMessage(c, kindMark, appendMark(p[:0], mark)) {
			return
		}
		c.told = mark
		c.events++
		if mark.Has(segment.MarkClosed) {
			e.on(c, onClosed)
		}
	}
	switch {
	case held == 0 || c.before > 0:
	case c.events == c.arrived:
		c.gate.passFirst(held)
	default:
		e.sendFence(c, held)
	}
	if c.events != c.arrived {
		return
	}
	switch {
	case mark.Has(segment.MarkStands) && !mark.Has(segment.MarkReturned) && c.relay.Quiet(): // until PROMOTE
	case mark.Flags&(segment.MarkReturned|segment.MarkStands) != 0:
		c.gate.openForGood()
	}
}

// sendFence asks the peer to say when all has arrived that was said so far: packets of the
// shadow, as many as held, pass then.
func (e *Engine) sendFence(c *conn, held int) {
	var id [idLen]byte
	if e.sendMessage(c, kindFence, appendID(id[:0], c.fences+1)) {
		e.stats.Fences.Add(1)
		c.fences++
		c.asked, c.before = held, c.events
	}
}

// answerFence is called when all that was sent before a fence has arrived.
func (e *Engine) answerFence(c *conn, number uint32) {
	if number != c.fences || c.before == 0 {
		return // an older one
	}
	c.gate.passFirst(c.asked)
	c.asked, c.before, c.arrived = 0, 0, c.before
	if c.isCarrying() {
		e.activateConn(c) // more may wait
	}
}

// giveBack tells the peer what the program has consumed, if that is worth it.
func (e *Engine) giveBack(c *conn) {
	consumed, freed, err := c.relay.Returned()
	if err != nil {
		e.failConn(c, err)
		return
	}
	resumes := c.relay.MayResume()
	switch few := consumed-c.gave.consumed < uint64(c.seg.Config().Slots/4) && freed-c.gave.freed < uint64(c.seg.Config().Ring/quiet); {
	case resumes:
		// If the program had fallen back before it consumed PAUSE, the far one has to hear of that
		// before.
		switch m, err := c.relay.Mark(); {
		case err != nil:
			e.failConn(c, err)
			return
		case m != c.told:
			return // say is about to
		}
	case few && !c.relay.Resumed(c.gave.consumed):
		return
	}
	to := e.selectedPlace(c, headLen+backLen)
	if to == nil {
		return
	}
	if resumes {
		c.relay.Resume()
		consumed++
	}
	c.gave = back{consumed, freed}
	var p [backLen]byte
	to.addMessage(kindBack, c.nextStamp(), c.gave.append(p[:0]))
	c.said++
}

// callPeer asks the peer for a connection, unless the client has taken its offer back.
func (e *Engine) callPeer(c *conn) {
	if m, err := c.relay.Mark(); err != nil || m.Has(segment.MarkClosed) || c.relay.PeerState() == segment.StateWithdrawn {
		e.on(c, onWithdrawn) // the brokers know
		return
	}
	if c.state == stateCalling {
		return
	}
	nla, err := c.in.Lend(c.node.id)
	if err != nil {
		e.on(c, onBroken)
		return
	}
	why := c.why
	if e.knowsPause(c) {
		why |= tagPauses
		c.relay.PutPauses()
	}
	o := open{id: c.id, key: c.key, nla: nla, size: c.seg.Config(), offer: c.offer, info: c.seg.Info()}
	var p [openLen]byte
	if e.postClass(c.node, c.device, c.class, kindOpen, why, o.append(p[:0])) != nil {
		e.blockConn(c)
		return
	}
	e.on(c, onCalled)
}

// declineConn ends a connection that the server's program has not taken.
func (e *Engine) declineConn(c *conn, tag uint8) {
	e.postDrop(c.node, c.device, tag, c.far)
	e.on(c, onDeclined)
}

// pauseVersion is the first version with PAUSE.
const pauseVersion = 7

// knowsPause reports whether the program here knows PAUSE, and both nodes do.
func (e *Engine) knowsPause(c *conn) bool {
	return c.relay.PeerPauses() && e.versionFor(c.node.id) >= pauseVersion
}

// acceptConn looks whether the server's program has taken a connection, and tells the peer.
func (e *Engine) acceptConn(c *conn) {
	m, err := c.relay.Mark()
	refused := c.relay.PeerState() == segment.StateWithdrawn
	if err != nil || refused || m.Has(segment.MarkClosed) {
		tag := uint8(tagGone)
		if refused {
			tag = tagRefuse
		}
		e.declineConn(c, tag)
		return
	}
	if !c.relay.Attached() {
		return
	}
	nla, err := c.in.Lend(c.node.id)
	if err != nil {
		e.failConn(c, err)
		return
	}
	tag := uint8(0)
	if e.knowsPause(c) {
		tag = tagPauses
		c.relay.PutPauses()
	}
	a := attached{id: c.far, far: c.id, nla: nla, key: c.key}
	var p [attachedLen]byte
	if e.postClass(c.node, c.device, c.class, kindAttached, tag, a.append(p[:0])) != nil {
		e.blockConn(c)
		return
	}
	e.stats.Attached.Add(1)
	e.on(c, onTaken)
}

// takeEntry returns an entry for a message.
func (e *Engine) takeEntry(c *conn) *entry {
	if n := len(e.spare); n > 0 {
		en := e.spare[n-1]
		e.spare = e.spare[:n-1]
		en.c, en.epoch = c, c.epoch
		return en
	}
	return &entry{c: c, epoch: c.epoch}
}

// maxSpare bounds the entries that are kept.
const maxSpare = 4 * window

func (e *Engine) recycleEntry(en *entry) {
	en.c, en.put, en.size, en.early = nil, putNone, 0, false
	if len(e.spare) < maxSpare {
		e.spare = append(e.spare, en)
	}
}

func appendID(p []byte, id uint32) []byte { return binary.LittleEndian.AppendUint32(p, id) }

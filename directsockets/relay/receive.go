package relay

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"exnet/directsockets/segment"
	"exnet/fabric/atu"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// receiveMessage takes a message. It borrows p until return.
func (e *Engine) receiveMessage(box int, st velo.Status, p []byte) {
	if st.SrcVPID != e.boxes[box].vpid { // of a process there, not of its node
		e.stats.Strays.Add(1)
		return
	}
	n := e.nodeOf(st.Src)
	if n == nil || n.down { // by a link that has gone: another one may be there
		return
	}
	k := kind(st.Type)
	if box == Devices {
		if k != kindNote {
			e.refuseMessage(n, fmt.Errorf("%w: message of kind %d for the broker", errPeer, k))
		} else if err := e.takeNote(n, st.Tag, p); err != nil {
			e.refuseMessage(n, err)
		}
		return
	}
	ch, b := e.channelOf(n, box), k == kindStage && st.Tag == tagBatch
	switch {
	case k == kindStage && st.Tag == tagHello:
		e.takeHello(ch, st.Flow, p)
	case !e.isCurrent(ch, st.Flow):
	case len(ch.stage.held) >= maxLater:
		e.endSession(n, fmt.Errorf("%w: a batch that does not come", errPeer))
	case len(ch.stage.held) > 0 || b && !e.processBatch(ch, p) && !n.down:
		ch.stage.held = append(ch.stage.held, parcel{box, k, st.Tag, append([]byte(nil), p...)})
	case !b:
		e.hearMessage(ch, k, st.Tag, p)
	}
}

// hearMessage does what a message of a channel says. It borrows p until return.
func (e *Engine) hearMessage(ch *channel, k kind, tag uint8, p []byte) {
	var err error
	n, box := ch.node, ch.box
	switch k {
	case kindSelect:
		var s selection
		if s, err = parseSelection(p); err == nil {
			e.noteSelected(ch, s)
		}
	case kindOpen:
		var o open
		if o, err = parseOpen(p); err == nil {
			e.takeOpen(n, box, o, tag)
		}
	case kindAttached:
		var a attached
		if a, err = parseAttached(p); err == nil {
			e.takeAttached(n, box, a, tag)
		}
	case kindDrop:
		var id uint32
		if id, err = parseID(p); err == nil {
			e.takeDropped(n, box, id, tag)
		}
	case kindBye:
		var id uint32
		if id, err = parseID(p); err == nil {
			if c := e.conns[id]; c != nil && c.node == n {
				e.takeInTurn(c, k, p)
			}
		}
	case kindStage:
		err = e.takeStaged(ch, tag, p)
	default:
		e.forConn(ch, k, tag, p)
	}
	if err != nil {
		e.endSession(n, err)
	}
}

// noteSelected notes which connection the next messages of a channel are for. With a wrong key
// or number they could be another connection's.
func (e *Engine) noteSelected(ch *channel, s selection) {
	ch.cur = nil
	c := e.conns[s.id]
	if c == nil || c.node != ch.node || c.device != ch.box { // it has ended here: the peer may not know
		e.postDrop(ch.node, ch.box, tagGone, s.from)
		return
	}
	if s.key != c.key || s.number != c.got && c.isListening() {
		e.failConn(c, fmt.Errorf("%w: message %d with key %08x instead of %d with %08x", errPeer, s.number, s.key, c.got, c.key))
		return
	}
	ch.cur = c
}

// forConn takes a message for the connection that is selected.
func (e *Engine) forConn(ch *channel, k kind, tag uint8, p []byte) {
	c := ch.cur
	if c == nil || !c.isListening() {
		return // it has ended here, or goes on after RESUME
	}
	if tag != stampOf(c.key, c.got) {
		e.failConn(c, fmt.Errorf("%w: a message with stamp %d instead of %d", errPeer, tag, stampOf(c.key, c.got)))
		return
	}
	c.got++
	if c.state == stateAttached {
		e.on(c, onHeard)
	}
	e.takeInTurn(c, k, p)
}

// takeStaged does what an ANSWER says, or a message about batches.
func (e *Engine) takeStaged(ch *channel, tag uint8, p []byte) error {
	switch tag {
	case tagAnswer:
		id, number, err := parseAnswer(p)
		if err == nil {
			if c := e.conns[id]; c != nil && c.node == ch.node {
				e.answerFence(c, number)
			}
		}
		return err
	case tagLend:
		nla, err := parseNLA(p)
		if err == nil {
			err = e.noteLent(ch, nla)
		}
		return err
	case tagResume:
		r, err := parseResume(p)
		if err == nil {
			e.takeResume(ch.node, ch.box, r)
		}
		return err
	case tagJoined:
		id, key, err := parseJoined(p)
		if err == nil {
			if c := e.conns[id]; c != nil && c.node == ch.node && c.key == key {
				e.on(c, onHeard)
			}
		}
		return err
	case tagOver:
		if len(p) > 0 && p[0] == overLeft {
			e.noteParted(ch)
		} else {
			e.endBereaved(ch.node)
		}
		return nil
	case tagTaken:
		i, number, err := parseTaken(p)
		if err == nil {
			err = e.noteTaken(ch, i, number)
		}
		return err
	}
	return fmt.Errorf("%w: tag %d", errStage, tag)
}

// refuseMessage notes an impossible message of a node that belongs to no connection.
func (e *Engine) refuseMessage(n *node, err error) {
	e.stats.Breaches.Add(1)
	e.cfg.Log.Warn("direct sockets: a node broke the protocol", "node", n.id, "reason", err)
}

// endSession resets all connections to a node, because its messages cannot be trusted any more, or
// not be attributed to one of them.
func (e *Engine) endSession(n *node, err error) {
	if !n.down {
		e.refuseMessage(n, err)
		n.ends = onBroken
		e.loseSession(n)
	}
}

// takeInTurn takes a message for a connection, after those before it whose data has not come.
func (e *Engine) takeInTurn(c *conn, k kind, p []byte) {
	if len(c.held) == 0 {
		come, err := e.hasCome(c, k, p)
		if err == nil && come {
			err = e.actOn(c, k, p)
		}
		if err != nil {
			e.failConn(c, err)
		}
		if err != nil || come {
			return
		}
	}
	size := c.seg.Config()
	if c.heldLen += len(p); len(c.held) >= maxLater || c.heldLen > size.Ring+2*size.Slots*velo.MaxPayload {
		e.failConn(c, fmt.Errorf("%w: data that does not come, and much after it", errPeer))
		return
	}
	c.held = append(c.held, parcel{kind: k, data: append([]byte(nil), p...)})
}

// hasCome reports whether the data of a message has arrived. If not, the connection goes on once it
// has.
func (e *Engine) hasCome(c *conn, k kind, p []byte) (bool, error) {
	if k != kind(segment.TagRMAInfo) {
		return true, nil
	}
	put, info, err := parseInfo(p)
	if err != nil || put == 0 {
		return true, err
	}
	off, n, ok := segment.ParsePlace(info, c.in.Len())
	if !ok || put < n || put > c.in.Len()-off {
		return false, fmt.Errorf("%w: an RMA_INFO of %d bytes at %d, by a PUT of %d", errPeer, n, off, put)
	}
	b := e.channelOf(c.node, c.device)
	last := rma.LastFragment(c.in.NLA()+atu.NLA(off), put)
	if b.arrived[last] == put {
		delete(b.arrived, last)
		return true, nil
	}
	b.awaited[last], c.awaits = c, last
	return false, nil
}

// goOn processes what waited for data that has now arrived.
func (e *Engine) goOn(c *conn) {
	for len(c.held) > 0 {
		p := c.held[0]
		come, err := e.hasCome(c, p.kind, p.data)
		if err == nil && !come {
			return
		}
		c.held, c.heldLen = c.held[1:], c.heldLen-len(p.data)
		if err == nil {
			err = e.actOn(c, p.kind, p.data)
		}
		if err != nil {
			e.failConn(c, err)
			return
		}
	}
}

// actOn does what a message for a connection says. The message's data has arrived.
func (e *Engine) actOn(c *conn, k kind, p []byte) error {
	if k == kindBye {
		e.on(c, onBye)
		return nil
	}
	if !c.isListening() {
		return nil // it comes after PART
	}
	switch k {
	case kind(segment.TagRMAInfo):
		_, info, err := parseInfo(p)
		if err != nil {
			return err
		}
		p = info
	case kindBack:
		b, err := parseBack(p)
		if err == nil {
			err = c.relay.GiveBack(b.consumed, b.freed)
		}
		return err
	case kindMark:
		m, err := parseMark(p)
		if err != nil {
			return err
		}
		return e.takeMarks(c, m, isPart(p))
	case kindFence: // all that came before is in the segment
		number, err := parseID(p)
		if err != nil {
			return err
		}
		var b [answerLen]byte
		e.postLater(c.node, c.device, kindStage, tagAnswer, appendID(appendID(b[:0], c.far), number))
		return nil
	}
	return e.deliverMessage(c, k, p)
}

// deliverMessage puts a message of the far program into the queue of the one here.
func (e *Engine) deliverMessage(c *conn, k kind, p []byte) error {
	tag := segment.Tag(k)
	switch {
	case tag == segment.TagDemote && len(p) == 1 && p[0]&demotePauses != 0:
		if p[0]&demoteOff != 0 {
			c.relay.SayOff()
		}
		tag, p = segment.TagPause, nil
	case tag == segment.TagShutdown, tag == segment.TagDemote:
		p = nil // see empty
	}
	if c.state == stateLeaving {
		return nil // nobody reads it
	}
	n, err := c.relay.Put(tag, p)
	if err != nil {
		return err
	}
	c.oneWay = 0
	e.showReceived(c, tag, p, n)
	c.gotMessages++
	c.gotBytes += uint64(n)
	if !c.touched {
		c.touched = true
		e.touched = append(e.touched, c)
	}
	return nil
}

// wakePrograms wakes the programs that have got messages.
func (e *Engine) wakePrograms() {
	for _, c := range e.touched {
		c.touched = false
		e.stats.MessagesReceived.Add(c.gotMessages)
		e.stats.BytesReceived.Add(c.gotBytes)
		c.gotMessages, c.gotBytes = 0, 0
		if c.state == stateOver {
			continue
		}
		c.relay.Tell()
		if c.relay.Unread(c.gave.consumed, c.gave.freed) {
			e.activateConn(c) // to be told when the program consumes
		}
	}
	clear(e.touched)
	e.touched = e.touched[:0]
}

// takeMarks tells the program what the far one says. part: it is the last that its node says.
func (e *Engine) takeMarks(c *conn, m segment.Mark, part bool) error {
	if err := c.relay.Say(m); err != nil {
		return err
	}
	switch {
	case part:
		e.wakePrograms()
		if e.on(c, onPart) { // else the program here has closed, and its node will hear so
			e.activateConn(c)
		}
	case m.Has(segment.MarkClosed):
		e.wakePrograms()
		e.sendBye(c)
		ev := onPeerClosed
		if m.Has(segment.MarkReset) {
			ev = onPeerReset
		}
		e.on(c, ev)
	default:
		e.activateConn(c) // a PAUSE may count as consumed now
	}
	return nil
}

// takeOpen takes a request for a connection to a program here.
func (e *Engine) takeOpen(n *node, box int, o open, why uint8) {
	c, err := e.provideSegment(n, box, o, why)
	if err != nil {
		e.stats.Refused.Add(1)
		e.postDrop(n, box, tagGone, o.id)
		return
	}
	e.stats.Accepted.Add(1)
	e.lendPlaces(n, box)
	e.addConn(c, n)
}

// provideSegment makes the segment of a connection to a program here, and offers it.
func (e *Engine) provideSegment(n *node, box int, o open, why uint8) (*conn, error) {
	switch {
	case e.ends:
		return nil, ErrClosed
	case n.conns >= e.cfg.MaxConns:
		return nil, ErrTooMany
	case o.size.Slots > MaxSlots || o.size.Ring > MaxRing || o.size.Slots == 0 || o.size.Ring == 0 || int(o.info.Device()) != box:
		return nil, fmt.Errorf("%w: %d slots, ring of %d bytes, device %d", errPeer, o.size.Slots, o.size.Ring, o.info.Device())
	}
	s, err := segment.Create(o.info, o.size)
	if err != nil {
		return nil, err
	}
	fds := make([]int, 0, 3)
	abort := func(err error) (*conn, error) {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return nil, err
	}
	own, err := unix.FcntlInt(uintptr(s.Fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		s.Retire()
		return abort(err)
	}
	fds = append(fds, own)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		s.Retire()
		return abort(err)
	}
	fds = append(fds, pair[1])
	s.CloseFd()
	c := &conn{why: why &^ tagPauses, far: o.id, farKey: o.key, key: rand.Uint32(), remote: o.nla, seg: s}
	if err := e.equipConn(c, segment.Client, pair[0]); err != nil {
		return abort(err)
	}
	if why&tagPauses != 0 {
		c.relay.TakePauses()
	}
	e.on(c, onOpen)
	e.cfg.Offered(Offer{Node: n.id, ID: o.offer, Info: o.info, Segment: own, Bell: pair[1]})
	return c, nil
}

// takeAttached is called when the server's program has attached a connection that is offered
// from here.
func (e *Engine) takeAttached(n *node, box int, a attached, tag uint8) {
	c := e.conns[a.id]
	if c == nil || c.node != n || c.device != box || c.state != stateCalling || a.far == 0 {
		e.tellUnknown(n, box, a)
		return
	}
	c.far, c.farKey, c.remote = a.far, a.key, a.nla
	if tag == tagPauses {
		c.relay.TakePauses()
	}
	switch err := c.relay.Attach(); {
	case errors.Is(err, segment.ErrCorrupt):
		e.failConn(c, err)
		return
	case err != nil: // the client has taken its offer back
		e.on(c, onWithdrawn)
		e.tellUnknown(n, box, a)
		return
	}
	e.stats.Attached.Add(1)
	e.on(c, onAttached)
	var p [joinedLen]byte
	e.postLater(n, box, kindStage, tagJoined, appendID(appendID(p[:0], c.far), c.farKey))
	e.lendPlaces(n, box)
	e.activateConn(c)
}

// postDrop tells the peer why this node does not have the connection that it calls id.
func (e *Engine) postDrop(n *node, box int, why uint8, id uint32) {
	var p [idLen]byte
	e.postLater(n, box, kindDrop, why, appendID(p[:0], id))
}

// tellUnknown tells the peer that the client of a connection no longer wants it.
func (e *Engine) tellUnknown(n *node, box int, a attached) {
	if a.far != 0 {
		e.postDrop(n, box, tagGone, a.far)
	}
}

// takeDropped is called when the peer does not have a connection.
func (e *Engine) takeDropped(n *node, box int, id uint32, why uint8) {
	c := e.conns[id]
	if c == nil || c.node != n || c.device != box {
		return
	}
	switch {
	case why == tagRefuse && e.on(c, onRefused):
	case why == tagLost:
		e.on(c, onGone)
	default:
		e.on(c, onDropped)
	}
}

// isListening reports whether what the peer says for a connection is taken.
func (c *conn) isListening() bool { return isListening(c.state) }

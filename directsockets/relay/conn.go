package relay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/segment"
	"exnet/fabric"
	"exnet/fabric/atu"
)

// conn is a connection: a segment with a program, and the node where the other one is. It
// belongs to the poll list's owner.
type conn struct {
	id, far uint32 // as it is numbered here, and there; far 0: that is not known yet
	node    *node
	device  int
	class   fabric.Class // of what the program here sends
	state   lifeState    // on changes it
	offer   uint32
	seg     *segment.Segment
	relay   *segment.Relay
	out, in *atu.Region // the rings, for the NIC to read and to write
	remote  atu.NLA     // the far program's ring
	gate    *Gate

	// What is said for the connection has the key that its receiver has given, and a number.
	key, farKey uint32
	said, got   uint64 // messages that were sent, and that have come

	why    uint8 // tagRule or tagRDMA
	idle   int   // polls that found nothing since the last message
	oneWay int   // messages sent since the last one came
	// These say in which list the connection is, and why it is not polled: no step of its life
	// depends on them.
	active  bool // among Engine.active
	touched bool // among Engine.touched
	blocked bool // waits for room in its channel
	due     bool // which there is now

	// While it is suspended, or from the last time that it was.
	cutIn       *node     // the session in which it was cut; nil: it is not suspended
	owes        time.Time // since when sent data may not have arrived; zero: all has
	resumes     uint32    // RESUMEs that were sent
	heardResume uint32    // number of the last one that has come

	epoch uint32 // counts how often everything under way was forgotten: see entry

	gotMessages, gotBytes uint64 // not in the counters yet
	wentOut, wentIn       uint64 // bytes of the program here and of the far one, from the beginning
	shadowOut, shadowIn   uint64 // of these, those by the shadow, as PROMOTE says

	held    []parcel // that have come, the first one before its data
	heldLen int      // bytes in these
	awaits  atu.NLA  // the last fragment of that
	queue   []*entry // taken, and not sent
	joining *entry   // the one of these whose PUT may still get the data of later ones
	told    segment.Mark
	gave    back   // what the peer was told
	events  uint64 // messages and marks that were sent, or are to be
	arrived uint64 // of these, how many a fence has shown to have arrived
	looked  uint64 // of these, those that there were when confirm was called
	before  uint64 // of these, those before the fence under way; 0: none is under way
	asked   int    // packets that it will let pass
	fences  uint32
}

// entry is a message that was taken and not sent, or whose PUT is under way still.
type entry struct {
	c     *conn
	epoch uint32 // c's epoch when the entry was taken: if it has changed, nobody waits for the entry
	msg   segment.Message
	put   putState
	size  int  // bytes of its PUT: its data, and that of some after it
	early bool // the peer waits for its PUT: what it is, and no state
}

// putState is how the data of a message gets to the far program's ring, and how far it has come.
//
//	none, inside, before ──────────────────────────────────── it is sent ─▶ gone
//	open ─┬─────▶ running ─┬─ the PUT ends ────────▶ landed ─ it is sent ─▶ gone
//	      └▶ due ─▶        └─ it is sent, if early ─▶ said ── the PUT ends ─▶ gone
type putState uint8

const (
	putNone    putState = iota // it has no data in the ring
	putInside                  // its data goes with it
	putBefore                  // by the PUT of a message before it
	putOpen                    // by its own PUT, which may still get the data of messages after it
	putDue                     // its PUT is to be started
	putRunning                 // its PUT is under way
	putSaid                    // the same, and the message was sent
	putLanded                  // its PUT has ended
)

// isReady reports whether the message may be sent.
func (en *entry) isReady() bool {
	return en.put != putOpen && en.put != putDue && (en.put != putRunning || en.early)
}

// isMoving reports whether its PUT is under way: the entry is kept until that has ended.
func (en *entry) isMoving() bool { return en.put == putRunning || en.put == putSaid }

// isForgotten reports whether nobody waits for the entry.
func (en *entry) isForgotten() bool { return en.c == nil || en.epoch != en.c.epoch }

// nextStamp returns the stamp of the next message to the peer.
func (c *conn) nextStamp() uint8 { return stampOf(c.farKey, c.said) }

// stampOf is what each message for a connection carries. A message for another connection, or
// out of sequence, has another stamp in 255 of 256 cases. A SELECT has the whole key and number.
func stampOf(key uint32, number uint64) uint8 { return uint8(key) + uint8(number) }

// window is how many messages of a connection are taken and not sent, at most.
const window = 64

// isWaiting reports whether the connection waits for something that activates it.
func (c *conn) isWaiting() bool { return c.blocked || len(c.queue) > 0 }

// armBell asks for the doorbell; true: there is something to do already. Data that pumpConn does
// not take for now does not count: the connection would be polled for ever.
func (c *conn) armBell() bool {
	switch c.state {
	case stateAttached, stateUp, stateEnding, stateYielding:
		return c.relay.Arm(c.relay.Unread(c.gave.consumed, c.gave.freed), c.told)
	case stateOffered:
		c.relay.Arm(false, c.told)
		taken := c.relay.Attached() || c.relay.PeerState() == segment.StateWithdrawn
		m, err := c.relay.Mark() // last: a state that cannot be is an error
		return taken || err != nil || m.Has(segment.MarkClosed)
	}
	return false // the end of the doorbell tells, or the peer does
}

// Offer carries a connection to the node where the server's program is. The Engine takes seg and
// bell, which the client has offered. offer is the broker's number; hardware: the link is the
// reason, not a rule. It waits for the poll list's owner, and fails with ErrTooMany, ErrAttached,
// ErrGone, ErrClosed or segment.ErrSegment.
func (e *Engine) Offer(to fabric.NodeID, offer uint32, hardware bool, seg, bell int) error {
	s, err := segment.Map(seg)
	_ = unix.Close(seg)
	if err != nil {
		_ = unix.Close(bell)
		return err
	}
	if size := s.Config(); size.Slots > MaxSlots || size.Ring > MaxRing {
		err = fmt.Errorf("%w: %d slots, ring of %d bytes", segment.ErrSegment, size.Slots, size.Ring)
	} else { // before this side of the segment is used again
		err = e.doAndWait(func() error { return e.endSuperseded(s.Info()) })
	}
	if err != nil {
		_ = unix.Close(bell)
		s.Retire()
		return err
	}
	c := &conn{offer: offer, seg: s, key: rand.Uint32()}
	if hardware {
		c.why = tagRDMA
	}
	if err := e.equipConn(c, segment.Server, bell); err != nil {
		return err
	}
	if err = e.doAndWait(func() error { return e.beginOffered(c, to) }); err != nil {
		e.discardConn(c)
	}
	return err
}

// doAndWait runs f as doLater does, and waits for it.
func (e *Engine) doAndWait(f func() error) error {
	answer := make(chan error, 1)
	if err := e.doLater(func() { answer <- f() }); err != nil {
		return err
	}
	return <-answer
}

// endSuperseded ends what the client has offered by the same segment before. ErrAttached: the
// server has taken that.
func (e *Engine) endSuperseded(by segment.Info) error {
	before := e.gates.connOf(flow{by.Client, by.Server})
	if before == nil || before.seg.Info().Nonce != by.Nonce || e.on(before, onWithdrawn) {
		return nil
	}
	return ErrAttached
}

// beginOffered begins a connection that a program here offers.
func (e *Engine) beginOffered(c *conn, to fabric.NodeID) error {
	n := e.nodeOf(to)
	switch {
	case n == nil:
		return ErrGone
	case n.conns >= e.cfg.MaxConns:
		return ErrTooMany
	case e.closed.Load() || e.ends:
		return ErrClosed
	}
	if err := e.endSuperseded(c.seg.Info()); err != nil { // two were offered at once
		return err
	}
	e.stats.Opened.Add(1)
	e.on(c, onOffer)
	e.addConn(c, n)
	return nil
}

// equipConn gives a connection its end of the segment, and registers the rings. It takes bell,
// and gives the segment back when it fails.
func (e *Engine) equipConn(c *conn, side segment.Side, bell int) error {
	info := c.seg.Info()
	c.device = int(info.Device())
	var err error
	if c.relay, err = segment.NewRelay(c.seg, side, bell, c.why == tagRDMA); err != nil {
		c.seg.Retire()
		return err
	}
	c.relay.Apart(e.trash.Do)
	out, in := c.relay.Rings()
	vpid := e.boxes[c.device].vpid
	if c.out, err = e.cfg.NIC.ATU().Register(vpid, out, atu.Read); err == nil {
		c.in, err = e.cfg.NIC.ATU().Register(vpid, in, atu.Write)
	}
	if err != nil {
		e.discardConn(c)
		return fmt.Errorf("relay: %w", err)
	}
	local, remote := info.Client, info.Server
	if side == segment.Client {
		local, remote = remote, local
	}
	c.gate = newGate(local, remote, c.relay)
	c.gate.conn = c
	return nil
}

// discardConn gives back what a connection has that nobody was told of.
func (e *Engine) discardConn(c *conn) {
	c.relay.Leave()
	e.releaseMemory(c)
}

// releaseMemory gives the memory back when no transfer runs on it any more.
func (e *Engine) releaseMemory(c *conn) {
	e.regions.Go(func() {
		for _, r := range []*atu.Region{c.out, c.in} {
			if r != nil {
				_ = r.Close() // it is closed once
			}
		}
		c.seg.Retire()
	})
}

// addConn takes a connection into the tables.
func (e *Engine) addConn(c *conn, n *node) {
	for e.nextID++; e.nextID == 0 || e.conns[e.nextID] != nil; e.nextID++ {
	}
	c.id, c.node = e.nextID, n
	n.conns++
	e.conns[c.id] = c
	e.stats.Connections.Add(1)
	e.gates.add(c.gate, func() { _ = e.doLater(func() { e.activateConn(c) }) })
	if err := e.bells.watchBell(c.id, c.relay.Bell()); err != nil {
		e.cfg.Log.Warn("direct sockets: a connection to another host ends", "reason", err)
		e.on(c, onBroken)
		return
	}
	e.activateConn(c)
}

// endConn removes a connection, which is over. how is actLeave, actClose or actReset.
func (e *Engine) endConn(c *conn, how lifeAct) {
	c.node.conns--
	delete(e.conns, c.id)
	e.stats.Connections.Add(^uint64(0))
	e.bells.unwatchBell(c.relay.Bell())
	if how == actLeave {
		c.relay.Leave()
	} else {
		_ = c.relay.Close(how == actReset)
	}
	e.forgetTransfers(c)
	e.gates.remove(c.gate)
	e.releaseMemory(c)
	e.endedOne()
}

// failConn resets a connection at both ends, because one of them has broken the protocol.
func (e *Engine) failConn(c *conn, err error) {
	e.stats.Breaches.Add(1)
	if errors.Is(err, segment.ErrCorrupt) {
		e.cfg.Log.Warn("direct sockets: a program broke the protocol: its connection is reset", "connection", c.name())
	} else {
		e.cfg.Log.Warn("direct sockets: a node broke the protocol: a connection is reset", "node", c.node.id, "connection", c.name(), "reason", err)
	}
	e.tellLost(c)
	e.on(c, onBroken)
}

func (c *conn) name() string {
	i := c.seg.Info()
	return i.Client.String() + " to " + i.Server.String()
}

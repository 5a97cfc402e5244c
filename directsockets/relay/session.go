package relay

import (
	"encoding/binary"
	"fmt"
	"time"

	"exnet/fabric"
	"exnet/fabric/link"
)

// Two Engines have a session with each other: what each knows of the other's connections and
// places. Either may forget it without the other's knowledge, because a link was lost and replaced,
// or a node was faulty. So each Engine numbers its sessions. HELLO, the first message in each
// mailbox, has the sender's number and the number that it expects of the receiver:
//
//	A, session 5               B, session 7
//	HELLO 5, any ────────────▶
//	             ◀──────────── HELLO 7 for 5, then what is said in that mailbox
//	HELLO 5 for 7 ───────────▶ and here
//	forgets B, session 6
//	HELLO 6, any ────────────▶ forgets what there was with session 5
//	             ◀──────────── HELLO 7 for 6
//
// An Engine sends only HELLO until it knows the other's number, and repeats it. A message that
// comes in a mailbox before the HELLO for this session, or by another link, belongs to a session
// that is over: it is dropped, and answered by HELLO.
//
// Connections outlive their session (life.go): they wait, suspended, for the next one, in which
// both nodes say by RESUME which messages have arrived. A node that has started again has none of
// them. HELLO also identifies the sender's Engine, and connections to another Engine end.

// hello begins a session in a mailbox.
type hello struct {
	version uint32 // in which the sender speaks
	own     uint64 // the sender's; later ones have higher numbers
	far     uint64 // the receiver's; 0: any
	born    uint64 // of the sender's Engine: another number, another Engine
}

const (
	helloVersionOff = 0  // uint32
	helloOwnOff     = 4  // uint64
	helloFarOff     = 12 // uint64
	helloBornOff    = 20 // uint64
	helloLen        = 28
)

func (h hello) append(p []byte) []byte {
	p = appendID(p, h.version)
	for _, n := range []uint64{h.own, h.far, h.born} {
		p = binary.LittleEndian.AppendUint64(p, n)
	}
	return p
}

func parseHello(p []byte) (h hello, err error) {
	if h.version, err = parseID(p[:min(len(p), idLen)]); err != nil { // it says how long the rest is
		return h, err
	}
	if h.version < uint32(Versions.Oldest) || h.version > uint32(Versions.Newest) {
		return h, fmt.Errorf("%w: version %d of what carries direct sockets between hosts, this is %v: update one of them", errPeer, h.version, Versions)
	}
	if err := checkLength(p, helloLen); err != nil {
		return h, err
	}
	number := func(off int) uint64 { return binary.LittleEndian.Uint64(p[off:]) }
	h.own, h.far, h.born = number(helloOwnOff), number(helloFarOff), number(helloBornOff)
	if h.own == 0 {
		return h, fmt.Errorf("%w: session 0", errPeer)
	}
	return h, nil
}

// nodeOf returns the linked node with an ID; nil: it is not linked.
func (e *Engine) nodeOf(id fabric.NodeID) *node {
	switch n := e.nodes[id]; {
	case n == nil && e.portOf(id) != nil:
		return e.beginSession(id)
	case n == nil || !e.findLink(n):
		return nil
	default:
		return n
	}
}

// beginSession begins a session with a node. Its number is higher than those that this Engine,
// and those before it on this node, have had.
func (e *Engine) beginSession(id fabric.NodeID) *node {
	e.session = max(e.session+1, uint64(time.Now().UnixNano()))
	n := &node{id: id, own: e.session, port: e.portOf(id), ends: onLost}
	e.nodes[id] = n
	return n
}

// portOf returns the port of the link to a node; each link has its own. Nil: there is none.
func (e *Engine) portOf(id fabric.NodeID) link.Port { return e.cfg.NIC.Routes().Port(id) }

// PeerUp says that there is a link to a node: connections that have waited for one go on.
func (e *Engine) PeerUp(id fabric.NodeID) {
	_ = e.doLater(func() { // or all are over
		if n := e.nodes[id]; n != nil {
			e.findLink(n)
		}
	})
}

// findLink reports whether there is a link for a session. If it has waited for one, it begins.
func (e *Engine) findLink(n *node) bool {
	if n.port != nil {
		return true
	}
	if n.port = e.portOf(n.id); n.port == nil {
		return false
	}
	for _, c := range e.conns {
		if c.node == n {
			e.greetConn(c)
		}
	}
	return true
}

// greetConn has a connection go on in its session: HELLO goes to its mailbox first.
func (e *Engine) greetConn(c *conn) {
	if c.node.port != nil {
		e.markForFlush(e.channelOf(c.node, c.device))
		e.activateConn(c)
	}
}

// PeerDown says that a link to a node is down: connections that went by it wait for the next one,
// which may be there already.
func (e *Engine) PeerDown(id fabric.NodeID) { e.partFrom(id, func(*node) {}) }

// PeerLeft says that a node has left the fabric: connections that went by its last link are reset.
func (e *Engine) PeerLeft(id fabric.NodeID) { e.partFrom(id, e.endBereaved) }

// partFrom ends the session of a link that is down, after then.
func (e *Engine) partFrom(id fabric.NodeID, then func(*node)) {
	_ = e.doLater(func() { // or all are over anyway
		n := e.nodes[id]
		if n == nil || n.port != nil && n.port == e.portOf(id) { // there is a link
			return
		}
		if then(n); n.port != nil {
			e.loseLink(n)
		}
	})
}

// loseSession notes that a session is over; forgetLost cleans up.
func (e *Engine) loseSession(n *node) {
	if !n.down {
		n.down = true
		e.lost = append(e.lost, n)
	}
}

// loseLink is lose of a session whose link is down.
func (e *Engine) loseLink(n *node) {
	n.spoke = false // nothing that is said by that link comes anywhere
	e.loseSession(n)
}

// forgetLost ends the sessions that are over, and tells the peers that can be told.
func (e *Engine) forgetLost() {
	for len(e.lost) > 0 {
		n := e.lost[0]
		e.lost = e.lost[1:]
		if e.nodes[n.id] != n {
			continue
		}
		next, same := e.beginSession(n.id), n.port == e.portOf(n.id)
		if same && !n.spoke { // that link takes nothing: lookAgain tries it again
			next.port = nil
		}
		e.replaceSession(n, next)
		switch {
		case same && n.spoke:
			e.followSession(n, next)
		case next.conns == 0:
			delete(e.nodes, n.id)
		}
	}
}

// replaceSession ends a session. Its connections that have not ended wait for RESUME in the next
// one.
func (e *Engine) replaceSession(n, next *node) {
	n.down, next.born = true, n.born
	for _, c := range e.conns {
		if n.conns == 0 {
			break
		}
		if c.node != n {
			continue
		}
		if e.on(c, n.ends); c.state != stateOver {
			n.conns--
			next.conns++
			c.node = next
			e.greetConn(c)
		}
	}
	e.leaveNode(n)
}

// endBereaved ends the connections of a session whose peer's Engine has ended.
func (e *Engine) endBereaved(n *node) {
	for _, c := range e.conns {
		if c.node == n {
			e.on(c, onGone)
		}
	}
}

// takeLeave tells a peer that this Engine ends. left: it has had all connections go back to TCP
// before. It says so in each mailbox after what it has said there.
func (e *Engine) takeLeave(n *node, left bool) {
	for _, ch := range n.channels[:Devices] {
		if ch == nil || !ch.met || n.down || n.port == nil {
			continue
		}
		var p [1]byte
		if left && len(ch.order) == 0 {
			p[0] = overLeft
		}
		if e.sendVELO(ch, 0, kindStage, tagOver, p[:]) == nil {
			e.boxes[ch.box].velo.Interrupt(n.id, e.boxes[ch.box].vpid)
		}
	}
}

// noteParted is called when a peer has ended that has had its connections go back to TCP: what
// there is for a mailbox is what it did not know of.
func (e *Engine) noteParted(ch *channel) {
	for _, c := range e.conns {
		if c.node == ch.node && c.device == ch.box {
			e.on(c, onDropped)
		}
	}
}

// followSession lets a session follow another one over the same link: HELLO goes to each mailbox
// that the former one had used, and the brokers' messages go on.
func (e *Engine) followSession(old, n *node) {
	for box, ch := range old.channels[:Devices] {
		if ch != nil {
			e.markForFlush(e.channelOf(n, box))
		}
	}
	n.notes = old.notes
	if ch := old.channels[Devices]; ch != nil {
		ch.node, n.channels[Devices] = n, ch
	}
	for _, p := range old.later {
		if p.box == Devices {
			n.later = append(n.later, p)
		}
	}
}

// sendHello says HELLO in a mailbox, before anything else. False: there is no credit, or the peer's
// number is not known yet.
func (e *Engine) sendHello(ch *channel) bool {
	n := ch.node
	if ch.box == Devices || ch.greeted && ch.greetedFar == n.far {
		return ch.box == Devices || n.far != 0
	}
	var p [helloLen]byte
	if e.sendVELO(ch, 0, kindStage, tagHello, hello{e.versionFor(n.id), n.own, n.far, e.born}.append(p[:0])) != nil {
		return false
	}
	if n.port != nil && n.port != e.portOf(n.id) { // it may have gone by another link
		e.loseLink(n)
		return false
	}
	if ch.greeted, ch.greetedFar = true, n.far; n.far == 0 {
		e.watchSuspended()
	}
	return n.far != 0
}

// greetAgain has HELLO be said again in a mailbox.
func (e *Engine) greetAgain(ch *channel) {
	ch.greeted = false
	e.markForFlush(ch)
}

// greetUnanswered says HELLO again to nodes that have not answered: a node that had not noticed the
// end of the former link may have taken HELLO for a message of the former session.
func (e *Engine) greetUnanswered() {
	for _, n := range e.nodes {
		for _, ch := range n.channels[:Devices] {
			if n.far == 0 && n.port != nil && ch != nil && ch.greeted {
				e.greetAgain(ch)
			}
		}
	}
}

// isCurrent reports whether a message is of the session that HELLO has begun in its mailbox. If
// not, the peer is told so, once.
func (e *Engine) isCurrent(ch *channel, flow uint16) bool {
	if ch.met && ch.flow == flow {
		return true
	}
	e.stats.Stale.Add(1)
	if ch.answered != int(flow)+1 {
		ch.answered = int(flow) + 1
		e.greetAgain(ch)
	}
	return false
}

// takeHello takes HELLO.
func (e *Engine) takeHello(ch *channel, flow uint16, p []byte) {
	n := ch.node
	h, err := parseHello(p)
	if err != nil {
		e.endSession(n, err)
		return
	}
	n.spoke = true
	switch {
	case h.own < n.far: // it was said before one that has come in another mailbox
		e.stats.Stale.Add(1)
		return
	case n.born != 0 && n.born != h.born: // another Engine is there now
		e.endBereaved(n)
	}
	n.born = h.born
	switch {
	case n.far == 0:
		n.far = h.own
	case h.own > n.far || h.far == n.own && ch.met && ch.flow != flow: // it has forgotten, or comes by another link
		next := &node{id: n.id, own: n.own, far: h.own, port: e.portOf(n.id), spoke: true, ends: onLost}
		e.nodes[n.id] = next
		e.replaceSession(n, next)
		e.followSession(n, next)
		n, ch = next, e.channelOf(next, ch.box)
	}
	if h.far != n.own {
		e.greetAgain(ch)
	} else {
		ch.met, ch.flow = true, flow
	}
	for _, other := range n.channels { // what has waited for the number
		if other != nil {
			e.markForFlush(other)
		}
	}
}

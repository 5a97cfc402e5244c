package relay

import (
	"encoding/binary"
	"fmt"
	"time"

	"exnet/fabric"
	"exnet/fabric/link"
)

// Two Engines have a session with each other: what one knows of the other's connections and
// places. Either may forget it while the other does not know: a link was lost and another one is
// there, a node was wrong. So each Engine numbers its own, and HELLO, the first message in each
// mailbox, tells the number and which one of the other is meant:
//
//	A, session 5               B, session 7
//	HELLO 5, any ────────────▶
//	             ◀──────────── HELLO 7 for 5, then what is said in that mailbox
//	HELLO 5 for 7 ───────────▶ and here
//	forgets B, session 6
//	HELLO 6, any ────────────▶ forgets what there was with session 5
//	             ◀──────────── HELLO 7 for 6
//
// Nothing else is said before the other's number is known. What comes in a mailbox before HELLO
// for the session here, or by another link than that, is of a session that is over: it is thrown
// away, and HELLO says so.

// hello begins a session in a mailbox.
type hello struct {
	version uint32
	own     uint64 // the sender's; later ones have higher numbers
	far     uint64 // the receiver's; 0: any
}

const (
	helloVersionOff = 0  // uint32
	helloOwnOff     = 4  // uint64
	helloFarOff     = 12 // uint64
	helloLen        = 20
)

func (h hello) append(p []byte) []byte {
	p = appendID(p, h.version)
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(p, h.own), h.far)
}

func parseHello(p []byte) (h hello, err error) {
	if err := want(p, helloLen); err != nil {
		return h, err
	}
	h.version = binary.LittleEndian.Uint32(p[helloVersionOff:])
	h.own, h.far = binary.LittleEndian.Uint64(p[helloOwnOff:]), binary.LittleEndian.Uint64(p[helloFarOff:])
	if h.version != Version {
		return h, fmt.Errorf("%w: version %d of what carries direct sockets between hosts, this is %d: update one of them", errPeer, h.version, Version)
	}
	if h.own == 0 {
		return h, fmt.Errorf("%w: session 0", errPeer)
	}
	return h, nil
}

// peer is the node with an ID.
func (e *Engine) peer(id fabric.NodeID) *node {
	n := e.nodes[id]
	if n == nil {
		n = e.begin(id)
	}
	return n
}

// begin begins a session with a node. Its number is higher than those that this Engine, and those
// before it on this node, have had.
func (e *Engine) begin(id fabric.NodeID) *node {
	e.session = max(e.session+1, uint64(time.Now().UnixNano()))
	n := &node{id: id, own: e.session, port: e.port(id)}
	e.nodes[id] = n
	return n
}

// port is the way to a node: each link has its own. Nil: there is none.
func (e *Engine) port(id fabric.NodeID) link.Port { return e.cfg.NIC.Routes().Port(id) }

// PeerDown says that a link to a node is down: connections that went by it are reset. There may be
// another one already.
func (e *Engine) PeerDown(id fabric.NodeID) {
	_ = e.do(func() { // or all are reset anyway
		if n := e.nodes[id]; n != nil && (n.port == nil || n.port != e.port(id)) {
			n.cut = true
			e.lose(n)
		}
	})
}

// lose notes that a session is over. forget does what follows.
func (e *Engine) lose(n *node) {
	if !n.down {
		n.down = true
		e.lost = append(e.lost, n)
	}
}

// forget resets the connections of sessions that are over, and tells the peers of those that can be
// told.
func (e *Engine) forget() {
	for len(e.lost) > 0 {
		n := e.lost[0]
		e.lost = e.lost[1:]
		e.drop(n)
		if e.nodes[n.id] != n {
			continue
		}
		delete(e.nodes, n.id)
		if !n.cut && n.spoke && n.port != nil && n.port == e.port(n.id) {
			e.succeed(n, e.begin(n.id))
		}
	}
}

// drop resets the connections of a session.
func (e *Engine) drop(n *node) {
	n.down = true
	for _, c := range e.conns {
		if n.conns == 0 {
			break
		}
		if c.node == n {
			e.stats.Lost.Add(1)
			e.end(c, true)
		}
	}
	e.leaveNode(n)
}

// succeed has a session follow another one by the same link: HELLO goes to where that one had said
// something, and what brokers say goes on.
func (e *Engine) succeed(old, n *node) {
	for box, ch := range old.channels[:Devices] {
		if ch != nil {
			e.touch(e.channel(n, box))
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

// greet says HELLO in a mailbox, before anything else. False: there is no credit, or the peer's
// number is not known yet.
func (e *Engine) greet(ch *channel) bool {
	n := ch.node
	if ch.box == Devices || ch.greeted && ch.greetedFar == n.far {
		return ch.box == Devices || n.far != 0
	}
	var p [helloLen]byte
	if e.sendVELO(ch, 0, kindStage, tagHello, hello{Version, n.own, n.far}.append(p[:0])) != nil {
		return false
	}
	ch.greeted, ch.greetedFar = true, n.far
	return n.far != 0
}

// greetAgain has HELLO be said again in a mailbox.
func (e *Engine) greetAgain(ch *channel) {
	ch.greeted = false
	e.touch(ch)
}

// current reports whether a message is of the session that HELLO has begun in its mailbox. If not,
// the peer is told so, once.
func (e *Engine) current(ch *channel, flow uint16) bool {
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

// meets takes HELLO.
func (e *Engine) meets(ch *channel, flow uint16, p []byte) {
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
	case n.far == 0:
		n.far = h.own
	case h.own > n.far || h.far == n.own && ch.met && ch.flow != flow: // it has forgotten, or comes by another link
		e.drop(n)
		next := &node{id: n.id, own: n.own, far: h.own, port: e.port(n.id), spoke: true}
		e.nodes[n.id] = next
		e.succeed(n, next)
		n, ch = next, e.channel(next, ch.box)
	}
	if h.far != n.own {
		e.greetAgain(ch)
	} else {
		ch.met, ch.flow = true, flow
	}
	for _, other := range n.channels { // what has waited for the number
		if other != nil {
			e.touch(other)
		}
	}
}

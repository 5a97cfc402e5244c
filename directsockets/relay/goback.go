package relay

import (
	"context"

	"exnet/directsockets/segment"
)

// partVersion is the first version with PART.
const partVersion = 6

// GoBack has the programs of all connections go back to TCP, and waits until they have, or ctx
// ends. What they have sent in the segments is delivered; what follows goes on the shadow (SPEC.md,
// 5.9). No new connection is carried. Call it before Run's context is cancelled, while the links
// are up: what Run finds then it resets. So it does with connections to nodes that know no PART.
func (e *Engine) GoBack(ctx context.Context) {
	gone := make(chan struct{})
	if e.doLater(func() {
		e.ends, e.gone = true, gone
		for _, c := range e.conns {
			switch {
			case c.state == stateOffered:
				e.declineConn(c, tagGone)
			case c.state == stateNew, c.state == stateCalling, c.state != stateLeaving && !e.canPart(c):
				e.on(c, onBroken)
			default:
				e.activateConn(c)
			}
		}
		e.endedOne()
	}) != nil {
		return // all are over
	}
	select {
	case <-gone:
	case <-ctx.Done():
	}
}

// canPart reports whether the node at the other end knows PART.
func (e *Engine) canPart(c *conn) bool { return e.versionFor(c.node.id) >= partVersion }

// endedOne tells who waits for the end of all connections.
func (e *Engine) endedOne() {
	if e.gone != nil && len(e.conns) == 0 {
		close(e.gone)
		e.gone = nil
	}
}

// sendPart says PART, the last message for a connection that goes back to TCP, once nothing more
// of the program here is to be carried.
func (e *Engine) sendPart(c *conn) {
	if !c.isParting() {
		return
	}
	flags, done := c.relay.Part()
	if !done { // the program is about to look
		return
	}
	m := c.told
	m.Flags |= flags | segment.MarkClosed
	var p [markLen]byte
	if e.sendMessage(c, kindMark, appendPart(p[:0], m)) {
		c.events++
		e.on(c, onParted)
	}
}

// sendBye says that all that the far program has sent has come.
func (e *Engine) sendBye(c *conn) {
	var id [idLen]byte
	e.postLater(c.node, c.device, kindBye, 0, appendID(id[:0], c.far))
}

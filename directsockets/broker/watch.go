package broker

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"exnet/directsockets/broker/probe"
	"exnet/directsockets/broker/wire"
)

// Times of the watch over the networks that carry the shadows of a Group.
const (
	// watchTime is the time between two checks of a connection.
	watchTime = time.Second
	// watchCost is how much of a round each connection gets: with more than 2,000 a round takes
	// longer than watchTime.
	watchCost  = 500 * time.Microsecond
	watchBatch = 32
	// watchMissed is after how many unanswered questions in a row the network counts as cut.
	watchMissed = 3
)

// half is one end of a connection of a Group.
type half struct {
	s             *Server
	local, remote netip.AddrPort
	socket        shadow
	pid           int   // of the client that had, or took, the segment
	owner         owner // of that client
}

// watched is a direct connection between two members of a Group, whose network is watched.
type watched struct {
	ends  [2]half // 0: the client's; s nil: not known yet
	nonce wire.Nonce
	first [2]uint32

	// These belong to the watcher.
	asked    bool
	segments uint32 // that had come when it was asked
	missed   int
}

// halfUp says that an end of a connection has its segment. It may be called with a Server's mu.
func (g *Group) halfUp(o *offer, side int, h half) {
	if g == nil || o.pair == nil || h.socket.cookie == 0 {
		return
	}
	g.watching.Lock()
	defer g.watching.Unlock()
	w := g.watched[o.pair.client]
	if w == nil || w.nonce != o.nonce {
		w = &watched{nonce: o.nonce, first: o.pair.first}
		g.watched[o.pair.client] = w
	}
	w.ends[side] = h
}

// forgetWatched ends the watch over a connection.
func (g *Group) forgetWatched(cookie uint64, w *watched) {
	g.watching.Lock()
	defer g.watching.Unlock()
	if g.watched[cookie] == w {
		delete(g.watched, cookie)
	}
}

// Watched is how many connections between the members are watched.
func (g *Group) Watched() int {
	g.watching.Lock()
	defer g.watching.Unlock()
	return len(g.watched)
}

// Watch asks for a sign of life of each direct connection between members, over the network that
// carries its shadow (package probe), until ctx ends. Where none comes, the connection goes back to
// TCP.
func (g *Group) Watch(ctx context.Context) {
	w := watcher{g: g, probers: make(map[*Server]*prober), cutter: newCutter(procDir)}
	defer w.closeOthers(nil)
	for sleepFor(ctx, watchTime) {
		w.lookAtAll(ctx)
	}
}

// sleepFor reports whether ctx still stands.
func sleepFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watcher is Watch's.
type watcher struct {
	g       *Group
	probers map[*Server]*prober
	cutter  *cutter
}

// prober is a member's.
type prober struct {
	*probe.Prober
	used bool // in this round
}

// lookAtAll looks at all connections, one after the other, slowly enough.
func (w *watcher) lookAtAll(ctx context.Context) {
	w.g.watching.Lock()
	list := make(map[uint64]*watched, len(w.g.watched))
	for cookie, c := range w.g.watched {
		list[cookie] = c
	}
	w.g.watching.Unlock()
	var cut, gone []*watched
	begin, n := time.Now(), 0
	for cookie, c := range list {
		switch w.judgeAnswer(c) {
		case netCut:
			cut = append(cut, c)
			w.g.forgetWatched(cookie, c)
		case netGone:
			if !w.endsCleanly(c) {
				gone = append(gone, c)
			}
			w.g.forgetWatched(cookie, c)
		}
		if n++; n%watchBatch == 0 && !sleepFor(ctx, time.Duration(n)*watchCost-time.Since(begin)) {
			return
		}
	}
	w.cutter.beginRound()
	w.cutter.cutOff(cut)
	w.cutter.markSegments(gone) // those that have ended well have no segment any more
	w.closeOthers(func(p *prober) bool { return p.used })
}

// What look has found.
type finding uint8

const (
	netPasses finding = iota // as far as is known
	netCut
	netGone // the client's socket
)

// judgeAnswer judges the last question's answer, and asks again.
func (w *watcher) judgeAnswer(c *watched) finding {
	w.g.watching.Lock()
	at := c.ends[0]
	w.g.watching.Unlock()
	if at.s == nil { // the client's broker has not been told yet
		if w.isStanding(c, 1, tcpStates) {
			return netPasses
		}
		return netGone
	}
	l, same, err := at.s.diag.lifeOf(at.socket, at.local, at.remote)
	switch {
	case errors.Is(err, wire.ErrClosed): // the namespace is left
		return netGone
	case err != nil:
		c.asked = false
		return netPasses
	case !same:
		return netGone
	case !l.established: // it ends, and TCP sees to that
		c.asked = false
		return netPasses
	}
	switch {
	case !c.asked:
	case l.segments != c.segments:
		c.missed = 0
	default:
		if c.missed++; c.missed >= watchMissed {
			return netCut
		}
	}
	c.asked, c.segments = true, l.segments
	p := w.proberOf(at.s)
	if p == nil {
		c.asked = false // nothing is known of the network
		return netPasses
	}
	// An error is an answer, too: the network does not take it.
	_ = p.Ask(probe.Ask{Local: at.local, Remote: at.remote, Interface: max(at.socket.ifindex, at.socket.zone),
		Unacknowledged: c.first[0] + uint32(l.acked) - 1, Expected: c.first[1] + uint32(l.received)}) // the SYN counts as acknowledged
	return netPasses
}

// endsCleanly reports whether a connection whose client's socket has gone ends as its programs
// want: the server's has an end of file, or waits for one.
func (w *watcher) endsCleanly(c *watched) bool {
	return w.isStanding(c, 1, tcpStates&^(1<<tcpEstablished))
}

// isStanding reports whether an end is there, in one of some states.
func (w *watcher) isStanding(c *watched, side int, states uint32) bool {
	w.g.watching.Lock()
	at := c.ends[side]
	w.g.watching.Unlock()
	if at.s == nil {
		return false
	}
	state, same, err := at.s.diag.stateOf(at.socket, at.local, at.remote)
	return same && err == nil && 1<<state&states != 0
}

// proberOf is a member's; nil: there is none.
func (w *watcher) proberOf(s *Server) *prober {
	p := w.probers[s]
	if p == nil {
		p = new(prober)
		_ = s.cfg.In(func() (err error) { p.Prober, err = probe.New(); return err })
		if p.Prober == nil {
			return nil
		}
		w.probers[s] = p
	}
	p.used = true
	return p
}

// closeOthers closes those that are not to be kept.
func (w *watcher) closeOthers(keep func(*prober) bool) {
	for s, p := range w.probers {
		if keep != nil && keep(p) {
			p.used = false
			continue
		}
		p.Close()
		delete(w.probers, s)
	}
}

// logToClient has the client's log know, and counts it.
func (c *watched) logToClient(text string) {
	if s := c.ends[0].s; s != nil {
		s.count.NetworksCut.Add(1)
		if s.mayTell() {
			s.cfg.Log.Warn(text, "client", c.ends[0].local, "server", c.ends[0].remote)
		}
	}
}

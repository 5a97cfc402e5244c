package ports

import "exnet/fabric/link/attach/wire"

// pairState is where a port of ours and one of another host are in their life as a pair. SPEC.md
// (9) has the table as well. Only farPair.handleEvent changes the state; the server's lock
// guards it.
type pairState uint8

const (
	// pairAsking: the pair has no flow. Our port may have asked for the far one.
	pairAsking pairState = iota
	// pairHeard: our port has the flow from the far one (out). Requests of that are carried out.
	pairHeard
	// pairHeardLast: and the far port has ended. Its last requests are still carried out.
	pairHeardLast
	// pairPaired: our port has both flows. pump or the carrier send what it writes (in).
	pairPaired
	// pairPairedLast: as pairHeardLast, of pairPaired.
	pairPairedLast
	// pairEnding: a port has ended. What our port had written before is still sent.
	pairEnding
	// pairEndingLast: as pairEnding, of pairPairedLast. The far node refuses it.
	pairEndingLast
	// pairCut: a port has ended, and nothing more is sent.
	pairCut
	// pairOver: the end. Ports with these VPIDs can be paired again.
	pairOver

	pairStates
)

func (s pairState) String() string {
	return [...]string{"asking", "heard", "heard-last", "paired", "paired-last", "ending", "ending-last", "cut", "over"}[s]
}

// hears returns whether the far port may send requests.
func (s pairState) hears() bool { return s == pairHeard || s == pairPaired }

// begins returns whether the far port is the one that asks or is asked now.
func (s pairState) begins() bool { return s == pairAsking || s.hears() }

// lasts returns whether our port has not heard of an end.
func (s pairState) lasts() bool { return s <= pairPairedLast }

// tells returns whether the far node is told of the end by this step. It needs not be where it has
// said itself that its port has ended.
func (s pairState) tells(ev pairEvent, to pairState) bool {
	lives := s.begins() || s == pairEnding
	return lives && ev != pairRefused && ev != pairGone && (to == pairOver || ev == pairCrowded)
}

// pairEvent is what changes the state of a pair.
type pairEvent uint8

const (
	pairOpened  pairEvent = iota // our port was given the flow from the far one
	pairGranted                  // and the flow to it
	pairRefused                  // the far node says that there is no such port
	pairFailed                   // it says nothing, or our port could not be given a flow
	pairGone                     // the far port has ended
	pairParted                   // our port has ended, the far port's last request was carried out, or its node is down or breaks the rules
	pairLost                     // the far port takes nothing more
	pairCrowded                  // too many pairs of the user are ending
	pairSent                     // pump has ended, or the carrier has left the pair

	pairEvents
)

func (e pairEvent) String() string {
	return [...]string{"opened", "granted", "refused", "failed", "gone", "parted", "lost", "crowded", "sent"}[e]
}

// pairNext has the next state by state and event. An event without one (0) changes nothing: it
// comes a second time, or too late.
var pairNext = [pairStates][pairEvents]pairState{
	pairAsking:     {pairOpened: pairHeard, pairRefused: pairOver, pairFailed: pairOver, pairGone: pairOver, pairParted: pairOver},
	pairHeard:      {pairGranted: pairPaired, pairGone: pairHeardLast, pairParted: pairOver},
	pairHeardLast:  {pairParted: pairOver},
	pairPaired:     {pairGone: pairPairedLast, pairParted: pairEnding, pairSent: pairOver},
	pairPairedLast: {pairParted: pairEndingLast, pairSent: pairOver},
	pairEnding:     {pairLost: pairCut, pairCrowded: pairCut, pairSent: pairOver},
	pairEndingLast: {pairLost: pairCut, pairCrowded: pairCut, pairSent: pairOver},
	pairCut:        {pairSent: pairOver},
}

// handleEvent does what an event does to the pair. The server's lock is held.
//
// +checklocksignore: the caller has the lock by another name
func (f *farPair) handleEvent(ev pairEvent) {
	from := f.state
	to := pairNext[from][ev]
	if to == pairAsking {
		return
	}
	if step := f.node.server.cfg.stepping; step != nil {
		step(f, ev)
	}
	f.state = to
	if from.lasts() && !to.lasts() {
		close(f.ended)
		f.linger(to, 1)
		if f.ours.pairs[f.addr()] == party(f) { // before it can hear of the next one
			f.ours.gone(f.addr())
		}
	}
	if from.tells(ev, to) && !f.node.down {
		f.node.postLocked(wire.Message{Op: wire.OpFarGone, Unit: f.pair.unit, Addr: f.addr(), A: uint64(f.pair.ours)}, false)
	}
	switch to {
	case pairEnding, pairEndingLast:
		if f.stopSending(); f.crowded() {
			f.handleEvent(pairCrowded)
		}
	case pairCut:
		close(f.cut)
		f.stopSending()
	case pairOver:
		f.linger(from, -1)
		f.release()
	}
}

// stopSending has pump or the carrier look at the state.
//
// +checklocksignore: as handleEvent
func (f *farPair) stopSending() {
	if f.carried {
		f.node.server.carrier.pairEnds()
	} else {
		f.in.close()
	}
}

// linger counts a pair that has ended and still sends, or with -1 does so no more.
//
// +checklocksignore: as handleEvent
func (f *farPair) linger(s pairState, n int) {
	if s.lasts() || s == pairOver {
		return
	}
	all, who := f.node.server, f.ours.account
	all.lingersAll += n
	if all.lingers[who] += n; all.lingers[who] == 0 {
		delete(all.lingers, who)
	}
}

// crowded returns whether more pairs of the user, or of all, linger than may.
//
// +checklocksignore: as handleEvent
func (f *farPair) crowded() bool {
	s, who := f.node.server, f.ours.account
	return s.lingersAll > farLingersAll || !who.Unlimited() && s.lingers[who] > farLingers
}

// release frees what the pair has, and answers who has waited for that.
//
// +checklocksignore: as handleEvent
func (f *farPair) release() {
	close(f.overDone)
	delete(f.node.pairs, f.pair)
	delete(f.node.streams, f.stream)
	if f.in != nil {
		f.in.close()
	}
	if f.next != nil && !f.node.down {
		f.node.postLocked(f.node.server.admitFarLocked(f.node, *f.next), false)
	}
}

package directsockets

import "exnet/internal/steps"

// rxEvent is what moves the inbound direction from one state to another (SPEC.md, 9.4).
type rxEvent uint8

const (
	rxSegment  rxEvent = iota // there is a segment: offered, or attached
	rxRefused                 // the offer was not taken
	rxPromote                 // PROMOTE has come
	rxReached                 // what PROMOTE said has come on the shadow
	rxCut                     // the shadow has ended before
	rxShutdown                // SHUTDOWN was consumed
	rxDemote                  // DEMOTE was consumed
	rxPause                   // PAUSE was consumed
	rxGone                    // the queue is read, and the peer is gone
	rxReset                   // the queue is read, and the peer has set RESET, or its node is lost
	rxFallBack                // this side falls back
	rxQueue                   // the peer had ended the direction, or is gone, without RETURNED
	rxReturned                // the peer has set RETURNED
	rxHeld                    // the shadow has given all that the peer left, or holds it
	rxEnded                   // the shadow has ended, and has not given all of that
	rxRead                    // the rest of it is read
)

func (e rxEvent) String() string {
	return [...]string{"segment", "refused", "promote", "reached", "cut", "shutdown", "demote", "pause", "gone", "reset",
		"fallback", "queue", "returned", "held", "ended", "read"}[e]
}

func (p rxPhase) String() string {
	return [...]string{"tcp", "shadow", "catch-up", "direct", "fallen-back", "returning", "rest", "back", "over", "before"}[p]
}

// rxBefore stands for the state before rxFallBack.
const rxBefore = rxOver + 1

// rxSteps are all steps of the inbound direction, but for endInbound.
var rxSteps = steps.New(map[rxPhase]map[rxEvent]rxPhase{
	rxTCP: {
		rxSegment:  rxShadow,
		rxFallBack: rxBack,
	},
	rxShadow: {
		rxRefused:  rxTCP,
		rxPromote:  rxCatchUp,
		rxGone:     rxBack,
		rxReset:    rxOver,
		rxFallBack: rxFallenBack,
	},
	rxCatchUp: {
		rxReached:  rxDirect,
		rxCut:      rxOver,
		rxFallBack: rxFallenBack,
	},
	rxDirect: {
		rxShutdown: rxOver,
		rxDemote:   rxBack,
		rxPause:    rxShadow,
		rxGone:     rxBack,
		rxReset:    rxOver,
		rxFallBack: rxFallenBack,
	},
	rxFallenBack: {
		rxQueue:    rxBefore,
		rxReturned: rxReturning,
		rxHeld:     rxBack,
	},
	rxReturning: {
		rxHeld:  rxBack,
		rxEnded: rxRest,
		rxCut:   rxOver,
	},
	rxRest: {
		rxRead: rxBack,
	},
})

// onRX moves the inbound direction. A step that there is not ends the connection.
func (c *Conn) onRX(what rxEvent) {
	r := &c.rx
	next, ok := rxSteps.Next(r.phase, what)
	switch {
	case !ok:
		c.endOnBreach()
		return
	case next == rxBefore:
		next = r.resumed
	case what == rxFallBack:
		r.resumed = r.phase
	}
	r.phase, r.direct = next, next == rxDirect
}

// endInbound ends the inbound direction with err, for good.
func (c *Conn) endInbound(err error) {
	r := &c.rx
	r.phase, r.err, r.direct = rxOver, err, false
	c.unwatchRX()
}

// txEvent is what moves the outbound direction from one state to another (SPEC.md, 9.5).
type txEvent uint8

const (
	txPromote    txEvent = iota // PROMOTE was sent
	txFallenBack                // FALLEN_BACK was found; RETURNED is set
	txLeave                     // the program demotes or shuts down, or the peer is gone
	txDemote                    // DEMOTE was sent, and stands
	txPause                     // PAUSE was sent, and stands
	txResume                    // the peer has consumed PAUSE, and has not fallen back
	txShutdown                  // SHUTDOWN was sent, and stands
	txGone                      // the peer is gone
	txReset                     // the peer has set RESET, or its node is lost
	txWritten                   // all that the peer did not take is on the shadow
	txEnded                     // the shadow was shut down, or has failed, before
)

func (e txEvent) String() string {
	return [...]string{"promote", "fallen-back", "leave", "demote", "pause", "resume", "shutdown", "gone", "reset", "written", "ended"}[e]
}

func (p txPhase) String() string {
	return [...]string{"shadow", "paused", "direct", "returning", "back", "over"}[p]
}

// txSteps are all steps of the outbound direction, but for breaches and errors of the shadow.
var txSteps = steps.New(map[txPhase]map[txEvent]txPhase{
	txShadow: {
		txPromote:    txDirect,
		txFallenBack: txBack,
		txLeave:      txBack,
	},
	txPaused: {
		txResume:     txShadow,
		txFallenBack: txBack,
		txLeave:      txBack,
	},
	txDirect: {
		txFallenBack: txReturning,
		txDemote:     txBack,
		txPause:      txPaused,
		txShutdown:   txOver,
		txGone:       txBack,
		txReset:      txOver,
	},
	txReturning: {
		txWritten: txBack,
		txEnded:   txOver,
	},
})

// onTX moves the outbound direction. A step that there is not ends the connection.
func (c *Conn) onTX(what txEvent) {
	t := &c.tx
	next, ok := txSteps.Next(t.phase, what)
	if !ok {
		c.endOnBreach()
		return
	}
	t.phase, t.direct = next, next == txDirect
}

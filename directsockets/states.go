package directsockets

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
	rxGone                    // the queue is read, and the peer is gone
	rxReset                   // the queue is read, and the peer has set RESET, or its node is lost
	rxFallBack                // this side falls back
	rxQueue                   // the peer had ended the direction, or is gone, without RETURNED
	rxReturned                // the peer has set RETURNED
	rxHeld                    // the shadow has given all that the peer left, or holds it
	rxEnded                   // the shadow has ended, and has not given all of that
	rxRead                    // the rest of it is read
	rxEvents
)

func (e rxEvent) String() string {
	return [...]string{"segment", "refused", "promote", "reached", "cut", "shutdown", "demote", "gone", "reset",
		"fallback", "queue", "returned", "held", "ended", "read"}[e]
}

func (p rxPhase) String() string {
	return [...]string{"tcp", "shadow", "catch-up", "direct", "fallen-back", "returning", "rest", "back", "over"}[p]
}

// rxStep is an event in a state.
type rxStep struct {
	from rxPhase
	what rxEvent
}

// rxBefore stands for the state before rxFallBack.
const rxBefore = rxOver + 1

// rxNext are all steps of the inbound direction, but for breaches and errors of the shadow.
var rxNext = map[rxStep]rxPhase{
	{rxTCP, rxSegment}:         rxShadow,
	{rxTCP, rxFallBack}:        rxBack,
	{rxShadow, rxRefused}:      rxTCP,
	{rxShadow, rxPromote}:      rxCatchUp,
	{rxShadow, rxGone}:         rxBack,
	{rxShadow, rxReset}:        rxOver,
	{rxShadow, rxFallBack}:     rxFallenBack,
	{rxCatchUp, rxReached}:     rxDirect,
	{rxCatchUp, rxCut}:         rxOver,
	{rxCatchUp, rxFallBack}:    rxFallenBack,
	{rxDirect, rxShutdown}:     rxOver,
	{rxDirect, rxDemote}:       rxBack,
	{rxDirect, rxGone}:         rxBack,
	{rxDirect, rxReset}:        rxOver,
	{rxDirect, rxFallBack}:     rxFallenBack,
	{rxFallenBack, rxQueue}:    rxBefore,
	{rxFallenBack, rxReturned}: rxReturning,
	{rxFallenBack, rxHeld}:     rxBack,
	{rxReturning, rxHeld}:      rxBack,
	{rxReturning, rxEnded}:     rxRest,
	{rxReturning, rxCut}:       rxOver,
	{rxRest, rxRead}:           rxBack,
}

// onRX moves the inbound direction. A step that there is not ends the connection.
func (c *Conn) onRX(what rxEvent) {
	r := &c.rx
	step := rxStep{r.phase, what}
	next, ok := rxNext[step]
	switch {
	case !ok:
		c.breach()
		return
	case next == rxBefore:
		next = r.resumed
	case what == rxFallBack:
		r.resumed = r.phase
	}
	if steps.rx != nil {
		steps.rx(step)
	}
	r.phase, r.direct = next, next == rxDirect
}

// txEvent is what moves the outbound direction from one state to another (SPEC.md, 9.5).
type txEvent uint8

const (
	txPromote    txEvent = iota // PROMOTE was sent
	txFallenBack                // FALLEN_BACK was found; RETURNED is set
	txLeave                     // the program demotes or shuts down, or the peer is gone
	txDemote                    // DEMOTE was sent, and stands
	txShutdown                  // SHUTDOWN was sent, and stands
	txGone                      // the peer is gone
	txReset                     // the peer has set RESET, or its node is lost
	txWritten                   // all that the peer did not take is on the shadow
	txEnded                     // the shadow was shut down, or has failed, before
	txEvents
)

func (e txEvent) String() string {
	return [...]string{"promote", "fallen-back", "leave", "demote", "shutdown", "gone", "reset", "written", "ended"}[e]
}

func (p txPhase) String() string {
	return [...]string{"shadow", "direct", "returning", "back", "over"}[p]
}

// txStep is an event in a state.
type txStep struct {
	from txPhase
	what txEvent
}

// txNext are all steps of the outbound direction, but for breaches and errors of the shadow.
var txNext = map[txStep]txPhase{
	{txShadow, txPromote}:    txDirect,
	{txShadow, txFallenBack}: txBack,
	{txShadow, txLeave}:      txBack,
	{txDirect, txFallenBack}: txReturning,
	{txDirect, txDemote}:     txBack,
	{txDirect, txShutdown}:   txOver,
	{txDirect, txGone}:       txBack,
	{txDirect, txReset}:      txOver,
	{txReturning, txWritten}: txBack,
	{txReturning, txEnded}:   txOver,
}

// onTX moves the outbound direction. A step that there is not ends the connection.
func (c *Conn) onTX(what txEvent) {
	t := &c.tx
	step := txStep{t.phase, what}
	next, ok := txNext[step]
	if !ok {
		c.breach()
		return
	}
	if steps.tx != nil {
		steps.tx(step)
	}
	t.phase, t.direct = next, next == txDirect
}

// steps are told about every step, in tests.
var steps struct {
	rx func(rxStep)
	tx func(txStep)
}

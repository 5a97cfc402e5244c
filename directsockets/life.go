package directsockets

import "exnet/internal/steps"

// lifeState is the life of a connection: whether it has a segment, or may get one (SPEC.md, 9.6).
// Only onLife changes it, each step by one atomic exchange: no lock guards it. The C library has
// the same states, and some more before them.
type lifeState uint8

const (
	lifeEnded   lifeState = iota // it is closed, or about to begin
	lifeEarly                    // there is no segment, and there may be one
	lifeMaking                   // a client: a goroutine makes the segment
	lifeClaimed                  // a server: the broker was asked for the offer
	lifeGranted                  // a server: the segment is here; it waits for the lock of rx
	lifeOffered                  // there is a segment; the client does not know yet whether the server has it
	lifeUp                       // each direction may be promoted
	lifePlain                    // it makes no more offer, and claims none
)

func (s lifeState) String() string {
	return [...]string{"ended", "early", "making", "claimed", "granted", "offered", "up", "plain"}[s]
}

// lifeEvent is what moves it.
type lifeEvent uint8

const (
	lifeBegin    lifeEvent = iota // it is connected
	lifeExclude                   // the same, and a rule, or the want of a broker, excludes it
	lifeClaim                     // there may be an offer for it
	lifeMake                      // it is worth an offer
	lifeGrant                     // the broker has given the segment
	lifeSegment                   // the inbound direction has the segment
	lifeAttached                  // the server has attached
	lifeNone                      // there is no segment, or the offer was not taken
	lifeGiveUp                    // the program, or enough tries, give direct sockets up
	lifeEnd                       // it is closed
)

func (e lifeEvent) String() string {
	return [...]string{"begin", "exclude", "claim", "make", "grant", "segment", "attached", "none", "give-up", "end"}[e]
}

// lifeSteps are all steps of it. Others change nothing: what was under way when the program gave
// the connection up, or closed it, comes late.
var lifeSteps = steps.New(map[lifeState]map[lifeEvent]lifeState{
	lifeEnded:   {lifeBegin: lifeEarly, lifeExclude: lifePlain, lifeEnd: lifeEnded},
	lifeEarly:   {lifeClaim: lifeClaimed, lifeMake: lifeMaking, lifeGiveUp: lifePlain, lifeEnd: lifeEnded},
	lifeMaking:  {lifeSegment: lifeOffered, lifeNone: lifeEarly, lifeGiveUp: lifePlain, lifeEnd: lifeEnded},
	lifeClaimed: {lifeGrant: lifeGranted, lifeNone: lifeEarly, lifeGiveUp: lifePlain, lifeEnd: lifeEnded},
	lifeGranted: {lifeSegment: lifeOffered, lifeNone: lifeEarly, lifeGiveUp: lifePlain, lifeEnd: lifeEnded},
	lifeOffered: {lifeAttached: lifeUp, lifeNone: lifeEarly, lifeGiveUp: lifePlain, lifeEnd: lifeEnded},
	lifeUp:      {lifeGiveUp: lifePlain, lifeEnd: lifeEnded},
	lifePlain:   {lifeEnd: lifeEnded},
})

// lifeIs is the state, which another goroutine may be changing.
func (c *Conn) lifeIs() lifeState { return lifeState(c.life.Load()) }

// onLife moves the life. False: there is no such step in its state.
func (c *Conn) onLife(what lifeEvent) bool {
	for {
		from := c.lifeIs()
		next, ok := lifeSteps.Next(from, what)
		if !ok || c.life.CompareAndSwap(uint32(from), uint32(next)) {
			return ok
		}
	}
}

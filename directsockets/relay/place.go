package relay

import (
	"errors"
	"fmt"

	"exnet/fabric"
)

// errPlace says that this node has lost track of a place.
var errPlace = errors.New("relay: an impossible step of a place")

// placeState is how far a place of a channel has come. A place is filled, and then goes to the peer
// by one of two ways:
//
//	free ─▶ filling ─┬─▶ singles ── all were sent ─────────────────────────────▶ free
//	                 └─▶ putting ─┬─ told ──▶ awaited ─┬─ PUT ended ─▶ lent ─ TAKEN ─▶ free
//	                              │                    └─ TAKEN ─▶ taken ─ PUT ended ─▶ free
//	                              └─ PUT ended ─▶ brought ─ told ─▶ lent
//
// A place is free only by the last step of its way: nothing else makes it free.
type placeState uint8

const (
	placeFree    placeState = iota
	placeFilling            // has messages, and may get more
	placeSingles            // its messages are sent one by one
	placePutting            // its PUT is under way, and BATCH is to be sent
	placeAwaited            // its PUT is under way, BATCH was sent
	placeBrought            // its PUT has ended, and BATCH is to be sent
	placeLent               // its PUT has ended, BATCH was sent: the peer has it
	placeTaken              // the peer has taken it, and the end of its PUT is not known here yet
	placeStates
)

// placeEvent is what brings a place from one state to the next.
type placeEvent uint8

const (
	eventFill  placeEvent = iota // it gets its first message
	eventSplit                   // it is sent one by one
	eventSent                    // its last message was, one by one
	eventPut                     // its PUT starts
	eventTold                    // BATCH is sent
	eventEnded                   // its PUT has ended
	eventTaken                   // TAKEN has come
	placeEvents
)

// placeNext has the state that follows each event; placeNever where that event cannot be.
var placeNext = [placeStates]placeRow{
	placeFree:    rowOf(placeFilling, eventFill),
	placeFilling: rowOf(placeSingles, eventSplit).and(placePutting, eventPut),
	placeSingles: rowOf(placeFree, eventSent),
	placePutting: rowOf(placeAwaited, eventTold).and(placeBrought, eventEnded),
	placeAwaited: rowOf(placeLent, eventEnded).and(placeTaken, eventTaken),
	placeBrought: rowOf(placeLent, eventTold),
	placeLent:    rowOf(placeFree, eventTaken),
	placeTaken:   rowOf(placeFree, eventEnded),
}

const placeNever = placeStates

type placeRow [placeEvents]placeState

func rowOf(s placeState, e placeEvent) (r placeRow) {
	for i := range r {
		r[i] = placeNever
	}
	return r.and(s, e)
}

func (r placeRow) and(s placeState, e placeEvent) placeRow {
	r[e] = s
	return r
}

func (s placeState) String() string {
	return [...]string{"free", "filling", "singles", "putting", "awaited", "brought", "lent", "taken", "never"}[s]
}

func (e placeEvent) String() string {
	return [...]string{"fill", "split", "sent", "put", "told", "ended", "taken"}[e]
}

// place has messages as a batch has them, one after the other.
type place struct {
	state    placeState
	class    fabric.Class
	buf      []byte
	messages int    // in buf, but for SELECTs
	large    bool   // one of them is too large for VELO
	sent     int    // singles: bytes of buf that were sent
	named    uint32 // connection that the last SELECT in buf has named; 0: none
	number   uint32 // of the batch
	sum      uint32 // its checksum
}

// step brings the place to its next state. errPlace: the event cannot be.
func (p *place) step(e placeEvent) error {
	next := placeNext[p.state][e]
	if next == placeNever {
		return fmt.Errorf("%w: %v in state %v", errPlace, e, p.state)
	}
	if p.state = next; next == placeFree {
		*p = place{}
	}
	return nil
}

// addMessage appends a message.
func (p *place) addMessage(k kind, tag uint8, payload []byte) {
	copy(p.addRoom(k, tag, len(payload)), payload)
}

// addRoom appends a message, and returns where its n bytes go.
func (p *place) addRoom(k kind, tag uint8, n int) []byte {
	at := len(p.buf)
	p.buf = p.buf[:at+headLen+n]
	putHead(p.buf[at:], k, tag, n)
	if k != kindSelect {
		p.messages++
	}
	return p.buf[at+headLen:]
}

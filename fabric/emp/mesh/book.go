package mesh

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"exnet/fabric"
	"exnet/fabric/emp"
)

// Times of the book. None of them depends on the number of nodes.
const (
	// firstRetry is doubled with each attempt that fails, up to lastRetry.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 10 * time.Second
	// yield is how long the node with the lower ID leaves the first attempt to the one with the
	// higher ID. That one waits for settle first, as another attempt may reach the same node by
	// another address.
	yield  = time.Second
	settle = 100 * time.Millisecond
	// forget is how long the book looks for a node of which nobody hears any more.
	forget = 24 * time.Hour
	// mourn is how long reports of a node that has left are not believed.
	mourn = time.Minute
	// Two nodes compare what they know this often: fastSync as long as something has
	// changed within the last unsettled.
	fastSync  = time.Second
	slowSync  = 10 * time.Second
	unsettled = 15 * time.Second
)

const (
	// maxDials is how many attempts are under way at a time.
	maxDials = 64
	// maxTellers is how many members' reports about a node are kept, an address each.
	maxTellers = 4
	// maxTold is how many nodes that this one has not met a member may report. tellerDials is how
	// many of them are dialed at a time.
	maxTold     = 4096
	tellerDials = maxDials / 4
	// dialPause is the average time between two such dials, and dialBurst how many may come at
	// once.
	dialPause = time.Second / 64
	dialBurst = 1024
)

// Rumor is a member's report about another one: that it has a connection to it, and at which
// address.
type Rumor struct {
	Node     fabric.NodeID  `json:"node"`
	Token    emp.Token      `json:"token"`
	Since    int64          `json:"since"` // when it began, in nanoseconds of its own clock
	Endpoint netip.AddrPort `json:"endpoint"`
}

// digestSum returns what a digest adds up.
func (r Rumor) digestSum() uint64 {
	var b [10]byte
	binary.LittleEndian.PutUint16(b[:], uint16(r.Node))
	binary.LittleEndian.PutUint64(b[2:], uint64(r.Token))
	h := fnv.New64a()
	h.Write(b[:])
	return h.Sum64()
}

// entry is a node that the book knows.
type entry struct {
	Rumor                  // its endpoint is that of the connection, or the one tried last
	met     bool           // there was a connection: token and time are what the node itself has said
	metAt   netip.AddrPort // the endpoint of the last connection, if met
	reports []report
	up      bool
	heard   time.Time // when there was a connection, or a rumor, last
	hurried time.Time // when a rumor brought its attempt forward
	try     attempt
	turn    *turn // in which it is dialed

	queueIndex int // in the queue of its turn; -1: in none, because it is up or being dialed
}

// report is where a member says that a node is.
type report struct {
	teller   fabric.NodeID
	endpoint netip.AddrPort
}

// attempt is when somebody is dialed next.
type attempt struct {
	dialing bool
	next    time.Time
	wait    time.Duration
}

func pickFirst[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// putOff puts the next attempt off, by a random time around the wait, which doubles.
func (a *attempt) putOff(now time.Time, rnd *rand.Rand) {
	a.dialing = false
	a.wait = min(max(2*a.wait, firstRetry), lastRetry)
	random := rand.Int64N
	if rnd != nil {
		random = rnd.Int64N
	}
	a.next = now.Add(a.wait*3/4 + time.Duration(random(int64(a.wait/2+1))))
}

// seed is an address that this node was told to join at. Who is there is not known
// before.
type seed struct {
	state seedState
	met   fabric.NodeID // seedMet: who is there
	try   attempt
}

// seedState is what is known of a seed.
type seedState uint8

const (
	seedUnknown seedState = iota
	seedMet
	seedSelf // it is this node's own address
	seedGone // the name that had it has it no more
)

// book says which nodes there are, and whom to dial when. It has no clock, no lock and no
// connections: its owner tells it what happens and when. What a member reports is bounded. It is
// forgotten with the member, unless this node has met the reported node.
type book struct {
	self    Rumor
	seeds   []seed
	nodes   map[fabric.NodeID]*entry
	ups     []fabric.NodeID         // those that are up, in order
	left    map[emp.Token]time.Time // who has said that it leaves, and when
	met     *turn                   // the nodes that were met
	tellers map[fabric.NodeID]*turn // the nodes that members report, by the member
	last    fabric.NodeID           // whose turn was the last
	removed []fabric.NodeID         // since the owner looked
	ignored uint64                  // rumors beyond what a member may report
	dials   int
	digest  uint64 // of those that are up, and of this node
	changed time.Time
	synced  time.Time
	nextDue time.Time  // nobody is to be dialed before; zero: unknown
	rnd     *rand.Rand // nil: the common one
}

func newBook(self Rumor, seeds int) *book {
	return &book{self: self, seeds: make([]seed, seeds), nodes: make(map[fabric.NodeID]*entry), left: make(map[emp.Token]time.Time),
		met: &turn{met: true}, tellers: make(map[fabric.NodeID]*turn), digest: self.digestSum()}
}

// target is whom to dial.
type target struct {
	seed     int // -1: none, but node
	node     fabric.NodeID
	endpoint netip.AddrPort
	turn     *turn // whose it was
}

// takeDue returns whom to dial now; noteDialed follows for each.
func (b *book) takeDue(now time.Time) (all []target) {
	if now.Before(b.nextDue) {
		return nil
	}
	b.nextDue = now.Add(time.Hour)
	for i := range b.seeds {
		s := &b.seeds[i]
		if s.state >= seedSelf || s.state == seedMet && b.isUp(s.met) || s.try.dialing {
			continue
		}
		if b.dials < maxDials && !now.Before(s.try.next) {
			s.try.dialing = true
			b.dials++
			all = append(all, target{seed: i})
		} else {
			b.dueAt(s.try.next)
		}
	}
	for turns := b.turns(); len(turns) > 0; {
		turns = slices.DeleteFunc(turns, func(t *turn) bool {
			e := b.takeFromTurn(now, t)
			if e != nil {
				all = append(all, b.noteDialing(now, e))
			}
			return e == nil
		})
	}
	for t, at := range b.left {
		if now.Sub(at) > mourn {
			delete(b.left, t)
		}
	}
	return all
}

// dueAt notes that somebody is to be dialed at a time.
func (b *book) dueAt(at time.Time) {
	if at.Before(b.nextDue) {
		b.nextDue = at
	}
}

// endpoints are where it may be, at least one.
func (e *entry) endpoints() (all []netip.AddrPort) {
	for _, r := range e.reports {
		if !slices.Contains(all, r.endpoint) {
			all = append(all, r.endpoint)
		}
	}
	if e.met && !slices.Contains(all, e.metAt) {
		all = append(all, e.metAt)
	}
	return all
}

// noteDialed notes how an attempt ended: with ok met is the node that answered. If there is a
// connection now, noteConnected was called before.
func (b *book) noteDialed(now time.Time, t target, met fabric.NodeID, ok bool) {
	b.nextDue = time.Time{}
	b.dials--
	if t.seed < 0 {
		if t.turn != nil {
			t.turn.dials--
		}
		if e := b.nodes[t.node]; e != nil && e.try.dialing {
			e.try.putOff(now, b.rnd)
			b.queueEntry(e)
		}
		return
	}
	s := &b.seeds[t.seed]
	s.try.putOff(now, b.rnd)
	if !ok || s.state == seedGone {
		return
	}
	s.met, s.try.wait, s.state = met, 0, seedMet
	if met == b.self.Node {
		s.state = seedSelf
	}
}

// freeSeed returns the number of a seed that is gone, or the next one.
func (b *book) freeSeed() int {
	i := slices.IndexFunc(b.seeds, func(s seed) bool { return s.state == seedGone && !s.try.dialing })
	if i < 0 {
		return len(b.seeds)
	}
	return i
}

// nameHas says whether a seed's name has its address now. An address that is gone is no longer
// dialed; one that comes back counts as new.
func (b *book) nameHas(i int, has bool) {
	b.nextDue = time.Time{}
	if i == len(b.seeds) {
		b.seeds = append(b.seeds, seed{})
	}
	switch s := &b.seeds[i]; {
	case !has:
		s.state = seedGone
	case s.state == seedGone:
		s.state, s.try.wait, s.try.next = seedUnknown, 0, time.Time{}
	}
}

func (b *book) isUp(n fabric.NodeID) bool {
	e := b.nodes[n]
	return e != nil && e.up
}

// noteConnected says that there is a connection to a node.
func (b *book) noteConnected(now time.Time, r Rumor) {
	b.nextDue = time.Time{}
	e := b.nodes[r.Node]
	if e != nil && e.up && e.Token != r.Token {
		b.noteDown(now, r.Node)
	}
	if e == nil {
		e = &entry{queueIndex: -1}
		b.nodes[r.Node] = e
	}
	e.leaveQueue()
	for _, told := range e.reports {
		if t := b.tellers[told.teller]; t != nil {
			delete(t.told, r.Node) // it is no rumor any more
		}
	}
	e.Rumor, e.metAt, e.met, e.turn = r, r.Endpoint, true, b.met
	delete(b.left, r.Token)
	e.heard, e.try.wait = now, 0
	if !e.up {
		e.up = true
		i, _ := slices.BinarySearch(b.ups, r.Node)
		b.ups = slices.Insert(b.ups, i, r.Node)
		b.digest ^= e.digestSum()
		b.changed = now
	}
}

// noteDown says that there is no connection to a node any more. It is tried again at once. What
// it has told others is forgotten.
func (b *book) noteDown(now time.Time, n fabric.NodeID) {
	e := b.nodes[n]
	if e == nil || !e.up {
		return
	}
	b.nextDue = time.Time{}
	e.up = false
	i, _ := slices.BinarySearch(b.ups, n)
	b.ups = slices.Delete(b.ups, i, i+1)
	b.digest ^= e.digestSum()
	e.heard, b.changed = now, now
	e.try.wait = 0
	e.try.putOff(now, b.rnd)
	b.queueEntry(e)
	b.forgetReports(n)
}

// forgetReports forgets what a member has reported about nodes that this one has not met.
func (b *book) forgetReports(n fabric.NodeID) {
	t := b.tellers[n]
	if t == nil {
		return
	}
	delete(b.tellers, n)
	for _, e := range t.told {
		e.reports = slices.DeleteFunc(e.reports, func(r report) bool { return r.teller == n })
		if len(e.reports) == 0 {
			b.removeEntry(e)
			continue
		}
		if e.turn == t { // another one tells of it, too
			e.leaveQueue()
			e.turn = b.tellers[e.reports[0].teller]
			b.queueEntry(e)
		}
	}
}

// noteLeaving says that a node has said that it leaves.
func (b *book) noteLeaving(now time.Time, n fabric.NodeID) {
	b.noteDown(now, n)
	if e := b.nodes[n]; e != nil {
		b.left[e.Token] = now
		b.removeEntry(e)
	}
}

// removeEntry takes a node out of the book that is not up.
func (b *book) removeEntry(e *entry) {
	e.leaveQueue()
	for _, r := range e.reports {
		if t := b.tellers[r.teller]; t != nil {
			delete(t.told, e.Node)
		}
	}
	delete(b.nodes, e.Node)
	b.removed = append(b.removed, e.Node)
}

// learnRumors takes a member's rumors, and reports whether any was new.
func (b *book) learnRumors(now time.Time, teller fabric.NodeID, rumors []Rumor) (news bool) {
	for _, r := range rumors {
		_, left := b.left[r.Token]
		e := b.nodes[r.Node]
		switch {
		case r.Node == b.self.Node || left || !r.Endpoint.IsValid():
			continue
		case e != nil && e.up:
			continue // this node knows better
		case e != nil && e.met && e.Token != r.Token && e.Since > r.Since:
			continue // of its life before, by its own word
		}
		if e, heard := b.noteReport(now, teller, e, r); heard {
			e.heard = now
			news = b.bringForward(now, e, r) || news
		}
	}
	if news {
		b.nextDue = time.Time{}
	}
	return news
}

// noteReport notes at which address a member says that a node is, if that is not up; false: the
// member reports too many.
func (b *book) noteReport(now time.Time, teller fabric.NodeID, e *entry, r Rumor) (*entry, bool) {
	t := b.tellers[teller]
	if t == nil {
		t = &turn{teller: teller, told: make(map[fabric.NodeID]*entry)}
		b.tellers[teller] = t
	}
	if e == nil || !e.met {
		if t.told[r.Node] == nil && len(t.told) >= maxTold {
			b.ignored++
			return nil, false
		}
	}
	if e == nil {
		e = &entry{Rumor: r, turn: t, queueIndex: -1}
		b.nodes[r.Node] = e
		b.changed = now
	}
	i := slices.IndexFunc(e.reports, func(r report) bool { return r.teller == teller })
	if i < 0 && len(e.reports) >= maxTellers { // in the place of one that has gone
		i = slices.IndexFunc(e.reports, func(r report) bool { return b.tellers[r.teller] == nil })
	}
	switch said := (report{teller, r.Endpoint}); {
	case i >= 0:
		e.reports[i] = said
	case len(e.reports) < maxTellers:
		e.reports = append(e.reports, said)
	default:
		return e, true // enough members have reported it
	}
	if !e.met {
		t.told[r.Node] = e
	}
	return e, true
}

// bringForward brings the next attempt forward, because somebody has reached the node; false: that
// was done lately, or the attempt is due anyway.
func (b *book) bringForward(now time.Time, e *entry, r Rumor) bool {
	switch {
	case e.try.next.IsZero(): // it is new
		e.try.next = now.Add(pickFirst(b.self.Node > r.Node, settle, yield))
	case now.Sub(e.hurried) < lastRetry:
		return false
	case e.Token != r.Token: // it may have begun anew
		e.try.wait = 0
		if next := now.Add(pickFirst(b.self.Node > r.Node, settle, yield)); next.Before(e.try.next) {
			e.try.next = next
		}
	case e.try.wait > firstRetry:
		dialing := e.try.dialing
		e.try.wait = 0
		e.try.putOff(now, b.rnd)
		e.try.dialing = dialing
	default:
		return false
	}
	if e.try.wait > 0 || e.Token != r.Token {
		e.hurried = now
	}
	if !e.met {
		e.Token, e.Since = r.Token, r.Since
	}
	b.queueEntry(e)
	return true
}

// rumors returns what this node can say of others.
func (b *book) rumors() []Rumor {
	all := make([]Rumor, len(b.ups))
	for i, n := range b.ups {
		all[i] = b.nodes[n].Rumor
	}
	return all
}

// nextSync says with whom to compare digests now, if it is time for that.
func (b *book) nextSync(now time.Time) (with fabric.NodeID, ok bool) {
	pause := slowSync
	if now.Sub(b.changed) < unsettled {
		pause = fastSync
	}
	if len(b.ups) == 0 || now.Sub(b.synced) < pause {
		return 0, false
	}
	b.synced = now
	i := rand.N(len(b.ups))
	if b.rnd != nil {
		i = b.rnd.IntN(len(b.ups))
	}
	return b.ups[i], true
}

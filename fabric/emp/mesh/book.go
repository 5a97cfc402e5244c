package mesh

import (
	"cmp"
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
	// yield is how long the lower ID leaves the first attempt to the higher one, which
	// waits for settle: another attempt may reach the same node by another address.
	yield  = time.Second
	settle = 100 * time.Millisecond
	// forget is how long a node is looked for that nobody hears of any more.
	forget = 24 * time.Hour
	// mourn is how long a node that left is not believed to be there.
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
	// maxEndpoints is how many addresses of a node are kept.
	maxEndpoints = 4
)

// Rumor is what a member says of another one: that it has a connection to it, where.
type Rumor struct {
	Node     fabric.NodeID  `json:"node"`
	Token    emp.Token      `json:"token"`
	Since    int64          `json:"since"` // when it began, in nanoseconds of its own clock
	Endpoint netip.AddrPort `json:"endpoint"`
}

// sum is what a digest adds up.
func (r Rumor) sum() uint64 {
	var b [10]byte
	binary.LittleEndian.PutUint16(b[:], uint16(r.Node))
	binary.LittleEndian.PutUint64(b[2:], uint64(r.Token))
	h := fnv.New64a()
	h.Write(b[:])
	return h.Sum64()
}

// entry is a node that the book knows.
type entry struct {
	Rumor     // its endpoint is that of the connection, or the one tried last
	endpoints []netip.AddrPort
	up        bool
	heard     time.Time // when there was a connection, or a rumor, last
	try       attempt
}

// attempt is when somebody is dialed next.
type attempt struct {
	dialing bool
	next    time.Time
	wait    time.Duration
}

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// fail puts the next attempt off.
func (a *attempt) fail(now time.Time, rnd *rand.Rand) {
	a.dialing = false
	a.wait = min(max(2*a.wait, firstRetry), lastRetry)
	a.next = now.Add(a.wait*3/4 + rand.N(a.wait/2+1))
	if rnd != nil {
		a.next = now.Add(a.wait*3/4 + time.Duration(rnd.Int64N(int64(a.wait/2+1))))
	}
}

// seed is an address that this node was told to join at. Who is there is not known
// before.
type seed struct {
	met  fabric.NodeID
	has  bool // met is somebody
	self bool // it is this node's own address
	try  attempt
}

// book says which nodes there are, and whom to dial when. It has no clock, no lock and
// no connections: its owner tells it what happens and when.
type book struct {
	self    Rumor
	seeds   []seed
	nodes   map[fabric.NodeID]*entry
	ups     []fabric.NodeID            // those that are up, in order
	idle    map[fabric.NodeID]struct{} // the others
	left    map[emp.Token]time.Time    // who has said that it leaves, and when
	dials   int
	digest  uint64 // of those that are up, and of this node
	changed time.Time
	synced  time.Time
	quiet   time.Time  // nobody is due before; zero: unknown
	rnd     *rand.Rand // nil: the common one
}

func newBook(self Rumor, seeds int) *book {
	return &book{self: self, seeds: make([]seed, seeds), nodes: make(map[fabric.NodeID]*entry), idle: make(map[fabric.NodeID]struct{}), left: make(map[emp.Token]time.Time), digest: self.sum()}
}

// target is whom to dial.
type target struct {
	seed     int // -1: none, but node
	node     fabric.NodeID
	endpoint netip.AddrPort
}

// due returns whom to dial now; dialed follows for each.
func (b *book) due(now time.Time) (all []target) {
	if now.Before(b.quiet) {
		return nil
	}
	b.quiet = now.Add(time.Hour)
	later := func(a *attempt) {
		if !a.dialing && a.next.Before(b.quiet) {
			b.quiet = a.next
		}
	}
	for i := range b.seeds {
		s := &b.seeds[i]
		if b.dials < maxDials && !s.try.dialing && !s.self && !now.Before(s.try.next) && !(s.has && b.isUp(s.met)) {
			s.try.dialing = true
			b.dials++
			all = append(all, target{seed: i})
		}
		if !s.self && !(s.has && b.isUp(s.met)) {
			later(&s.try)
		}
	}
	var ready []*entry
	for n := range b.idle {
		e := b.nodes[n]
		switch {
		case e.try.dialing:
		case now.Sub(e.heard) > forget:
			b.remove(n)
		case !now.Before(e.try.next):
			ready = append(ready, e)
		default:
			later(&e.try)
		}
	}
	// In order of IDs, so that a simulation runs the same way each time.
	slices.SortFunc(ready, func(x, y *entry) int { return cmp.Compare(x.Node, y.Node) })
	for _, e := range ready {
		if b.dials >= maxDials {
			b.quiet = now // dialed has it look again
			break
		}
		e.try.dialing = true
		b.dials++
		// Round its addresses, as some may be reached from elsewhere only.
		i := slices.Index(e.endpoints, e.Endpoint)
		e.Endpoint = e.endpoints[(i+1)%len(e.endpoints)]
		all = append(all, target{seed: -1, node: e.Node, endpoint: e.Endpoint})
	}
	for t, at := range b.left {
		if now.Sub(at) > mourn {
			delete(b.left, t)
		}
	}
	return all
}

// dialed says how an attempt ended. met is who was there, if somebody was; up, connected,
// was told before if there is a connection.
func (b *book) dialed(now time.Time, t target, met fabric.NodeID, ok bool) {
	b.quiet = time.Time{}
	b.dials--
	if t.seed < 0 {
		if e := b.nodes[t.node]; e != nil && e.try.dialing {
			e.try.fail(now, b.rnd)
		}
		return
	}
	s := &b.seeds[t.seed]
	s.try.fail(now, b.rnd)
	if ok {
		s.met, s.has, s.self = met, true, met == b.self.Node
		s.try.wait = 0
	}
}

func (b *book) isUp(n fabric.NodeID) bool {
	e := b.nodes[n]
	return e != nil && e.up
}

// connected says that there is a connection to a node.
func (b *book) connected(now time.Time, r Rumor) {
	b.quiet = time.Time{}
	e := b.nodes[r.Node]
	if e == nil || e.Token != r.Token {
		b.down(now, r.Node)
		e = &entry{Rumor: r}
		b.put(e)
	}
	delete(b.left, r.Token)
	e.add(r.Endpoint)
	e.Endpoint, e.heard, e.try.wait = r.Endpoint, now, 0
	if !e.up {
		e.up = true
		i, _ := slices.BinarySearch(b.ups, r.Node)
		b.ups = slices.Insert(b.ups, i, r.Node)
		delete(b.idle, r.Node)
		b.digest ^= e.sum()
		b.changed = now
	}
}

// down says that there is no connection to a node any more. It is tried again at once.
func (b *book) down(now time.Time, n fabric.NodeID) {
	e := b.nodes[n]
	if e == nil || !e.up {
		return
	}
	b.quiet = time.Time{}
	e.up = false
	i, _ := slices.BinarySearch(b.ups, n)
	b.ups = slices.Delete(b.ups, i, i+1)
	b.idle[n] = struct{}{}
	b.digest ^= e.sum()
	e.heard, b.changed = now, now
	e.try.wait = 0
	e.try.fail(now, b.rnd)
}

// gone says that a node has said that it leaves.
func (b *book) gone(now time.Time, n fabric.NodeID) {
	b.down(now, n)
	if e := b.nodes[n]; e != nil {
		b.left[e.Token] = now
		b.remove(n)
	}
}

// put enters somebody who is not up.
func (b *book) put(e *entry) {
	b.nodes[e.Node] = e
	b.idle[e.Node] = struct{}{}
}

// remove takes somebody out who is not up.
func (b *book) remove(n fabric.NodeID) {
	delete(b.nodes, n)
	delete(b.idle, n)
}

// add notes an address, the newest last.
func (e *entry) add(a netip.AddrPort) {
	e.endpoints = slices.DeleteFunc(e.endpoints, func(b netip.AddrPort) bool { return a == b })
	e.endpoints = append(e.endpoints, a)
	if n := len(e.endpoints); n > maxEndpoints {
		e.endpoints = slices.Clone(e.endpoints[n-maxEndpoints:])
	}
}

// learn takes in what a member says, and reports whether any of it was news.
func (b *book) learn(now time.Time, rumors []Rumor) (news bool) {
	b.quiet = time.Time{}
	for _, r := range rumors {
		_, left := b.left[r.Token]
		if r.Node == b.self.Node || left || !r.Endpoint.IsValid() {
			continue
		}
		e := b.nodes[r.Node]
		switch {
		case e != nil && e.up:
			continue // this node knows better
		case e != nil && e.Token != r.Token && e.Since > r.Since:
			continue // of its life before
		case e == nil || e.Token != r.Token:
			dialing := e != nil && e.try.dialing
			e = &entry{Rumor: r}
			e.try.dialing = dialing
			e.try.next = now.Add(pick(b.self.Node > r.Node, settle, yield))
			b.put(e)
			b.changed, news = now, true
		case e.try.wait > firstRetry:
			// Somebody has reached it: so it is worth an attempt.
			e.try.wait = 0
			e.try.fail(now, b.rnd)
			news = true
		}
		e.add(r.Endpoint)
		e.heard = now
	}
	return news
}

// rumors returns what this node can say of others.
func (b *book) rumors() []Rumor {
	all := make([]Rumor, len(b.ups))
	for i, n := range b.ups {
		all[i] = b.nodes[n].Rumor
	}
	return all
}

// sync says with whom to compare digests now, if it is time for that.
func (b *book) sync(now time.Time) (with fabric.NodeID, ok bool) {
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

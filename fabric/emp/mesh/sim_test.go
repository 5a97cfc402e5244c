package mesh

import (
	"container/heap"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/emp"
)

// world is a network of books on a clock of its own: connections take time, come and go,
// and are cut between partitions. A run depends on the seed alone.
type world struct {
	t      *testing.T
	now    time.Time
	events events
	serial int
	rnd    *rand.Rand
	nodes  []*simNode
	conns  int
	// what was sent
	dials, messages, rumors, bytes int
}

type simNode struct {
	w     *world
	id    int
	book  *book
	alive bool
	side  int // of the partition
	peers map[int]bool
}

type event struct {
	at     time.Time
	serial int
	do     func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].serial < e[j].serial
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

const (
	simLatency = 10 * time.Millisecond
	// simSilent is how long a link takes to find a cut.
	simSilent = 5 * time.Second
	// simLook is how often a node looks whom to dial.
	simLook = 250 * time.Millisecond
)

func newWorld(t *testing.T, n int) *world {
	w := &world{t: t, now: time.Unix(0, 0), rnd: rand.New(rand.NewPCG(1, uint64(n)))}
	for i := range n {
		w.nodes = append(w.nodes, &simNode{w: w, id: i})
	}
	return w
}

func (w *world) after(d time.Duration, do func()) {
	w.serial++
	heap.Push(&w.events, event{w.now.Add(d), w.serial, do})
}

// until runs until ok, looked at each half a second, and returns how long that took.
func (w *world) until(what string, limit time.Duration, ok func() bool) time.Duration {
	w.t.Helper()
	begun, next := w.now, w.now
	for w.now.Sub(begun) < limit && len(w.events) > 0 {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
		if !w.now.Before(next) {
			if ok() {
				return w.now.Sub(begun)
			}
			next = w.now.Add(500 * time.Millisecond)
		}
	}
	w.t.Fatalf("%s: not within %v", what, limit)
	return 0
}

func (n *simNode) endpoint() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n.id >> 8), byte(n.id)}), DefaultPort)
}

// start begins a node that joins through others.
func (n *simNode) start(seeds ...int) {
	n.alive, n.peers = true, make(map[int]bool)
	self := Rumor{Node: fabric.NodeID(n.id), Token: emp.Token(n.w.rnd.Uint64()), Since: n.w.now.UnixNano(), Endpoint: n.endpoint()}
	n.book = newBook(self, len(seeds))
	n.book.rnd = n.w.rnd
	b := n.book
	var look func()
	look = func() {
		if !n.alive || n.book != b {
			return
		}
		for _, t := range b.takeDue(n.w.now) {
			to := int(t.node)
			if t.seed >= 0 {
				to = seeds[t.seed]
			}
			n.dial(t, n.w.nodes[to])
		}
		if with, ok := b.nextSync(n.w.now); ok {
			n.compare(n.w.nodes[with])
		}
		n.w.after(simLook, look)
	}
	n.w.after(time.Duration(n.w.rnd.Int64N(int64(simLook))), look)
}

func (n *simNode) reaches(p *simNode) bool { return n.alive && p.alive && n.side == p.side }

// dial takes two round trips, or fails at the end of its time.
func (n *simNode) dial(t target, p *simNode) {
	b := n.book
	n.w.dials++
	if !n.reaches(p) {
		// A host that is there refuses at once, one beyond a cut says nothing.
		n.w.after(pickFirst(n.side == p.side, simLatency, dialTime), func() { b.noteDialed(n.w.now, t, fabric.NodeID(p.id), false) })
		return
	}
	n.w.after(4*simLatency, func() {
		ok := n.reaches(p) && n.book == b
		if ok && p != n && !n.peers[p.id] {
			n.connect(p, t.seed >= 0)
		}
		b.noteDialed(n.w.now, t, fabric.NodeID(p.id), ok)
	})
}

func (n *simNode) connect(p *simNode, all bool) {
	n.peers[p.id], p.peers[n.id] = true, true
	n.w.conns++
	n.book.noteConnected(n.w.now, p.rumor())
	p.book.noteConnected(n.w.now, n.rumor())
	if all {
		p.tell(n, p.book.rumors(), false)
	}
}

func (n *simNode) rumor() Rumor { return n.book.self }

// tell sends rumors; with reply the other one tells its own.
func (n *simNode) tell(p *simNode, rumors []Rumor, reply bool) {
	w, b := n.w, p.book
	w.messages++
	w.rumors += len(rumors)
	if len(rumors) > 0 {
		text, err := json.Marshal(rumors[0])
		if err != nil {
			w.t.Fatal(err)
		}
		w.bytes += len(rumors) * (len(text) + 1)
	}
	w.after(simLatency, func() {
		if !n.peers[p.id] || p.book != b {
			return
		}
		b.learnRumors(w.now, fabric.NodeID(n.id), rumors)
		if reply {
			p.tell(n, b.rumors(), false)
		}
	})
}

// compare sends a digest.
func (n *simNode) compare(p *simNode) {
	digest := n.book.digest
	n.w.messages++
	n.w.after(simLatency, func() {
		if n.peers[p.id] && p.book.digest != digest {
			p.tell(n, p.book.rumors(), true)
		}
	})
}

// drop ends a connection on both sides.
func (n *simNode) drop(p *simNode) {
	if !n.peers[p.id] {
		return
	}
	delete(n.peers, p.id)
	delete(p.peers, n.id)
	n.w.conns--
	n.book.noteDown(n.w.now, fabric.NodeID(p.id))
	p.book.noteDown(n.w.now, fabric.NodeID(n.id))
}

// cut parts the nodes into sides, and has links between them be found dead.
func (w *world) cut(side func(int) int) {
	for i, n := range w.nodes {
		n.side = side(i)
	}
	w.after(simSilent, func() {
		for _, n := range w.nodes {
			for _, p := range w.nodes[n.id+1:] {
				if n.side != p.side {
					n.drop(p)
				}
			}
		}
	})
}

// whole says whether everybody who lives is connected to everybody on its side.
func (w *world) whole() bool {
	var members [2]int
	for _, n := range w.nodes {
		if n.alive {
			members[n.side]++
		}
	}
	want := 0
	for _, m := range members {
		want += m * (m - 1) / 2
	}
	return w.conns == want
}

// sent returns and resets what was sent, for each node.
func (w *world) sent() (dials, messages, bytes int) {
	n := len(w.nodes)
	dials, messages, bytes = w.dials/n, w.messages/n, w.bytes/n
	w.dials, w.messages, w.rumors, w.bytes = 0, 0, 0, 0
	return dials, messages, bytes
}

// The figures of docs/hosts.md are those of 512 nodes, which take ten seconds of a CPU.
var simNodes = flag.Int("sim-nodes", 96, "nodes of the simulation")

// Nodes join through any member, leave, die, are parted and come together again.
func TestSimulation(t *testing.T) {
	nodes := *simNodes
	w := newWorld(t, nodes)
	w.nodes[0].start()
	for i := 1; i < nodes; i++ {
		w.after(time.Duration(w.rnd.Int64N(int64(10*time.Second))), func() {
			// Through one that may not be up yet itself.
			w.nodes[i].start(w.rnd.IntN(i))
		})
	}
	report := func(what string, took time.Duration) {
		dials, messages, bytes := w.sent()
		t.Logf("%s: %v; for each node %d dials, %d messages, %d KB of rumors", what, took.Round(100*time.Millisecond), dials, messages, bytes/1000)
	}
	report("joined, of 10 s of starting", w.until("joined", time.Minute, func() bool { return w.nodes[nodes-1].alive && w.whole() }))

	begun := w.now
	w.until("idle", time.Hour, func() bool { return w.now.Sub(begun) > time.Minute })
	if dials, messages, _ := w.sent(); dials > 0 || messages > 30 {
		t.Errorf("idle: for each node %d dials, %d messages in a minute", dials, messages)
	}

	// A third dies, and comes back with other tokens, through one that lived on.
	for i := range nodes / 3 {
		n := w.nodes[3*i+1]
		n.alive = false
		for _, p := range w.nodes {
			n.drop(p)
		}
	}
	begun = w.now
	w.until("dead", time.Hour, func() bool { return w.now.Sub(begun) > 10*time.Second })
	w.sent()
	for i := range nodes / 3 {
		w.nodes[3*i+1].start(0)
	}
	report("a third began anew", w.until("anew", time.Minute, w.whole))

	// Halves, for long enough that attempts are far between.
	w.cut(func(i int) int { return i % 2 })
	begun = w.now
	w.until("parted", time.Hour, func() bool { return w.now.Sub(begun) > 40*time.Second })
	if !w.whole() {
		t.Error("the halves are not whole")
	}
	report("parted", 40*time.Second)
	w.cut(func(int) int { return 0 })
	took := w.until("healed", time.Minute, w.whole)
	report("healed", took)
	if took > 30*time.Second {
		t.Errorf("healed after %v", took)
	}
}

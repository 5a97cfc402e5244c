package ports

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/mem"
	"exnet/fabric/link/stream"
	"exnet/fabric/nic"
	"exnet/node/rpc/far"
)

// lifeFault is what happens when a pair of ports, or what is said for one, is about to take a step
// at one of the two nodes.
type lifeFault uint8

const (
	lifeCuts      lifeFault = iota // the link is away for a moment
	lifeReplaces                   // the same, and the nodes hear of its end when there is another one
	lifeKills                      // the node is killed, and another one comes
	lifeKillsPeer                  // the node at the other end is
	lifeGivesUp                    // the node at the other end has given this one up
	lifeFaults
)

func (f lifeFault) String() string {
	return [...]string{"the link is cut", "the link is replaced", "the node is killed", "its peer is killed", "its peer gives it up"}[f]
}

// ends returns whether a session ends by it, and ports hear of an end.
func (f lifeFault) ends() bool { return f > lifeReplaces }

// lifeAt is a fault at a step, as both nodes together count theirs.
type lifeAt struct {
	step  int
	fault lifeFault
}

// lifeRun is the life of a pair of ports of two hosts, with faults.
type lifeRun struct {
	t      *testing.T
	faulty sync.WaitGroup // a fault is under way

	mu     sync.Mutex
	nodes  [2]*lifeNode // those that live
	faults []lifeAt
	steps  []string
	hit    string
	busy   bool
	links  [2]*stream.Link
	downs  [2]func()
}

// lifeNode is a node, until it is killed.
type lifeNode struct {
	*node
	run    *lifeRun
	who    int
	card   *nic.NIC
	engine *far.Engine
	mover  *far.Mover
	stop   func()
	dead   bool // run.mu guards it
}

// lifeWay is what a server reaches others by. Each message is a step.
type lifeWay struct {
	*far.Engine
	n *lifeNode
}

func (w lifeWay) Send(to fabric.NodeID, session uint64, b []byte) error {
	w.n.step("send", true)
	return w.Engine.Send(to, session, b)
}

func (w lifeWay) TrySend(to fabric.NodeID, session uint64, b []byte) error {
	w.n.step("try to send", true)
	return w.Engine.TrySend(to, session, b)
}

// lifeMover has a step before bytes move, and one after.
type lifeMover struct {
	*far.Mover
	n *lifeNode
}

func (m lifeMover) Get(mem []byte, from fabric.NodeID, at atu.NLA) error {
	m.n.step("get", true)
	defer m.n.step("got", true)
	return m.Mover.Get(mem, from, at)
}

func (m lifeMover) Put(mem []byte, to fabric.NodeID, at atu.NLA) error {
	m.n.step("put", true)
	defer m.n.step("was put", true)
	return m.Mover.Put(mem, to, at)
}

func newLifeRun(t *testing.T, faults []lifeAt) *lifeRun {
	t.Helper()
	r := &lifeRun{t: t, faults: faults}
	for i := range r.nodes {
		r.nodes[i] = r.node(i)
	}
	r.links, r.downs = r.join(r.nodes)
	return r
}

// node starts a node.
func (r *lifeRun) node(who int) *lifeNode {
	r.t.Helper()
	n := &lifeNode{run: r, who: who, card: fabrictest.NewNIC(r.t, fabric.NodeID(who+1))}
	if err := mem.NewFabric().Attach(n.card); err != nil {
		r.t.Fatal(err)
	}
	var server *Server
	var err error
	if n.mover, err = far.NewMover(n.card); err != nil {
		r.t.Fatal(err)
	}
	n.engine, err = far.New(n.card, far.Config{
		VPID: far.VPID, Direct: true, Resume: time.Hour,
		Hear: func(from fabric.NodeID, session uint64, b []byte) {
			n.step("hear", false)
			server.Hear(from, session, b)
		},
		Ended: func(from fabric.NodeID, session uint64) { server.FarDown(from, session) },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	n.node = nodes(r.t, 1, func(c *Config) {
		c.Node, c.Dial, c.Far, c.Mover = n.card.ID(), nil, lifeWay{n.engine, n}, lifeMover{n.mover, n}
		c.stepping = func(f *farPair, ev pairEvent) { n.step(fmt.Sprintf("%v, %v", f.state, ev), false) }
	})[0]
	server = n.Server
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.engine.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		server.Close()
		cancel()
		if err := errors.Join(<-done, n.engine.Close(), n.mover.Close()); err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(n.stop)
	return n
}

// join links the nodes, as their daemons do.
func (r *lifeRun) join(nodes [2]*lifeNode) (links [2]*stream.Link, downs [2]func()) {
	x, y := fabrictest.JoinStream(r.t, nodes[0].card, nodes[1].card, fabrictest.StreamConfig{Conns: 2}, nil)
	return [2]*stream.Link{x, y}, [2]func(){nodes[0].engine.Linked(2), nodes[1].engine.Linked(1)}
}

// step is called before each step. wait: the fault may be waited for.
func (n *lifeNode) step(what string, wait bool) {
	r := n.run
	r.mu.Lock()
	if n.dead {
		r.mu.Unlock()
		return
	}
	at := len(r.steps)
	r.steps = append(r.steps, what)
	if len(r.faults) == 0 || at < r.faults[0].step || r.busy {
		r.mu.Unlock()
		return
	}
	fault := r.faults[0].fault
	r.faults, r.busy, r.hit = r.faults[1:], true, r.hit+what+"; "
	r.faulty.Add(1)
	r.mu.Unlock()
	cut, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer r.faulty.Done()
		defer close(done)
		r.happen(n, fault, cut)
	}()
	<-cut
	if wait { // not for ever: the goroutine may be the link's
		select {
		case <-done:
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// happen has a fault happen at a node. It closes cut when the links are being closed.
func (r *lifeRun) happen(n *lifeNode, fault lifeFault, cut chan struct{}) {
	r.mu.Lock()
	links, downs, nodes := r.links, r.downs, r.nodes
	r.mu.Unlock()
	for _, l := range links {
		_ = l.Close() // its end is what is wanted
	}
	close(cut)
	for _, l := range links {
		<-l.Done()
	}
	former, late := downs, func() {}
	switch fault {
	case lifeCuts:
		downs[0]()
		downs[1]()
	case lifeReplaces:
		late = func() {
			time.Sleep(time.Millisecond)
			former[0]()
			former[1]()
		}
	case lifeKills, lifeKillsPeer:
		who := n.who
		if fault == lifeKillsPeer {
			who = 1 - who
		}
		downs[1-who]()
		r.mu.Lock()
		nodes[who].dead = true
		r.mu.Unlock()
		nodes[who].stop()
		nodes[who] = r.node(who)
	case lifeGivesUp:
		downs[0]()
		downs[1]()
		nodes[1-n.who].engine.Left(n.card.ID())
	}
	links, downs = r.join(nodes)
	late()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.links, r.downs, r.nodes, r.busy = links, downs, nodes, false
}

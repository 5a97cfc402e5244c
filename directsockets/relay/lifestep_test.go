package relay

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
)

// stepFault is what happens when a connection is about to take a step at one of its nodes.
type stepFault uint8

const (
	stepCuts      stepFault = iota // the link is away for a moment
	stepReplaces                   // the same, and the nodes hear of it late
	stepKills                      // the node is killed, and another one comes
	stepKillsPeer                  // the node at the other end is
	stepStops                      // the node is stopped until the other one has given it up
	stepFaults
)

func (f stepFault) String() string {
	return [...]string{"the link is cut", "the link is replaced", "the node is killed", "its peer is killed", "the node is stopped"}[f]
}

// stepAt is a fault at a step, as both nodes together count theirs.
type stepAt struct {
	step  int
	fault stepFault
}

// stepRow is a row of lifeNext.
type stepRow struct {
	state lifeState
	event lifeEvent
}

func (r stepRow) String() string { return fmt.Sprintf("%v, %v", r.state, r.event) }

// stepRun is a connection's life with faults.
type stepRun struct {
	t      *testing.T
	fabric *mem.Fabric
	hosts  [2]*host // the client's, the server's: those that live

	mu     sync.Mutex
	faults []stepAt        // +checklocks:mu
	steps  []stepRow       // +checklocks:mu
	hit    map[int]stepRow // +checklocks:mu
	busy   bool            // +checklocks:mu
	dead   map[*host]bool  // +checklocks:mu
	halts  chan stepHalt
	goBack context.Context // of GoBack
	over   func()          // ends it
	back   sync.WaitGroup  // runs it
	end    chan struct{}   // the run is over
}

// stepHalt is a node that stands before a step.
type stepHalt struct {
	who   int
	fault stepFault
	bells []int // of its connections
	goOn  chan struct{}
}

func newStepRun(t *testing.T, faults []stepAt) *stepRun {
	t.Helper()
	r := &stepRun{t: t, fabric: mem.NewFabric(), faults: faults, hit: make(map[int]stepRow), dead: make(map[*host]bool), halts: make(chan stepHalt), end: make(chan struct{})}
	r.goBack, r.over = context.WithCancel(t.Context())
	for i := range r.hosts {
		r.hosts[i] = r.node(i)
	}
	partners(r.hosts[:])
	return r
}

// node makes a node of the fabric.
func (r *stepRun) node(i int) *host {
	r.t.Helper()
	card, err := nic.New(nic.Config{Node: fabric.NodeID(i + 1)})
	if err != nil {
		r.t.Fatal(err)
	}
	var h *host
	born := make(chan struct{})
	h = newHost(r.t, card, func(c *Config) {
		alone(c)
		c.Patience = func() time.Duration { return time.Hour }
		c.stepping = func(c *conn, ev lifeEvent) { <-born; r.stepping(i, h, c, ev) }
	})
	// Until then it polls in the goroutine of who interrupts it, and would stop the other node.
	until(r.t, "the node polls by itself", func() bool {
		return h.engine.doLater(func() {}) == nil && h.engine.napi.Stats().ThreadRuns > 0
	})
	if err := r.fabric.Attach(card); err != nil {
		r.t.Fatal(err)
	}
	close(born)
	return h
}

// stepping is called before a step of a connection, by its node.
func (r *stepRun) stepping(i int, h *host, c *conn, ev lifeEvent) {
	r.mu.Lock()
	if r.dead[h] {
		r.mu.Unlock()
		return
	}
	n, row := len(r.steps), stepRow{c.state, ev}
	r.steps = append(r.steps, row)
	if len(r.faults) == 0 || n < r.faults[0].step || r.busy {
		r.mu.Unlock()
		return
	}
	halt := stepHalt{who: i, fault: r.faults[0].fault, bells: h.bells(c), goOn: make(chan struct{})}
	r.faults = r.faults[1:]
	r.hit[len(r.hit)] = row
	r.busy = true
	r.mu.Unlock()
	select {
	case r.halts <- halt:
		<-halt.goOn
	case <-r.end:
	}
}

// bells are the doorbells that end when a node is killed. Its goroutine calls it.
func (h *host) bells(more ...*conn) (all []int) {
	for _, c := range h.engine.conns {
		more = append(more, c)
	}
	for _, c := range more {
		if fd := c.relay.Bell(); fd >= 0 {
			if fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
				all = append(all, fd)
			}
		}
	}
	return all
}

// look waits until a node has done what it was asked.
func (r *stepRun) look(i int, f func(e *Engine)) {
	done := make(chan struct{})
	if r.hosts[i].engine.doLater(func() { f(r.hosts[i].engine); close(done) }) == nil {
		<-done
	}
}

// lookAll waits until both nodes have done what they were asked, so often.
func (r *stepRun) lookAll(times int) {
	for range times {
		for who := range r.hosts {
			r.look(who, func(*Engine) {})
		}
	}
}

// links has both nodes hear that the link is up, or down.
func (r *stepRun) links(up bool) {
	for i, h := range r.hosts {
		if up {
			h.engine.PeerUp(fabric.NodeID(2 - i))
		} else {
			h.engine.PeerDown(fabric.NodeID(2 - i))
		}
	}
}

func (r *stepRun) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Error(err)
	}
}

// carry has the faults happen.
func (r *stepRun) carry() {
	for n := 0; ; n++ {
		var halt stepHalt
		select {
		case halt = <-r.halts:
		case <-r.end:
			return
		}
		goOn := sync.OnceFunc(func() { close(halt.goOn) })
		r.t.Cleanup(goOn)
		i, card := halt.who, r.hosts[halt.who].nic
		switch halt.fault {
		case stepCuts:
			r.must(r.fabric.Detach(card))
			r.links(false)
			if n%2 == 0 {
				goOn()
				r.lookAll(1)
			}
			r.must(r.fabric.Attach(card))
			r.links(true)
			goOn()
		case stepReplaces:
			r.must(r.fabric.Detach(card))
			r.must(r.fabric.Attach(card))
			goOn()
			r.lookAll(20)
			r.links(false)
			r.links(true)
		case stepKills:
			r.kill(i, halt.bells)
		case stepKillsPeer:
			bells := make(chan []int, 1)
			h := r.hosts[1-i]
			release := make(chan struct{})
			r.must(h.engine.doLater(func() { bells <- h.bells(); <-release }))
			r.t.Cleanup(func() { close(release) })
			r.kill(1-i, <-bells)
			goOn()
		case stepStops:
			r.must(r.fabric.Detach(card))
			r.links(false)
			r.look(1-i, giveUp)
			r.must(r.fabric.Attach(card))
			r.links(true)
			goOn()
		}
		for _, fd := range halt.bells {
			_ = unix.Close(fd)
		}
		r.mu.Lock()
		r.busy = false
		r.mu.Unlock()
	}
}

// giveUp has what is suspended wait for too long.
func giveUp(e *Engine) {
	for _, c := range e.conns {
		if isSuspended(c.state) && !e.hasWaitedTooLong(c, e.cfg.Patience) && !c.owes.IsZero() {
			c.owes = c.owes.Add(-2 * time.Hour)
		}
	}
	e.lookAgain()
}

// living are the nodes, once no fault is under way.
func (r *stepRun) living() (hosts [2]*host) {
	r.t.Helper()
	until(r.t, "the fault has happened", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		hosts = r.hosts
		return !r.busy
	})
	return hosts
}

// kill ends a node, which stands still, and has another one come.
func (r *stepRun) kill(i int, bells []int) {
	h := r.hosts[i]
	r.mu.Lock()
	r.dead[h] = true
	r.mu.Unlock()
	r.must(r.fabric.Detach(h.nic))
	for _, fd := range bells {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR)
	}
	r.hosts[1-i].engine.PeerDown(h.nic.ID())
	next := r.node(i)
	r.mu.Lock()
	r.hosts[i] = next
	r.mu.Unlock()
	partners(r.hosts[:])
	r.links(true)
}

// Whatever happens to a node or to the link before whichever step of a connection's life, and again
// before a step after that, each program has all that the other one has sent, or one of them is
// told, and nothing is left behind.
func TestLifeFaults(t *testing.T) {
	tried := make(map[stepRow][stepFaults]bool)
	runs := 0
	live := func(s *stepStory, faults ...stepAt) (steps int) {
		taken, hit := s.live(t, faults...)
		runs++
		for i, row := range hit {
			by := tried[row]
			by[faults[i].fault] = true
			tried[row] = by
		}
		return len(taken)
	}
	for i := range stepStories {
		s := &stepStories[i]
		for at := range live(s) {
			for f := range stepFaults {
				steps := live(s, stepAt{at, f})
				if testing.Short() || f == stepKills || f == stepKillsPeer {
					continue
				}
				for then := at + 1; then < steps; then++ {
					live(s, stepAt{at, f}, stepAt{then, stepFault(runs) % stepFaults})
				}
			}
		}
	}
	t.Logf("%d runs", runs)
	for f := range stepFaults {
		rows, all := 0, 0
		for s, events := range lifeNext {
			for ev, step := range events {
				if step.to != stateNone {
					all++
				}
				if tried[stepRow{lifeState(s), lifeEvent(ev)}][f] {
					rows++
				}
			}
		}
		t.Logf("%v: before %d rows of %d", f, rows, all)
	}
}

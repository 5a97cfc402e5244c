package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/segment"
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
	if err == nil {
		err = r.fabric.Attach(card)
	}
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

// stepProgram is one of the two programs.
type stepProgram struct {
	name   string
	e      *segment.End
	data   []byte // that it sends
	sent   int    // bytes of data, in the segment
	back   int    // of these, bytes that it has written to the shadow instead
	got    []byte
	closes int    // after so many bytes that have come; below 0: after all
	aborts bool   // by a reset
	rx     error  // why nothing more comes
	closed bool   // it has closed before
	mid    func() // is called once some bytes have come
}

// run runs the program until its connection is over.
func (p *stepProgram) run(r *stepRun) {
	const again, promoted, down, over = 0, 1, 2, 3
	tx, buf := again, make([]byte, 1<<14)
	chunks := []int{50, 3000, 20_000, 400}
	limit := time.Now().Add(hang)
	for turn := 0; ; {
		p.e.Awake()
		if p.rx == nil {
			p.e.PromotedAt()
			n, err := p.e.Recv(buf)
			p.got = append(p.got, buf[:n]...)
			if err != nil && err != segment.ErrAgain && err != segment.ErrNotPromoted {
				p.rx = err
			}
		}
		if p.mid != nil && len(p.got) >= 3000 {
			p.mid()
			p.mid = nil
		}
		var err error
		switch {
		case tx == over:
		case p.e.FallenBack():
			err = p.e.ReturnToTCP(func(b []byte) (int, error) { p.back += len(b); return len(b), nil })
			if tx = over; err != nil {
				r.t.Errorf("%s returns: %v", p.name, err)
			}
			err = nil
		case tx == again:
			if err = p.e.Promote(0); err == nil {
				tx = promoted
			}
		case p.sent < len(p.data):
			var n int
			n, err = p.e.Send(p.data[p.sent:min(len(p.data), p.sent+chunks[turn%len(chunks)])])
			p.sent += n
			turn++
		case tx == promoted:
			if err = p.e.Shutdown(); err == nil {
				tx = down
			}
		}
		if err != nil && err != segment.ErrAgain && !p.e.PeerFallenBack() && p.e.Back() == 0 {
			tx = over
		}
		done := p.rx == io.EOF && tx == down
		if done || p.closes >= 0 && len(p.got) >= p.closes && tx >= promoted {
			p.closed = true
			_ = p.e.Close(p.aborts)
			return
		}
		if p.rx != nil && p.e.Err() != nil || p.e.Err() != nil && tx == again || p.e.PeerState() == segment.StateWithdrawn && p.e.Side() == segment.Client {
			return
		}
		if time.Now().After(limit) {
			list, _ := r.hosts[0].engine.Connections()
			others, _ := r.hosts[1].engine.Connections()
			r.t.Errorf("%s never ends: %d of %d sent, %d have come (%v), %v; nodes: %+v, %+v", p.name, p.sent, len(p.data), len(p.got), p.rx, p.e.Err(), list, others)
			return
		}
		time.Sleep(10 * time.Microsecond)
	}
}

// told is what the program knows of the end.
func (p *stepProgram) told() string {
	switch {
	case p == nil:
		return "nobody there"
	case p.closed:
		return "has closed"
	}
	return fmt.Sprint(p.rx, ", ", p.e.Err())
}

func (p *stepProgram) wasReset() bool {
	return p != nil && (p.e.Side() == segment.Server || p.e.Attached()) && (errors.Is(p.rx, segment.ErrReset) || !p.closed && p.e.Err() == segment.ErrReset)
}

// stepStory is what the programs of a connection do.
type stepStory struct {
	name   string
	client func(r *stepRun, p *stepProgram) // is called before it runs
	server func(r *stepRun, p *stepProgram) // likewise
	refuse bool                             // the server does
	leave  bool                             // nobody takes the offer
	cancel bool                             // the client takes it back
	resets bool                             // one may get a reset without a fault
}

var stepStories = []stepStory{
	{name: "both send"},
	{name: "the client closes early", client: func(_ *stepRun, p *stepProgram) { p.closes = 0; p.data = p.data[:100] }},
	{name: "the server closes early", server: func(_ *stepRun, p *stepProgram) { p.closes = 100 }},
	{name: "the client aborts", client: func(_ *stepRun, p *stepProgram) { p.closes, p.aborts = 100, true }, resets: true},
	{name: "the server refuses", refuse: true},
	{name: "nobody takes it", leave: true},
	{name: "the client cancels", cancel: true},
	{name: "the client's node ends", client: goesBackAt(0)},
	{name: "the server's node ends", client: goesBackAt(1)},
	{name: "both nodes end", client: goesBackAt(2)},
	{name: "a node takes its program for faulty", client: func(r *stepRun, p *stepProgram) {
		p.mid = func() {
			e := r.living()[0].engine
			_ = e.doLater(func() {
				for _, c := range e.conns {
					e.failConn(c, segment.ErrCorrupt)
				}
			})
		}
	}, resets: true},
}

func goesBackAt(who int) func(r *stepRun, p *stepProgram) {
	return func(r *stepRun, p *stepProgram) {
		p.mid = func() {
			for i, h := range r.living() {
				if who == i || who == 2 {
					r.back.Go(func() { h.engine.GoBack(r.goBack) })
				}
			}
		}
	}
}

// live has the programs of a story live through faults, and checks what they know in the end. It
// returns the steps that were taken, and those before which a fault came.
func (s *stepStory) live(t *testing.T, faults ...stepAt) (steps []stepRow, hit map[int]stepRow) {
	t.Helper()
	name := fmt.Sprintf("%s, %v", s.name, faults)
	resets := s.resets
	for _, f := range faults {
		resets = resets || f.fault > stepReplaces
	}
	t.Run(name, func(t *testing.T) {
		r := newStepRun(t, faults)
		var carry, work sync.WaitGroup
		carry.Go(r.carry)
		first := r.hosts
		client := &stepProgram{name: "the client", data: pattern(1, 50_000), closes: -1}
		var server *stepProgram
		size := segment.Config{Slots: 64, Ring: 1 << 16}
		e, err := r.offers(size)
		if err == nil {
			client.e = e
			if s.client != nil {
				s.client(r, client)
			}
			clientOver := make(chan struct{})
			work.Go(func() {
				defer close(clientOver)
				if s.cancel {
					e.Withdraw()
					_ = e.Close(false)
					client.closed = true
					return
				}
				client.run(r)
			})
			work.Go(func() {
				var o Offer
				select {
				case o = <-first[1].offers:
				case <-clientOver:
					return
				}
				if s.leave {
					o.close(t)
					return
				}
				server = &stepProgram{name: "the server", data: pattern(2, 50_000), closes: -1}
				e, err := r.takes(o, s.refuse)
				if server.e = e; err != nil || s.refuse {
					server.closed = true
					return
				}
				if s.server != nil {
					s.server(r, server)
				}
				server.run(r)
			})
			work.Wait()
		}
		for i := range r.hosts {
			until(t, "the connection is forgotten", func() (gone bool) {
				h := r.living()[i]
				done := make(chan bool, 1)
				go func() { done <- h.count() == 0 && h.regions() == 0 }() // the node may be killed meanwhile
				for h == r.living()[i] {
					select {
					case gone = <-done:
						return gone
					case <-time.After(time.Millisecond):
					}
				}
				return false
			})
		}
		r.mu.Lock()
		r.faults = nil
		r.mu.Unlock()
		r.over()
		r.back.Wait()
		for i, h := range r.living() {
			if n := h.engine.Stats().Connections; n != 0 {
				t.Errorf("node %d counts %d connections", i, n)
			}
			r.look(i, func(e *Engine) {
				for _, n := range e.nodes {
					if n.conns != 0 {
						t.Errorf("node %d counts %d connections to its peer", i, n.conns)
					}
				}
			})
		}
		r.mu.Lock()
		steps, hit = r.steps, r.hit
		r.mu.Unlock()
		for { // offers that nobody has taken
			select {
			case o := <-first[1].offers:
				o.close(t)
				continue
			default:
			}
			break
		}
		if client.e != nil {
			checkStepEnd(t, client, server, resets)
			checkStepEnd(t, server, client, resets)
		}
		close(r.end)
		carry.Wait()
		if t.Failed() {
			t.Logf("client: %v, server: %v; faults before %v of %v", client.told(), server.told(), hit, steps)
		}
	})
	return steps, hit
}

// checkStepEnd checks what a program has received, and knows.
func checkStepEnd(t *testing.T, p, from *stepProgram, resets bool) {
	t.Helper()
	if p == nil || p.e == nil {
		return
	}
	sent, direct := []byte(nil), 0
	if from != nil {
		sent, direct = from.data, from.sent-from.back
	}
	switch {
	case !bytes.HasPrefix(sent, p.got):
		t.Errorf("%s has other bytes than were sent", p.name)
	case p.wasReset() && !resets:
		t.Errorf("%s gets a reset", p.name)
	case errors.Is(p.rx, segment.ErrCorrupt):
		t.Errorf("%s finds its node to break the protocol", p.name)
	case p.rx == io.EOF && len(p.got) != len(sent):
		t.Errorf("%s finds the end after %d bytes of %d", p.name, len(p.got), len(sent))
	case p.closed && p.rx == nil || p.wasReset():
	case len(p.got) != direct:
		t.Errorf("%s has %d bytes of %d, and nobody is told", p.name, len(p.got), direct)
	}
}

// offers has the client offer its connection. Its node may be killed meanwhile.
func (r *stepRun) offers(size segment.Config) (*segment.End, error) {
	seg, err := segment.Create(segment.Info{Nonce: segment.NewNonce(), Client: clientAddr, Server: serverAddr}, size)
	if err != nil {
		return nil, err
	}
	bells, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	e, err := segment.NewEnd(seg, segment.Client, bells[0], nil)
	if err != nil {
		return nil, err
	}
	r.t.Cleanup(func() { _ = e.Close(false); seg.Retire() })
	fd, err := unix.FcntlInt(uintptr(seg.Fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	h := r.hosts[0]
	go func() { _ = h.engine.Offer(2, 7, false, fd, bells[1]) }() // if it fails, the doorbell ends
	return e, nil
}

// takes has the server take an offer, or refuse it.
func (r *stepRun) takes(o Offer, refuse bool) (*segment.End, error) {
	seg, err := segment.Map(o.Segment)
	_ = unix.Close(o.Segment)
	if err != nil {
		_ = unix.Close(o.Bell)
		return nil, err
	}
	e, err := segment.NewEnd(seg, segment.Server, o.Bell, nil)
	if err != nil {
		return nil, err
	}
	r.t.Cleanup(func() { _ = e.Close(false); seg.Retire() })
	if !refuse {
		return e, e.Attach()
	}
	e.Withdraw()
	return e, e.Close(false)
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

package ports

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
	"exnet/internal/shm"
	"exnet/node/rpc"
)

// lifePort is a port of a program of a story.
type lifePort struct {
	r    *lifeRun
	name string
	conn *net.UnixConn
	unit wire.Unit
	at   wire.Addr
	in   flow // from the peer
	out  flow // to it
	bell int  // of out

	hears chan lifeHeard // what its node says; closed when the node has ended
	news  []string       // that the peer is there, and that it has ended
	over  bool           // the node has ended

	memory, table *shm.Foreign // of RMA
}

type lifeHeard struct {
	wire.Message
	fds rpc.Descriptors
}

// lifeVPID is the VPID of the port at each node.
func lifeVPID(who int) fabric.VPID { return fabric.VPID(50 + who) }

// open opens the port of a node. It returns nil if the node is killed meanwhile.
func (r *lifeRun) open(who int, u wire.Unit, name string) *lifePort {
	r.t.Helper()
	r.mu.Lock()
	n := r.nodes[who]
	r.mu.Unlock()
	ask, _ := wire.Message{Op: wire.OpOpen, Unit: u, A: wire.Version, B: uint64(lifeVPID(who))}.AppendBinary(nil)
	p := &lifePort{r: r, name: name, unit: u, hears: make(chan lifeHeard, 64), bell: -1, conn: n.dial(r.t)}
	in, err := rpc.NewInbound(p.conn, wire.MessageSize, wire.Descriptors)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err = p.conn.Write(ask); err != nil {
		return nil
	}
	b, fds, err := in.Next()
	if err != nil {
		return nil
	}
	r.t.Cleanup(fds.Close)
	var m wire.Message
	if err := m.UnmarshalBinary(b); err != nil || m.Status != wire.StatusOK {
		r.t.Errorf("%s cannot be opened: %+v, %v", name, m, err)
		return nil
	}
	if p.at = m.Addr; u == fabric.UnitRMA {
		p.mapMemory(fds)
	}
	go func() {
		defer close(p.hears)
		for {
			b, fds, err := in.Next()
			var m wire.Message
			if err != nil || m.UnmarshalBinary(b) != nil {
				return
			}
			p.hears <- lifeHeard{m, fds}
		}
	}()
	return p
}

func (p *lifePort) mapMemory(fds rpc.Descriptors) {
	var err error
	if p.memory, err = shm.MapShared(fds[2], wire.MemorySize, wire.MemorySize, unix.F_SEAL_SHRINK, true); err == nil {
		p.table, err = shm.MapShared(fds[3], wire.TableSize, wire.TableSize, unix.F_SEAL_SHRINK, true)
	}
	if err != nil {
		p.r.t.Fatal(err)
	}
	p.r.t.Cleanup(p.memory.Retire)
	p.r.t.Cleanup(p.table.Retire)
	for i := range p.table.Memory().Words(0, lifePages) {
		p.table.Memory().Words(0, lifePages)[i].Store(uint64(i) + 1)
	}
}

// take takes note of what the node has said, other than an answer.
func (p *lifePort) take(h lifeHeard, ok bool) {
	switch {
	case !ok:
		p.over = true
	case h.Op == wire.OpFlow:
		p.news = append(p.news, "there")
		p.in = p.mapped(h.fds)
	case h.Op == wire.OpGone:
		p.news = append(p.news, "gone")
	default:
		p.r.t.Errorf("%s hears %+v", p.name, h.Message)
	}
}

func (p *lifePort) mapped(fds rpc.Descriptors) flow {
	f, err := mapFlow(p.unit, fds[0])
	if err != nil {
		p.r.t.Error(err)
		return flow{}
	}
	p.r.t.Cleanup(f.memory.Retire)
	_ = unix.Close(fds.Take(0))
	return f
}

// look takes note of what the node says.
func (p *lifePort) look() {
	select {
	case h, ok := <-p.hears:
		if !p.over {
			p.take(h, ok)
		}
	default:
	}
}

// gone returns whether a peer of the port has ended, or its own node.
func (p *lifePort) gone() bool { return p.over || slices.Contains(p.news, "gone") }

// alone returns whether the last peer has ended, or there was none.
func (p *lifePort) alone() bool { return p.over || len(p.news) == 0 || p.news[len(p.news)-1] == "gone" }

// connect connects the port. As long as there is no link, and never was a session, the far node is
// none: then it tries again.
func (p *lifePort) connect(to wire.Addr) (why wire.Status) {
	for limit := time.Now().Add(lifeLimit); ; time.Sleep(time.Millisecond) {
		if why = p.connectOnce(to); why != wire.StatusNoNode || p.over || time.Now().After(limit) {
			return why
		}
	}
}

func (p *lifePort) connectOnce(to wire.Addr) wire.Status {
	b, _ := wire.Message{Op: wire.OpConnect, Unit: p.unit, Addr: to}.AppendBinary(nil)
	if _, err := p.conn.Write(b); err != nil {
		p.over = true
	}
	for !p.over {
		h, ok := <-p.hears
		if !ok || h.Op != wire.OpConnect {
			p.take(h, ok)
			continue
		}
		if h.Status == wire.StatusOK {
			p.bell = h.fds.Take(1)
			p.r.t.Cleanup(func() { closeAll(p.bell) })
			p.out = p.mapped(h.fds)
		}
		return h.Status
	}
	return wire.StatusNoNode
}

// put writes to the flow; false: there is no room.
func (p *lifePort) put(word uint64, payload []byte) bool {
	m := p.out.memory.Memory()
	if p.out.pos-m.Words(wire.FlowHead, 1)[0].Load() >= uint64(p.out.slots) {
		return false
	}
	s := p.out.slot()
	s.Part(8, len(payload)).Fill(payload)
	shm.Publish()
	s.Words(0, 1)[0].Store(word | p.out.phase())
	p.out.pos++
	m.Words(wire.FlowTail, 1)[0].Swap(p.out.pos)
	if armed := &m.Words32(wire.FlowArmed, 1)[0]; armed.Load() != 0 && armed.Swap(0) != 0 {
		_, _ = unix.Write(p.bell, []byte{0}) // nobody may read it any more
	}
	return true
}

// get reads the next slot of the flow; false: there is none.
func (p *lifePort) get() (b []byte, ok bool) {
	if p.in.memory == nil {
		return nil, false
	}
	r := reader{flow: p.in}
	b = make([]byte, r.size-8)
	if _, ok = r.copyOldest(b); ok {
		r.releaseOldest()
		p.in = r.flow
	}
	return b, ok
}

// lifeStory is what the programs do.
type lifeStory struct {
	name string
	run  func(r *lifeRun, faults bool) // faults: some that end a session
}

var lifeStories = []lifeStory{
	{"messages both ways", func(r *lifeRun, faults bool) { r.messages(faults, -1) }},
	{"one closes early", func(r *lifeRun, faults bool) { r.messages(faults, 0) }},
	{"the other closes early", func(r *lifeRun, faults bool) { r.messages(faults, 1) }},
	{"one after the other", (*lifeRun).successors},
	{"operations both ways", func(r *lifeRun, faults bool) { r.operations(faults, -1) }},
	{"one closes in an operation", func(r *lifeRun, faults bool) { r.operations(faults, 1) }},
}

// lifeLimit is when a story has failed that does not go on.
const lifeLimit = 30 * time.Second

// both runs a program at each node.
func (r *lifeRun) both(u wire.Unit, program func(who int, p, to *lifePort)) {
	ports := [2]*lifePort{r.open(0, u, "port 0"), r.open(1, u, "port 1")}
	var all sync.WaitGroup
	for who := range ports {
		all.Go(func() { program(who, ports[who], ports[1-who]) })
	}
	all.Wait()
}

// messages has two programs send to each other. The program closer, unless it is below 0, closes
// when it has sent all.
func (r *lifeRun) messages(faults bool, closer int) {
	const count = 20
	var done sync.WaitGroup // each has all, or knows why not
	done.Add(2)
	r.both(fabric.UnitVELO, func(who int, p, to *lifePort) {
		status := p.connect(to.at)
		if status != wire.StatusOK && !faults && closer != 1-who {
			r.t.Errorf("%s cannot connect: status %d", p.name, status)
		}
		sent, got := uint64(0), uint64(0)
		limit := time.Now().Add(lifeLimit)
		finished := func() bool {
			if status != wire.StatusOK {
				return p.gone() || p.in.memory == nil || got == count
			}
			return (sent == count || p.gone()) && (got == count || p.gone() || who == closer)
		}
		for last := false; ; time.Sleep(10 * time.Microsecond) {
			p.look()
			if status == wire.StatusOK && sent < count && !p.gone() && p.put(8, binary.LittleEndian.AppendUint64(nil, sent)) {
				sent++
			}
			for b, ok := p.get(); ok; b, ok = p.get() {
				if n := binary.LittleEndian.Uint64(b); n != got {
					r.t.Errorf("%s has message %d, want %d", p.name, n, got)
				}
				got++
			}
			if last {
				break
			}
			if last = finished(); time.Now().After(limit) {
				r.t.Errorf("%s hangs: %d sent, %d have come, %v", p.name, sent, got, p.news)
				break
			}
		}
		done.Done()
		if closer < 0 && !p.gone() {
			done.Wait()
		}
		_ = p.conn.Close()
		if !faults && who != closer && got != count {
			r.t.Errorf("%s has %d of %d messages, %v", p.name, got, count, p.news)
		}
		if !faults && closer < 0 && p.gone() {
			r.t.Errorf("%s is told that its peer has ended", p.name)
		}
	})
}

// successors has programs with the same VPID send to another one, one after the other.
func (r *lifeRun) successors(faults bool) {
	server := r.open(0, fabric.UnitVELO, "the server")
	over := make(chan struct{})
	go func() {
		defer close(over)
		for round := range uint64(lifeRounds) {
			if !r.succeed(server, round, faults) {
				return
			}
		}
	}()
	defer server.conn.Close()
	defer func() { <-over }()
	got, heard, limit := uint64(0), 0, time.Now().Add(lifeLimit)
	take := func() {
		for b, ok := server.get(); ok; b, ok = server.get() {
			round, n := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
			if at := round*lifeCount + n; at != got && !(faults && n == 0 && at > got) {
				r.t.Errorf("the server has message %d of client %d, want %d of all", n, round, got)
			}
			got = round*lifeCount + n + 1
		}
	}
	for closed := false; ; time.Sleep(10 * time.Microsecond) {
		select {
		case <-over:
			closed = true
		default:
		}
		server.look()
		if n := len(server.news); n > heard {
			if server.news[heard] != []string{"there", "gone"}[heard%2] {
				r.t.Errorf("the server hears %v", server.news)
			}
			if take(); heard%2 == 1 && !faults && got != uint64(heard+1)/2*lifeCount {
				r.t.Errorf("the server hears of an end after %d messages", got)
			}
			heard++
		}
		if take(); server.over || closed && server.alone() && (faults || got == lifeRounds*lifeCount) {
			break
		}
		if time.Now().After(limit) {
			r.t.Errorf("the server hangs: %d messages, %v", got, server.news)
			break
		}
	}
	if !faults && (got != lifeRounds*lifeCount || len(server.news) != 2*lifeRounds) {
		r.t.Errorf("the server has %d messages, %v", got, server.news)
	}
}

// How many successors there are, and how many messages each sends: more than there is room for.
const lifeRounds, lifeCount = 3, 150

// succeed is one program of successors. It returns whether there is to be another one.
func (r *lifeRun) succeed(server *lifePort, round uint64, faults bool) (more bool) {
	p := r.open(1, fabric.UnitVELO, fmt.Sprintf("client %d", round))
	if p == nil {
		return false
	}
	defer p.conn.Close() // where it has not been closed
	if status := p.connect(server.at); status != wire.StatusOK {
		if !faults {
			r.t.Errorf("%s cannot connect: status %d", p.name, status)
		}
		return false
	}
	limit := time.Now().Add(lifeLimit)
	for i := uint64(0); i < lifeCount && !p.gone(); p.look() {
		if p.put(16, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, round), i)) {
			i++
		} else if time.Sleep(10 * time.Microsecond); time.Now().After(limit) {
			r.t.Errorf("%s hangs after %d messages", p.name, i)
			return false
		}
	}
	if p.gone() {
		if !faults {
			r.t.Errorf("%s is told that the server has ended", p.name)
		}
		return false
	}
	_ = p.conn.Close()
	eventually(r.t, "the port stays open", func() bool {
		r.mu.Lock()
		n := r.nodes[1]
		r.mu.Unlock()
		return len(n.Ports()) == 0
	})
	return true
}

// lifePages is how many pages of each port are registered.
const lifePages = 64

// lifeOp is an operation of a program. Each has memory of its own at both ends.
type lifeOp struct {
	kind       uint64
	size       int
	own, their int // how many notifications it has
}

var lifeOps = []lifeOp{
	{kindPut, 100, 1, 1}, {kindPut, farLeast + 300, 1, 1}, {kindGet, 64, 2, 1}, {kindGet, 5000, 2, 1},
	{kindLock, 0, 2, 1}, {kindNotify, 0, 1, 1}, {kindImmediate, 8, 1, 1}, {kindLock, 0, 2, 1}, {kindPut, 7000, 1, 1},
}

// lifeRoom is the memory of an operation.
const lifeRoom = 8 << 10

func (p *lifePort) bytes(who, op, n int) (at uint64, read func() []byte, fill func(b []byte)) {
	off := (who*16 + op) * lifeRoom
	m := p.memory.Memory().Part(wire.ArenaOff+off, n)
	return wire.Base(p.at.VPID) + uint64(off), func() []byte { return m.AppendTo(nil) }, func(b []byte) { m.Fill(b) }
}

// operations has two programs carry out operations on each other. The program closer, unless it is
// below 0, closes while those of the other one run.
func (r *lifeRun) operations(faults bool, closer int) {
	var ready, done sync.WaitGroup
	ready.Add(2)
	done.Add(2)
	scribble := make([]byte, lifeRoom)
	for i := range scribble {
		scribble[i] = 0xa5
	}
	var locked, maybe [2]int // by each: done for certain, or perhaps
	var ends [2]*lifePort
	r.both(fabric.UnitRMA, func(who int, p, to *lifePort) {
		ends[who] = p
		for k, o := range lifeOps {
			_, _, mine := p.bytes(who, k, lifeRoom)
			_, _, theirs := to.bytes(who, k, lifeRoom)
			data, zeros := pattern(lifeRoom, 16*who+k), make([]byte, lifeRoom)
			if o.kind == kindGet {
				data, zeros = zeros, data
			}
			mine(data)
			theirs(zeros)
		}
		ready.Done()
		ready.Wait()
		status := p.connect(to.at)
		if status != wire.StatusOK && !faults && closer < 0 {
			r.t.Errorf("%s cannot connect: status %d", p.name, status)
		}
		var notes, theirs, bad [16]int
		posted, failed := 0, 0
		limit := time.Now().Add(lifeLimit)
		all := func(have *[16]int, want func(o lifeOp) int) bool {
			for k, o := range lifeOps {
				if have[k] < want(o) {
					return false
				}
			}
			return true
		}
		note := func(b []byte) {
			rest := binary.LittleEndian.Uint64(b[8:])
			mode, err := int(rest>>55&63), rest>>61
			k, o := mode%16, lifeOps[mode%16]
			if mode/16 != who {
				if theirs[k]++; theirs[k] > o.their {
					r.t.Errorf("%s hears of operation %d of its peer %d times", p.name, k, theirs[k])
				}
				return
			}
			if notes[k]++; err != 0 {
				failed++
				bad[k]++
				notes[k] = o.own
			}
			if notes[k] > o.own || bad[k] > 1 {
				r.t.Errorf("%s hears of its operation %d %d times, of errors %d times", p.name, k, notes[k], bad[k])
			}
			if notes[k] != o.own || bad[k] > 0 {
				return
			}
			_, mine, fillMine := p.bytes(who, k, o.size)
			_, far, fillFar := to.bytes(who, k, o.size)
			want := pattern(lifeRoom, 16*who+k)[:o.size]
			if o.kind == kindImmediate {
				at, _, _ := p.bytes(who, k, o.size)
				want = binary.LittleEndian.AppendUint64(nil, at)
			}
			switch o.kind {
			case kindPut, kindImmediate:
				if !bytes.Equal(far(), want) {
					r.t.Errorf("%s: operation %d is done, with other bytes", p.name, k)
				}
				fillFar(scribble[:o.size])
			case kindGet:
				if !bytes.Equal(mine(), want) {
					r.t.Errorf("%s: operation %d is done, with other bytes", p.name, k)
				}
				fillMine(scribble[:o.size])
			case kindLock:
				locked[who]++
			}
		}
		for last := false; ; time.Sleep(10 * time.Microsecond) {
			p.look()
			if status == wire.StatusOK && posted < len(lifeOps) && !p.gone() {
				k := posted
				o := lifeOps[k]
				mine, _, _ := p.bytes(who, k, o.size)
				far, _, _ := to.bytes(who, k, o.size)
				read, write := mine, far
				switch o.kind {
				case kindGet:
					read, write = far, mine
				case kindLock:
					read, write = uint64(who), 1000<<32|1
				}
				b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, read), write)
				if p.put(16|uint64(o.size)<<opSize|o.kind<<opKind|7<<opSpec|uint64(who*16+k)<<opMode, b) {
					posted++
				}
			}
			for b, ok := p.get(); ok; b, ok = p.get() {
				note(b)
			}
			if last {
				break
			}
			last = p.gone() || status != wire.StatusOK && p.in.memory == nil ||
				all(&notes, func(o lifeOp) int { return o.own }) && (status != wire.StatusOK || all(&theirs, func(o lifeOp) int { return o.their })) ||
				who == closer && theirs[1] > 0
			if time.Now().After(limit) {
				r.t.Errorf("%s hangs: %d posted, %v, peer's %v, %v", p.name, posted, notes, theirs, p.news)
				break
			}
		}
		done.Done()
		if closer < 0 && !p.gone() {
			done.Wait()
		}
		for k := range posted {
			if lifeOps[k].kind == kindLock && (bad[k] > 0 || notes[k] < lifeOps[k].own) {
				maybe[who]++
			}
		}
		if !faults && closer < 0 && (failed > 0 || p.gone() || posted < len(lifeOps)) {
			r.t.Errorf("%s: %d operations fail, %v", p.name, failed, p.news)
		}
		for k, o := range lifeOps { // what was done once is not done again
			if notes[k] != o.own || bad[k] > 0 || o.size == 0 {
				continue
			}
			_, mine, _ := p.bytes(who, k, o.size)
			_, far, _ := to.bytes(who, k, o.size)
			if at := mine; (o.kind == kindGet && !bytes.Equal(at(), scribble[:o.size])) || o.kind != kindGet && !bytes.Equal(far(), scribble[:o.size]) {
				r.t.Errorf("%s: operation %d was carried out again", p.name, k)
			}
		}
		_ = p.conn.Close()
	})
	for who, to := range []*lifePort{ends[1], ends[0]} {
		if n := int(to.memory.Memory().Words32(who*4, 1)[0].Load()); n < locked[who] || n > locked[who]+maybe[who] {
			r.t.Errorf("%d operations of port %d on a lock are done, and %d may be: %d were carried out", locked[who], who, maybe[who], n)
		}
	}
}

// live has the programs of a story live through faults. It returns how many steps were taken.
func (s *lifeStory) live(t *testing.T, faults ...lifeAt) (steps int) {
	t.Helper()
	t.Run(fmt.Sprintf("%s, %v", s.name, faults), func(t *testing.T) {
		r := newLifeRun(t, faults)
		ends := false
		for _, f := range faults {
			ends = ends || f.fault.ends()
		}
		s.run(r, ends)
		r.mu.Lock()
		steps = len(r.steps)
		r.faults = nil
		r.mu.Unlock()
		r.faulty.Wait()
		for _, n := range r.nodes {
			n.idle(t)
			eventually(t, "memory stays registered", func() bool { return n.card.ATU().Stats().Regions == 0 })
			eventually(t, "a pair or a request stays", func() bool {
				n.mu.Lock()
				defer n.mu.Unlock()
				left := n.lingersAll
				for _, f := range n.fars {
					left += len(f.pairs) + len(f.asked) + len(f.streams)
				}
				return left == 0
			})
		}
		if t.Failed() {
			t.Logf("fault before: %s of %v", r.hit, r.steps)
		}
	})
	return steps
}

// Whatever happens to a node or to the link before whichever step of a pair, message between the
// nodes or move of bytes: each message comes once and in order, each operation is carried out once,
// or a port hears that it failed or that its peer has ended; and nothing stays.
func TestFarLifeFaults(t *testing.T) {
	runs := 0
	for i := range lifeStories {
		s := &lifeStories[i]
		steps := s.live(t)
		stride := 1 // or about as many steps as the other stories have
		if steps > 300 {
			stride = 7
		}
		if testing.Short() {
			stride *= 5
		}
		for at := i % stride; at < steps; at += stride {
			for f := range lifeFaults {
				s.live(t, lifeAt{at, f})
				runs++
			}
		}
		t.Logf("%s: %d steps", s.name, steps)
	}
	t.Logf("%d runs with a fault", runs)
}

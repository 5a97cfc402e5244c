package ports

import (
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
	"exnet/internal/shm"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
	"exnet/ports/portstest"
)

// liar is a Far to a node of another host that does as it likes: send gets what it is sent.
type liar struct {
	send func(wire.Message) error
	ends atomic.Uint64 // of sessions
}

func (*liar) Reaches(fabric.NodeID) bool { return true }

// Send gives a slot to send as a message without a number.
func (l *liar) Send(_ fabric.NodeID, session uint64, b []byte) error {
	if session != l.session() {
		return fabric.ErrPeerDown
	}
	if s, _, ok := wire.CutSlot(b); ok {
		return l.send(wire.Message{Op: wire.OpFarSlot, B: uint64(s.Word), C: uint64(s.Stream)})
	}
	var m wire.Message
	if err := m.UnmarshalBinary(b[:wire.MessageSize]); err != nil {
		return err
	}
	return l.send(m)
}

func (l *liar) TrySend(to fabric.NodeID, session uint64, b []byte) error {
	return l.Send(to, session, b)
}

// Session implements Far.
func (l *liar) Session(fabric.NodeID) (uint64, error) { return l.session(), nil }

// session is that of now: each end of one begins the next.
func (l *liar) session() uint64 { return 1 + l.ends.Load() }

func (*liar) Flush(fabric.NodeID) {}

const farAway fabric.NodeID = 9

// liesTo starts a node whose only far node is the liar.
func liesTo(t *testing.T) (*node, *liar) {
	l := new(liar)
	l.send = func(wire.Message) error { return nil }
	n := nodes(t, 1, func(c *Config) { c.Dial, c.Far = nil, l })[0]
	n.farTime = 100 * time.Millisecond
	t.Cleanup(func() { n.FarDown(farAway, l.session()) })
	return n, l
}

// farSession is the session with the liar.
func (n *node) farSession() uint64 { return n.cfg.Far.(*liar).session() }

// endSession ends the session with the liar.
func (n *node) endSession() {
	over := n.farSession()
	n.cfg.Far.(*liar).ends.Add(1)
	n.FarDown(farAway, over)
}

func (n *node) hear(m wire.Message) {
	b, _ := m.AppendBinary(nil)
	n.Hear(farAway, n.farSession(), b)
}

// openAt opens a VELO port with a VPID of its own, or any (0), and has it count as a's.
func (n *node) openAt(t *testing.T, v fabric.VPID, a caller.Account) (*net.UnixConn, wire.Addr, []int) {
	t.Helper()
	conn := n.dial(t)
	r, fds := askAll(t, conn, wire.Message{Op: wire.OpOpen, Unit: fabric.UnitVELO, A: wire.Version, B: uint64(v)})
	if r.Status != wire.StatusOK {
		t.Fatalf("open: %+v", r)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports[fabric.UnitVELO][r.Addr.VPID].account = a
	return conn, r.Addr, fds
}

// A node that never answers holds a program for a while only, and nothing of its port stays.
func TestSilentFar(t *testing.T) {
	n, _ := liesTo(t)
	conn, _, _ := n.openAt(t, 0, caller.Root)
	for _, m := range []wire.Message{
		{Op: wire.OpConnect, Unit: fabric.UnitVELO, Addr: wire.Addr{Node: farAway, VPID: 40}},
		{Op: wire.OpRegister, Unit: fabric.UnitVELO, Addr: wire.Addr{Node: farAway}},
	} {
		if r := portstest.Ask(t, conn, m); r.Status != wire.StatusNoNode {
			t.Errorf("operation %d: status %d", m.Op, r.Status)
		}
	}
	conn.Close()
	n.idle(t)
	n.mu.Lock()
	defer n.mu.Unlock()
	if f := n.fars[farAway]; len(f.asked) != 0 || len(f.pairs) != 0 {
		t.Errorf("%d requests and %d pairs are left", len(f.asked), len(f.pairs))
	}
}

// A node that asks and takes no answers: what waits for it is bounded, and one goroutine waits.
func TestFarFlood(t *testing.T) {
	n, l := liesTo(t)
	stuck := make(chan struct{})
	l.send = func(wire.Message) error { <-stuck; return fabric.ErrPeerDown }
	before := runtime.NumGoroutine()
	for i := range farPosts + 1000 {
		n.hear(wire.Message{Op: []wire.Op{wire.OpRegister, wire.OpFarConnect, wire.OpFarPut}[i%3], Number: 1, Unit: fabric.UnitRMA, Addr: wire.Addr{VPID: 40}, A: 40})
	}
	if now := runtime.NumGoroutine(); now > before+4 {
		t.Errorf("%d goroutines, %d before", now, before)
	}
	n.mu.Lock()
	if got := len(n.fars[farAway].posts); got > farPosts {
		t.Errorf("%d answers wait", got)
	}
	n.mu.Unlock()
	close(stuck)
	eventually(t, "the node is not down", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.fars) == 0
	})
}

// A far node connects to a port while the node has no descriptor left, and the port ends: the next
// port with this VPID is another program's, and is reached.
func TestFarVPIDReused(t *testing.T) {
	n, l := liesTo(t)
	answers := make(chan wire.Message, 8)
	l.send = func(m wire.Message) error { answers <- m; return nil }
	connect := func() wire.Status {
		n.hear(wire.Message{Op: wire.OpFarConnect, Number: 1, Unit: fabric.UnitVELO, Addr: wire.Addr{Node: 1, VPID: 50}, A: 60, B: uint64(os.Getuid())})
		return (<-answers).Status
	}
	conn, _, _ := n.openAt(t, 50, caller.Root)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	got := connect()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if got != wire.StatusFull {
		t.Fatalf("without descriptors: status %d", got)
	}
	conn.Close()
	n.idle(t)
	n.openAt(t, 50, caller.Root)
	if got := connect(); got != wire.StatusOK {
		t.Errorf("the next port: status %d", got)
	}
}

// pairFar opens a port, connects it to a far one, which says yes, and maps the flow.
func (n *node) pairFar(t *testing.T, to fabric.VPID, a caller.Account) (_ *net.UnixConn, _ flow, bell int) {
	t.Helper()
	conn, _, _ := n.openAt(t, 0, a)
	r, fds := askAll(t, conn, wire.Message{Op: wire.OpConnect, Unit: fabric.UnitVELO, Addr: wire.Addr{Node: farAway, VPID: to}})
	for r.Op == wire.OpFlow { // it comes first
		r, fds = hearAll(t, conn)
	}
	if r.Status != wire.StatusOK || len(fds) != 2 {
		t.Fatalf("connect: %+v", r)
	}
	f, err := mapFlow(fabric.UnitVELO, fds[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.memory.Retire)
	ring(t, fds[1])
	return conn, f, fds[1]
}

func ring(t *testing.T, bell int) {
	t.Helper()
	if _, err := unix.Write(bell, []byte{0}); err != nil {
		t.Fatal(err)
	}
}

// put fills a slot, whether there is room or not.
func (f *flow) put() {
	shm.Publish()
	f.slot().Words(0, 1)[0].Store(1 | f.phase())
	f.pos++
}

// both runs a test with a far node that answers each message, and one that counts slots.
func both(t *testing.T, f func(t *testing.T, features uint64)) {
	for features, name := range []string{"answers", 2: "counts"} {
		if name != "" {
			t.Run(name, func(t *testing.T) { f(t, uint64(features)) })
		}
	}
}

// yes has the liar say yes to each connect; other sends go to it.
func (l *liar) yes(n *node, features uint64, other func(wire.Message) error) {
	l.send = func(m wire.Message) error {
		if m.Op != wire.OpFarConnect {
			return other(m)
		}
		go n.hear(wire.Message{Op: m.Op, Number: m.Number | rpc.Answered, Addr: m.Addr, Unit: m.Unit, A: wire.Base(m.Addr.VPID), B: features})
		return nil
	}
}

// Programs send to a port of another host that takes nothing, and end, one after the other: what
// stays of them is bounded.
func TestFarLingers(t *testing.T) { both(t, testFarLingers) }

func testFarLingers(t *testing.T, features uint64) {
	const evil caller.Account = 4711
	n, l := liesTo(t)
	l.yes(n, features, func(wire.Message) error { return nil })
	for i := range 2 * farLingers {
		conn, f, bell := n.pairFar(t, fabric.VPID(32+i%100), evil)
		for range f.slots {
			f.put()
		}
		ring(t, bell)
		if features&farCounts != 0 { // all are on their way: others wait for room
			head := f.memory.Memory().Words(wire.FlowHead, 1)
			eventually(t, "the node sends nothing", func() bool { return head[0].Load() == f.pos })
			f.put()
		}
		conn.Close()
		n.idle(t)
	}
	eventually(t, "more linger than may", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		far := n.fars[farAway]
		return n.lingers[evil] <= farLingers && n.lingersAll <= farLingers && len(far.asked) <= farLingers*(farWindow+2) && len(far.streams) <= farLingers
	})
	n.endSession()
	eventually(t, "some linger when the node is gone", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.lingers) == 0 && n.lingersAll == 0
	})
}

// A process writes to its flow for ever, also when its port has ended: no more is sent than it had
// written.
func TestFarWritesAfterEnd(t *testing.T) { both(t, testFarWritesAfterEnd) }

func testFarWritesAfterEnd(t *testing.T, features uint64) {
	n, l := liesTo(t)
	gate, ended := make(chan struct{}), make(chan struct{})
	var f flow
	var head *atomic.Uint64
	most := 0
	sent := 0
	l.yes(n, features, func(m wire.Message) error {
		if m.Op == wire.OpFarGone {
			close(ended)
			return nil
		}
		if <-gate; m.Op != wire.OpFarSlot && m.Op != wire.OpFarTell {
			return nil
		}
		if sent++; sent > 2*most {
			return fabric.ErrPeerDown
		}
		for f.pos-head.Load() < uint64(f.slots) { // the flow is never empty
			f.put()
		}
		if m.Op == wire.OpFarSlot {
			go n.hear(wire.Message{Op: wire.OpFarTaken, Unit: fabric.UnitVELO, B: uint64(sent), C: m.C})
		} else {
			go n.hear(wire.Message{Op: m.Op, Number: m.Number | rpc.Answered, Unit: m.Unit})
		}
		return nil
	})
	conn, theirs, _ := n.pairFar(t, 40, caller.Root)
	f, head = theirs, &theirs.memory.Memory().Words(wire.FlowHead, 1)[0]
	if most = f.slots + 1; features&farCounts != 0 { // the carrier looks for the end before each burst
		most = f.slots + burst
	}
	for range f.slots {
		f.put()
	}
	conn.Close()
	n.idle(t)
	close(gate)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the node sends for a port that has ended")
	}
	if sent > most {
		t.Errorf("%d messages were sent of %d slots", sent, f.slots)
	}
}

// A far node says that it has more slots than were sent, or sends more than our port has room for:
// the pair ends, and the port hears of it.
func TestFarSlotsHostile(t *testing.T) {
	for name, lie := range map[string]func(n *node, ours fabric.VPID, stream uint64){
		"taken": func(n *node, _ fabric.VPID, stream uint64) {
			n.hear(wire.Message{Op: wire.OpFarTaken, Unit: fabric.UnitVELO, B: 2, C: stream})
		},
		"too many": func(n *node, ours fabric.VPID, _ uint64) {
			for range 3 * (farSlots + farWindow) {
				n.hearSlotOf(40, ours, 1)
			}
		},
		"too long": func(n *node, ours fabric.VPID, _ uint64) { n.hearSlotOf(40, ours, 127) },
	} {
		t.Run(name, func(t *testing.T) {
			n, l := liesTo(t)
			streams := make(chan uint64, 1)
			l.yes(n, farCounts, func(m wire.Message) error {
				if m.Op == wire.OpFarSlot {
					streams <- m.C
				}
				return nil
			})
			conn, f, bell := n.pairFar(t, 40, caller.Root)
			f.put()
			ring(t, bell)
			stream := <-streams
			var ours fabric.VPID
			n.mu.Lock()
			for p := range n.fars[farAway].pairs {
				ours = p.ours
			}
			n.mu.Unlock()
			lie(n, ours, stream)
			if r, _ := hearAll(t, conn); r.Op != wire.OpGone || r.Addr != (wire.Addr{Node: farAway, VPID: 40}) {
				t.Errorf("the port heard %+v", r)
			}
		})
	}
}

// hearSlotOf sends a slot whose status says that it has size bytes.
func (n *node) hearSlotOf(from, to fabric.VPID, size uint32) {
	var b [wire.SlotSize + 8]byte
	wire.Slot{From: from, To: to, Stream: 7, Word: size}.Put((*[wire.SlotSize]byte)(b[:]))
	n.Hear(farAway, n.farSession(), b[:])
}

// A port writes a slot, and is held up before it looks whether the node waits. Meanwhile the node
// takes the slot and waits again: the bell that comes then has disarmed the node for nothing, and
// the next slot must wake it, too.
func TestFarLateBell(t *testing.T) { both(t, testFarLateBell) }

func testFarLateBell(t *testing.T, features uint64) {
	n, l := liesTo(t)
	l.yes(n, features, func(wire.Message) error { return nil })
	_, f, bell := n.pairFar(t, 40, caller.Root)
	head, armed := f.memory.Memory().Words(wire.FlowHead, 1), f.memory.Memory().Words32(wire.FlowArmed, 1)
	waits := func() {
		t.Helper()
		eventually(t, "the node does not wait", func() bool { return head[0].Load() == f.pos && armed[0].Load() != 0 })
	}
	for range 3 {
		waits()
		f.put()
		ring(t, bell) // somebody else's
		waits()
		armed[0].Swap(0)
		ring(t, bell)
	}
	waits()
}

// A port has its bell rung with each message, and never reads it: that holds up no message for
// others, which the same thread writes.
func TestFarBellFull(t *testing.T) {
	n, l := liesTo(t)
	l.yes(n, farCounts, func(wire.Message) error { return nil })
	conn, at, fds := n.openAt(t, 0, caller.Root)
	room, err := unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, 4096)
	if err != nil {
		t.Fatal(err)
	}
	n.hear(wire.Message{Op: wire.OpFarConnect, Number: 1, Unit: fabric.UnitVELO, Addr: at, A: 40, B: uint64(os.Getuid())})
	r, flows := hearAll(t, conn)
	if r.Op != wire.OpFlow || len(flows) != 1 {
		t.Fatalf("the port heard %+v", r)
	}
	f, err := mapFlow(fabric.UnitVELO, flows[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.memory.Retire)
	m := f.memory.Memory()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range uint64(room + 100) {
			m.Words(wire.FlowHead, 1)[0].Store(i)
			m.Words32(wire.FlowArmed, 1)[0].Store(1)
			n.hearSlotOf(40, at.VPID, 1)
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the node waits for room in the bell")
	}
	if got := m.Words(wire.FlowTail, 1)[0].Load(); got != uint64(room+100) {
		t.Errorf("%d slots were written", got)
	}
}

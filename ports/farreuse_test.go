package ports

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
)

// connectFar connects a port, and returns its flow and bell. The flow of the peer may come before.
func (n *node) connectFar(t *testing.T, conn *net.UnixConn, to wire.Addr) (flow, int) {
	t.Helper()
	r, fds := askAll(t, conn, wire.Message{Op: wire.OpConnect, Unit: fabric.UnitVELO, Addr: to})
	for r.Op == wire.OpFlow {
		r, fds = hearAll(t, conn)
	}
	if r.Op != wire.OpConnect || r.Status != wire.StatusOK {
		t.Fatalf("connect: %+v", r)
	}
	f, err := mapFlow(fabric.UnitVELO, fds[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.memory.Retire)
	return f, fds[1]
}

// A program ends, and the next one has its VPID and connects to the same far port, again and again:
// that port hears of each in turn, and none of them hears of the end of the one before.
func TestFarSuccessors(t *testing.T) {
	_, all := newHosts(t, 2)
	server, at, _ := all[0].openAt(t, 50, caller.Root)
	const rounds = 100
	for i := range rounds {
		conn, _, _ := all[1].openAt(t, 60, caller.Root)
		f, bell := all[1].connectFar(t, conn, at)
		if i%2 == 0 {
			f.put()
			ring(t, bell)
		}
		conn.Close()
		all[1].idle(t)
	}
	from := wire.Addr{Node: all[1].cfg.Node, VPID: 60}
	for i := range 2 * rounds {
		m, fds := hearAll(t, server)
		if want := []wire.Op{wire.OpFlow, wire.OpGone}[i%2]; m.Op != want || m.Addr != from {
			t.Fatalf("event %d: %+v", i, m)
		}
		if len(fds) == 1 {
			// The flow is mapped by nobody but the node from here on.
			if err := unix.Close(fds.Take(0)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A far port ends while our port does not read, and the next one with its VPID connects: our port
// hears of it when it has taken what the first had sent.
func TestFarSuccessorWaits(t *testing.T) {
	n, l := liesTo(t)
	answers := make(chan wire.Message, 8)
	l.send = func(m wire.Message) error {
		if m.Op == wire.OpFarConnect {
			answers <- m
		}
		return nil
	}
	conn, at, _ := n.openAt(t, 0, caller.Root)
	connect := func() {
		n.hear(wire.Message{Op: wire.OpFarConnect, Number: 1, Unit: fabric.UnitVELO, Addr: at, A: 40, B: uint64(os.Getuid())})
	}
	connect()
	if m := <-answers; m.Status != wire.StatusOK {
		t.Fatalf("connect: %+v", m)
	}
	_, flows := hearAll(t, conn)
	f, err := mapFlow(fabric.UnitVELO, flows[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.memory.Retire)
	for range farSlots + 1 { // one finds no room
		n.hearSlotOf(40, at.VPID, 1)
	}
	n.hear(wire.Message{Op: wire.OpFarGone, Unit: fabric.UnitVELO, Addr: at, A: 40})
	connect()
	select {
	case m := <-answers:
		t.Fatalf("before our port has taken what was sent: %+v", m)
	case <-time.After(50 * time.Millisecond): // too short a time lets a fault pass, and finds none
	}
	f.memory.Memory().Words(wire.FlowHead, 1)[0].Store(farSlots)
	for _, want := range []wire.Op{wire.OpGone, wire.OpFlow} {
		if m, _ := hearAll(t, conn); m.Op != want {
			t.Fatalf("our port heard %+v, not operation %d", m, want)
		}
	}
	if m := <-answers; m.Status != wire.StatusOK {
		t.Fatalf("the next connect: %+v", m)
	}
	if got := f.memory.Memory().Words(wire.FlowTail, 1)[0].Load(); got != farSlots+1 {
		t.Errorf("%d slots were written", got)
	}
}

// A session ends while answers of it wait to be sent, and a request of it is heard late: the next
// session has nothing of either, and its own request is answered.
func TestFarSessionsApart(t *testing.T) {
	n, l := liesTo(t)
	sending, goOn, answers := make(chan struct{}), make(chan struct{}), make(chan wire.Message, 8)
	l.send = func(m wire.Message) error {
		if m.Number == 1|rpc.Answered {
			close(sending)
			<-goOn
		}
		answers <- m
		return nil
	}
	ask := func(session uint64, number uint32) {
		b, _ := wire.Message{Op: wire.OpFarPut, Number: number, Unit: fabric.UnitRMA, Addr: wire.Addr{VPID: 40}, A: 40}.AppendBinary(nil)
		n.Hear(farAway, session, b)
	}
	first := n.farSession()
	ask(first, 1)
	<-sending
	ask(first, 2)
	n.mu.Lock()
	old := n.fars[farAway]
	n.mu.Unlock()
	n.endSession()
	ask(first, 3)
	ask(n.farSession(), 4)
	close(goOn)
	heard := map[uint32]bool{}
	for len(heard) < 2 { // 1 was being sent when its session ended
		heard[(<-answers).Number&^rpc.Answered] = true
	}
	if !heard[1] || !heard[4] {
		t.Errorf("the answers to requests %v were sent", heard)
	}
	for old.busy() {
		time.Sleep(time.Millisecond)
	}
	select {
	case m := <-answers:
		t.Errorf("the next session has the answer to request %d", m.Number&^rpc.Answered)
	default:
	}
	// What speaks of the session before ends nothing of this one.
	n.FarDown(farAway, first)
	ask(first, 5)
	ask(n.farSession(), 6)
	if m := <-answers; m.Number != 6|rpc.Answered {
		t.Errorf("the answer to request %d", m.Number&^rpc.Answered)
	}
}

// busy returns whether a goroutine sends to the node.
func (f *farNode) busy() bool {
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	return f.posting
}

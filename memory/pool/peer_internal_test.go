package pool

import (
	"sync"
	"testing"
	"time"

	"exnet/memory/wire"
	"exnet/node/rpc"
)

// said is an outbox that keeps what was posted.
type said struct {
	mu  sync.Mutex
	all []wire.Message // +checklocks:mu
}

func (o *said) Post(b []byte, _ ...int) error {
	var m wire.Message
	if err := m.UnmarshalBinary(b); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, m)
	return nil
}

func (o *said) Abort() {}

// count waits until n messages for which so is true were posted.
func (o *said) count(t *testing.T, n int, so func(wire.Message) bool) (last wire.Message) {
	t.Helper()
	got := 0
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		o.mu.Lock()
		got = 0
		for _, m := range o.all {
			if so(m) {
				last = m
				got++
			}
		}
		o.mu.Unlock()
		if got >= n {
			break
		}
	}
	if got != n {
		t.Fatalf("%d messages, want %d", got, n)
	}
	return last
}

// A peer whose messages a test makes up.
func peerOf(s *Server) (*peer, *said) {
	o := new(said)
	return s.peerOf(1, rpc.NewSession(&form, o)), o
}

// TestManyZeros has a peer ask for zeros without end, while none can be made: no more than a few
// wait. Each takes a thread while the kernel makes them, and Go's runtime ends the node at
// 10,000.
func TestManyZeros(t *testing.T) {
	s := New(Config{Limits: Limits{Lend: 1 << 20}})
	p, o := peerOf(s)
	s.mu.Lock()
	for i := range 2 * mostZeros {
		if err := p.handleRequest(&heard{Message: wire.Message{Op: wire.OpZero, Number: uint32(i), B: 4096}}); err != nil {
			t.Error(err)
		}
	}
	s.mu.Unlock()
	o.count(t, mostZeros, func(m wire.Message) bool { return m.Status == wire.StatusBusy })
	o.count(t, mostZeros, func(m wire.Message) bool { return m.Status == wire.StatusNoLease })
	if n := p.zeros.Load(); n != 0 {
		t.Errorf("%d are under way at the end", n)
	}
	s.Close()
}

// TestManyLoans has a node ask for one page after the other: each takes a descriptor of the
// lender, and a mapping if the node is on another host, without which Go's runtime ends the
// lender.
func TestManyLoans(t *testing.T) {
	s := New(Config{Limits: Limits{Lend: 1 << 30}})
	defer s.Close()
	p, o := peerOf(s)
	s.mu.Lock()
	for i := range uint64(perNode) { // as lend makes them
		l := &loan{id: 1<<32 + i, holder: p, node: p.node, size: wire.PageSize, fd: -1, timer: time.AfterFunc(time.Hour, func() {})}
		s.loans[l.id] = l
	}
	s.mu.Unlock()
	ask := wire.Message{Op: wire.OpLend, A: uint64(wire.Versions.Newest), B: wire.PageSize, C: wire.PageSize}
	if err := p.handleRequest(&heard{Message: ask}); err != nil {
		t.Fatal(err)
	}
	if m := o.count(t, 1, func(m wire.Message) bool { return m.Op == wire.OpLend }); m.Status != wire.StatusBusy {
		t.Errorf("status %d after %d leases", m.Status, perNode)
	}
	said := new(said)
	other := s.peerOf(2, rpc.NewSession(&form, said))
	if err := other.handleRequest(&heard{Message: ask}); err != nil {
		t.Fatal(err)
	}
	if m := said.count(t, 1, func(m wire.Message) bool { return m.Op == wire.OpLend }); m.Status != wire.StatusOK {
		t.Errorf("status %d for another node", m.Status)
	}
	s.mu.Lock()
	for id, l := range s.loans {
		if l.fd < 0 {
			delete(s.loans, id)
			l.timer.Stop()
		}
	}
	s.mu.Unlock()
}

// TestLyingLender has a lender answer with less than was asked for, with more, with part of a
// page, and with the number of another lease: none of that is a lease.
func TestLyingLender(t *testing.T) {
	s := New(Config{})
	p, o := peerOf(s)
	asked := 0
	lend := func(id, n uint64) wire.Status {
		b := &borrower{server: s}
		p.far = true // no descriptor
		got := make(chan wire.Message)
		go func() {
			_, m := p.lendMemory(b, request{size: 1 << 20, min: 1 << 16})
			got <- m
		}()
		asked++
		m := o.count(t, asked, func(m wire.Message) bool { return m.Op == wire.OpLend })
		answer := heard{Message: wire.Message{Op: wire.OpLend, Number: m.Number | rpc.Answered, B: n, D: id}, More: make([]byte, 8)}
		if err := p.Hear(&answer, p.handleRequest); err != nil {
			t.Error(err)
		}
		return (<-got).Status
	}
	for what, n := range map[string]uint64{"nothing": 0, "less than the minimum": 4096, "more": 1<<20 + 4096, "part of a page": 1<<20 - 1, "far more": 1 << 63} {
		if status := lend(7, n); status == wire.StatusOK {
			t.Errorf("%s: it is a lease of %d bytes", what, n)
		}
	}
	o.count(t, 5, func(m wire.Message) bool { return m.Op == wire.OpReturn && m.D == 7 })
	for _, n := range []uint64{1 << 20, 1 << 16} {
		if status := lend(n, n); status != wire.StatusOK {
			t.Errorf("%d bytes: status %d", n, status)
		}
	}
	first := p.holders[1<<20]
	if status := lend(1<<20, 1<<20); status == wire.StatusOK || p.holders[1<<20] != first {
		t.Errorf("two leases have one number: status %d", status)
	}
}

// TestUnanswered has a lender not answer. Nothing of a request is kept but of one whose loan
// would have to go back; and zeros that may come late have not failed until they cannot come any
// more: a process would write there, and lose that.
func TestUnanswered(t *testing.T) {
	s := New(Config{})
	s.askTime = time.Millisecond
	p, o := peerOf(s)
	if m := p.callPeer(wire.Message{Op: wire.OpOffer}, nil); m.Status != wire.StatusNoNode {
		t.Errorf("%+v", m)
	}
	if _, m := p.lendMemory(&borrower{server: s}, request{size: 4096, min: 4096}); m.Status != wire.StatusNoNode {
		t.Errorf("%+v", m)
	}
	late := heard{Message: wire.Message{Op: wire.OpLend, Number: 2 | rpc.Answered, B: 4096, D: 9}, More: make([]byte, 8)}
	for range 2 {
		if err := p.Hear(&late, p.handleRequest); err != nil {
			t.Error(err)
		}
	}
	o.count(t, 1, func(m wire.Message) bool { return m.Op == wire.OpReturn && m.D == 9 })
	answers := make(chan wire.Message, 1)
	zero := func() { answers <- p.zeroLent(wire.Message{D: 3, B: 4096}) }
	go zero()
	asked := o.count(t, 1, func(m wire.Message) bool { return m.Op == wire.OpZero })
	select {
	case m := <-answers:
		t.Errorf("it has failed while it may still be done: %+v", m)
	case <-time.After(50 * time.Millisecond):
	}
	if err := p.Hear(&heard{Message: wire.Message{Op: wire.OpZero, Number: asked.Number | rpc.Answered}}, p.handleRequest); err != nil {
		t.Error(err)
	}
	if m := <-answers; m.Status != wire.StatusOK {
		t.Errorf("%+v", m)
	}
	go zero()
	o.count(t, 2, func(m wire.Message) bool { return m.Op == wire.OpZero })
	p.endSession()
	if m := <-answers; m.Status != wire.StatusNoNode {
		t.Errorf("the lender has gone: %+v", m)
	}
}

// A lender that says nothing costs no more than a moment when another one has enough.
func TestSilentLender(t *testing.T) {
	s := New(Config{})
	s.askTime = time.Hour
	silent, _ := peerOf(s)
	o := new(said)
	other := s.peerOf(2, rpc.NewSession(&form, o))
	s.mu.Lock()
	s.peers[1], s.peers[2] = silent, other
	s.mu.Unlock()
	offers := make(chan []offer)
	go func() { offers <- s.askOffers([]Neighbor{{Node: 1}, {Node: 2}}, request{size: 4096, min: 4096}) }()
	for n := range mostTrips {
		asked := o.count(t, n+1, func(m wire.Message) bool { return m.Op == wire.OpOffer })
		answer := wire.Message{Op: wire.OpOffer, Number: asked.Number | rpc.Answered, B: 1 << 20}
		if err := other.Hear(&heard{Message: answer}, other.handleRequest); err != nil {
			t.Fatal(err)
		}
	}
	if all := <-offers; all[0].Node != 2 || all[0].bytesLeft != 1<<20 || all[1].bytesLeft != 0 {
		t.Errorf("%+v", all)
	}
}

// A node is another peer in each session: what speaks of an earlier one reaches none, and ends
// none.
func TestFarSessionsApart(t *testing.T) {
	s := New(Config{Node: 1})
	defer s.Close()
	first := s.farPeer(2, 5)
	if first == nil || s.farPeer(2, 5) != first {
		t.Fatal("a session has no peer, or two")
	}
	second := s.farPeer(2, 6)
	if second == nil || second == first || !first.Over() {
		t.Errorf("the next session has peer %p, the one before %p, over: %v", second, first, first.Over())
	}
	s.FarDown(2, 5)
	if s.farPeer(2, 5) != nil || s.farPeer(2, 6) != second || second.Over() {
		t.Error("a session that is over has a peer, or its end has ended the next one")
	}
	s.FarDown(2, 6)
	if s.farPeer(2, 6) != nil || !second.Over() {
		t.Error("a session goes on after its end")
	}
}

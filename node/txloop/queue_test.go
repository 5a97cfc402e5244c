package txloop

import (
	"sync/atomic"
	"testing"
)

// countedSenders say how many packets a host has sent.
type countedSenders struct {
	sent  atomic.Uint64
	cpu   int    // that sends
	first uint64 // when
}

func (s *countedSenders) Main() int    { return -1 }
func (s *countedSenders) Sent() uint64 { return s.sent.Load() }

func (s *countedSenders) Take() (cpu int, first uint64) {
	cpu, first, s.first = s.cpu, s.first, 0
	return cpu, first
}

// queueLoop is a loop with a device whose host counts what it sends, and reads in turn.
func queueLoop(t *testing.T) (l *Loop, p *fakePort, s *countedSenders, reads func() int) {
	ports, _ := newPorts(t, 1, 4)
	p, s = ports[0], new(countedSenders)
	l, err := New(Config{Ports: []Port{{Device: p.dev, Interface: p, Stack: p, Senders: s}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.releaseHeld()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, p, s, func() int {
		before := p.dev.reads
		if _, err := l.readBurst(&l.ports[0]); err != nil {
			t.Fatal(err)
		}
		return p.dev.reads - before
	}
}

// A device is read as often as its host has sent packets, and not once more.
func TestQueue(t *testing.T) {
	_, p, s, reads := queueLoop(t)
	send := func(n int) {
		for range n {
			s.sent.Add(1)
			p.dev.put(nil, packet(1, 100))
		}
	}
	for _, n := range []int{0, 1, 0, 3, 0, 2} {
		send(n)
		if got := reads(); got != n || p.dev.left() != 0 {
			t.Errorf("%d packets: %d reads, %d left", n, got, p.dev.left())
		}
	}
}

// A packet that was counted, and is not there, is looked for some times, and found if it comes
// meanwhile; one that comes later does not keep the next ones from being read.
func TestQueueDropped(t *testing.T) {
	l, p, s, reads := queueLoop(t)
	s.sent.Add(1)
	for i := range maxVain - 1 {
		if got := reads(); got != 1 {
			t.Fatalf("look %d for a packet: %d reads", i, got)
		}
	}
	p.dev.put(nil, packet(1, 100))
	if got := reads(); got != 1 || p.dev.left() != 0 {
		t.Fatalf("a packet that came late: %d reads, %d left", got, p.dev.left())
	}
	s.sent.Add(1)
	for range maxVain {
		reads()
	}
	if got := reads(); got != 0 {
		t.Fatalf("%d reads for a packet that was dropped", got)
	}
	p.dev.put(nil, packet(1, 100)) // it was not
	if l.hasPending() {
		t.Error("a packet taken for dropped is known")
	}
	l.pollWork()                                       // from time to time
	if got := reads(); got != 2 || p.dev.left() != 0 { // and once more: nobody counts what else there is
		t.Errorf("%d reads without cause, %d left", got, p.dev.left())
	}
	s.sent.Add(1)
	p.dev.put(nil, packet(1, 100))
	if got := reads(); got != 1 || p.dev.left() != 0 {
		t.Errorf("the next packet: %d reads, %d left", got, p.dev.left())
	}
}

// A packet that poll(2) has found is one of those counted, and is not looked for again.
func TestQueueSure(t *testing.T) {
	l, p, s, reads := queueLoop(t)
	for i := range 3 {
		s.sent.Add(1)
		p.dev.put(nil, packet(1, 100))
		l.ports[0].queue.sure = true
		if got := reads(); got != 1 || p.dev.left() != 0 {
			t.Errorf("packet %d: %d reads, %d left", i, got, p.dev.left())
		}
		if got := reads(); got != 0 {
			t.Errorf("packet %d: %d reads after it", i, got)
		}
	}
}

// A packet that was dropped is looked for maxVain times, also if others come one by one meanwhile.
func TestQueueDroppedAmongOthers(t *testing.T) {
	_, p, s, reads := queueLoop(t)
	s.sent.Add(1)
	all := 0
	const packets = 10 * maxVain
	for range packets {
		s.sent.Add(1)
		p.dev.put(nil, packet(1, 100))
		all += reads()
	}
	if all > packets+maxVain || p.dev.left() != 0 {
		t.Errorf("%d reads for %d packets, %d left", all, packets, p.dev.left())
	}
}

// poll(2) finds packets that nobody has counted.
func TestQueueUncounted(t *testing.T) {
	ports, trace := newPorts(t, 1, 4)
	p := ports[0]
	cfg := Config{Ports: []Port{{Device: p.dev, Interface: p, Stack: p, Senders: new(countedSenders)}}}
	_, stop := start(t, cfg, nil)
	for i := range 50 {
		p.dev.put(nil, packet(1, 100), packet(2, 100))
		eventually(t, "two packets", func() bool { return trace.count(p) == 2*(i+1) })
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

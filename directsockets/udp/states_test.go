package udp

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/datagram"
	"exnet/directsockets/segment"
	"exnet/internal/shm"
	"exnet/internal/steps/stepstest"
)

// TestSteps holds the steps of both ends against the tables of SPEC.md, 10.7 and 10.8. The C
// library's test does the same (preload/ctest/dgstate_test.c).
func TestSteps(t *testing.T) {
	stepstest.Compare(t, "10.7", outSteps.Rows(), stepstest.Rows(t, "../SPEC.md", "10.7", nil))
	stepstest.Compare(t, "10.8", inSteps.Rows(), stepstest.Rows(t, "../SPEC.md", "10.8", notOfC))
	stepstest.Compare(t, "10.8", cSteps.Rows(), stepstest.Rows(t, "../SPEC.md", "10.8", nil))
	stepstest.Compare(t, "10.9", setupSteps.Rows(), stepstest.Rows(t, "../SPEC.md", "10.9", notOfC))
}

func notOfC(_, of string) bool { return of != "C" }

// TestPhases has nothing but on write the states.
func TestPhases(t *testing.T) { stepstest.Owner(t, "*.go", "states.go", `\.phase\s*(=[^=]|,)`) }

// TestForgotten has a destination make room for others in the table: it gets no flow any more,
// which the socket's end would not find.
func TestForgotten(t *testing.T) {
	s, _ := receiver(t)
	old := time.Now().Add(-2 * time.Second)
	add := func(to netip.AddrPort) *outflow {
		f := &outflow{to: to, since: old, pause: offerAgain, entry: (*connstats.Table)(nil).Alloc(connstats.EntryInfo{})}
		f.count = (*segment.Counters)(f.entry.Counters())
		s.out.add(f)
		return f
	}
	_, to := listen(t)
	f := add(to)
	for i := 1; i < maxRoutes; i++ {
		add(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 1, byte(i)}), 9))
	}
	for i := 0; s.out.to[to] == f && i < 1<<16; i++ { // which one makes room is random
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), 9)
		s.out.countReceiver(at)
		if g := s.out.to[at]; g != nil {
			g.since = old
		}
	}
	if f.phase != outEnded {
		t.Fatalf("it is %v", f.phase)
	}
	for range s.cfg.Offers {
		k, sent := s.Send([]byte("x"), to, nil)
		if sent {
			t.Error("it has a flow")
		}
		k.Ended(1, nil)
	}
	if g := s.out.findFlow(to); g == f {
		t.Error("it is still found")
	}
	all := maps.Clone(s.out.to)
	s.Close()
	for to, f := range all {
		if f.phase != outEnded {
			t.Errorf("%v is %v after Close", to, f.phase)
		}
	}
}

// TestSentWhileEnding has a datagram go by the kernel while its socket closes: Ended returns,
// and another send finds no flow that has ended over and over.
func TestSentWhileEnding(t *testing.T) {
	s, _ := receiver(t)
	_, to := listen(t)
	f := &outflow{to: to, pause: offerAgain}
	s.out.add(f)
	k, _ := s.Send([]byte("x"), to, nil)
	s.out.endFlows(s, false, connstats.WhyNothing)
	if f.phase != outEnded {
		t.Fatalf("it is %v", f.phase)
	}
	sent := make(chan struct{})
	go func() {
		k.Ended(1, nil)
		k, _ = s.Send([]byte("x"), to, nil)
		k.Ended(1, nil)
		close(sent)
	}()
	select {
	case <-sent:
	case <-time.After(time.Minute):
		t.Fatal("a send does not end")
	}
}

// TestBegunBefore has a send be under way that began before datagrams to its receiver were
// counted: no flow is offered until it has ended, and all later ones are counted by their
// destination.
func TestBegunBefore(t *testing.T) {
	s, _ := receiver(t)
	_, to := listen(t)
	send := func() KernelSend {
		k, sent := s.Send(make([]byte, 250), to, nil)
		if sent {
			t.Fatal("it is sent")
		}
		return k
	}
	before := send()
	s.out.countReceiver(to)
	f := s.out.findFlow(to)
	send().Ended(250, nil)
	if f.clear {
		t.Error("a flow may be offered")
	}
	if before.Ended(250, nil); s.out.unknownSends(to).Load() != 0 {
		t.Error("it has not ended")
	}
	later := send()
	if n := f.sends.UnderWay(); n != 1 {
		t.Errorf("%d datagrams are under way, not 1", n)
	}
	f.since = f.since.Add(-time.Hour)
	if f.forgetIfIdle() {
		t.Error("it is forgotten with datagrams under way")
	}
	later.Ended(0, unix.EPERM)
	if n := f.sends.UnderWay(); n != 0 || f.sent != 2 {
		t.Errorf("%d datagrams are under way after that has failed, %d were sent", n, f.sent)
	}
	s.options.Store(&options{plain: true})
	if send().Ended(250, nil); f.sends.UnderWay() != 0 || f.sent != 2 {
		t.Errorf("%d were sent that a flow would carry, and one that none would", f.sent)
	}
	s.Changed()
	if send().Ended(250, nil); !f.clear {
		t.Error("no flow may be offered")
	}
}

// TestMoved has another socket have the sender's address: what is in memory is received, and the
// flow has ended.
func TestMoved(t *testing.T) {
	s, at := receiver(t)
	sender, from := listen(t)
	tx, g := ends(t, from, at)
	s.in.beginFlow(g)
	f := s.in.flows[0]
	s.awake(f)
	send := func(want datagram.Outcome) {
		t.Helper()
		if out := tx.Send([]byte("x"), datagram.Meta{}); out != want {
			t.Fatalf("%v, not %v", out, want)
		}
	}
	b := make([]byte, 10)
	send(datagram.Published)
	send(datagram.Published)
	if d, ok := s.Receive(b); !ok || d.N != 1 {
		t.Fatal("the first one does not come")
	}
	sender.Close()
	s.checkNow()
	if f.phase != inEnded || len(s.in.flows) != 0 {
		t.Fatalf("it is %v", f.phase)
	}
	send(datagram.Gone) // which is from one that has lost its address
	if d, ok := s.Receive(b); !ok || d.N != 1 {
		t.Fatal("the second one does not come")
	}
	if _, ok := s.Receive(b); ok {
		t.Error("one comes from a sender that is no more")
	}
}

// checkNow has the receiver's check be due.
func (s *Socket) checkNow() {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	s.in.checked = 0
	s.in.checkSenders()
}

// TestSwitchedOff has a flow be switched off: it ends once the receiver has taken what is in the
// ring.
func TestSwitchedOff(t *testing.T) {
	s, tx := receiverOfOne(t)
	f := s.in.flows[0]
	f.entry.Switch().Or(1 << (8 * segment.SwitchByte))
	if s.checkNow(); f.phase != inMemory {
		t.Fatalf("it is %v with a datagram in memory", f.phase)
	}
	b := make([]byte, 10)
	if d, ok := s.Receive(b); !ok || d.N != 1 {
		t.Fatal("it does not come")
	}
	if _, ok := s.Receive(b); ok {
		t.Fatal("another one comes")
	}
	if s.checkNow(); f.phase != inEnded || len(s.in.flows) != 0 {
		t.Errorf("it is %v", f.phase)
	}
	if out := tx.Send([]byte("late"), datagram.Meta{}); out != datagram.Gone {
		t.Error("its sender writes on")
	}
}

// TestSwitchedOffRung has a flow that is armed for a bell be switched off after the bell: what
// is in the ring is received, after what the kernel has, and then the flow has ended.
func TestSwitchedOffRung(t *testing.T) {
	s, at := receiver(t)
	sender, from := listen(t)
	tx, g := ends(t, from, at)
	s.in.beginFlow(g)
	f := s.in.flows[0]
	s.awake(f)
	b := make([]byte, 10)
	if !tx.Settled(shm.Nanotime()) {
		t.Fatal("it is not settled")
	}
	if _, ok := s.Receive(b); ok || f.phase != inArmed {
		t.Fatalf("there is something: it is %v", f.phase)
	}
	if _, err := sender.WriteToUDPAddrPort([]byte("bell"), at); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, 60000); n != 1 {
		t.Fatal("it does not come: ", err)
	}
	tx.Sent(1, shm.Nanotime())
	if out := tx.Send([]byte("after"), datagram.Meta{}); out != datagram.Published {
		t.Fatal(out)
	}
	f.entry.Switch().Or(1 << (8 * segment.SwitchByte))
	if s.checkNow(); f.phase != inEnded || len(s.in.flows) != 0 {
		t.Fatalf("it is %v", f.phase)
	}
	if out := tx.Send([]byte("late"), datagram.Meta{}); out == datagram.Published {
		t.Error("its sender writes on")
	}
	s.Received(netip.AddrPort{})
	for _, want := range []string{"bell", "after"} {
		d, ok := s.Receive(b)
		if n := d.N; !ok {
			n, _, err := unix.Recvfrom(s.fd, b, 0)
			if s.Received(from); string(b[:max(n, 0)]) != want {
				t.Fatalf("%q and %v in place of %q by the kernel", b[:max(n, 0)], err, want)
			}
		} else if string(b[:n]) != want {
			t.Fatalf("%q in place of %q", b[:n], want)
		}
	}
}

package udp

import (
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/datagram"
	"exnet/internal/shm"
)

// TestBusySender has a sender publish for a while whenever a receiver is about to sleep: its
// flow is over before that costs much. A receiver that comes to look late does not wait so long:
// so the time that it may wait is used up later on a busy machine.
func TestBusySender(t *testing.T) {
	const arms = 1000
	seg, tx, rx := flow(t)
	f := &inflow{rx: rx, entry: (*connstats.Table)(nil).Alloc(connstats.EntryInfo{})}
	say := func(busy byte) {
		if _, err := unix.Pwrite(seg.Fd(), []byte{busy}, busyAt); err != nil {
			t.Error(err)
		}
	}
	in := &inbound{}
	for i := 0; i < arms && !f.rx.Ended(); i++ {
		f.useMemory(in)
		say(1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for !tx.Armed() {
				runtime.Gosched()
			}
			time.Sleep(busyTime / 5)
			say(0)
		}()
		in.armFlows()
		<-done
	}
	if !f.rx.Ended() {
		t.Errorf("the receiver has waited %d times, and goes on", arms)
	}
}

// TestMayWait lets a receiver wait for a busy sender as often and as long as it may.
func TestMayWait(t *testing.T) {
	in := &inbound{}
	now, spent := int64(time.Hour), time.Duration(0)
	const run = 10 * time.Second
	for end := now + int64(run); now < end; {
		most := in.mayWait(now)
		in.credit -= most
		spent += most
		now += int64(most + 100*time.Microsecond)
	}
	if spent > busyMost+run/busyShare || spent < busyMost {
		t.Errorf("%v of %v", spent, run)
	}
	now += int64(run)
	if most := in.mayWait(now); most != busyTime {
		t.Errorf("%v after a rest, not %v", most, busyTime)
	}
}

// TestTwoReceivers has one goroutine sleep in the kernel's call, which its sender rings: a
// datagram by the kernel, and one in memory after it. Another goroutine sees that the kernel has
// something, and does not sleep there: the first one takes that, and may not come again.
// So it is for a socket, too, that is about to end its flows because it has several readers.
func TestTwoReceivers(t *testing.T) {
	for _, overlaps := range []int{0, mostOverlaps} {
		testTwoReceivers(t, overlaps)
	}
}

func testTwoReceivers(t *testing.T, overlaps int) {
	s, at := receiver(t)
	s.in.overlaps = overlaps
	sender, from := listen(t)
	tx, g := ends(t, from, at)
	s.in.beginFlow(g)
	s.awake(s.in.flows[0])
	b := make([]byte, 10)
	if !tx.Settled(shm.Nanotime()) {
		t.Fatal("it is not settled")
	}
	if _, ok := s.Receive(b); ok {
		t.Fatal("there is something")
	}
	if _, err := sender.WriteToUDPAddrPort([]byte("bell"), at); err != nil {
		t.Fatal(err)
	}
	tx.Sent(1, shm.Nanotime())
	if out := tx.Send([]byte("after"), datagram.Meta{}); out != datagram.Published {
		t.Fatal(out)
	}
	second := make(chan int, 1)
	go func() {
		if d, ok := s.Receive(b); ok {
			second <- d.N
		} else {
			second <- -1
		}
	}()
	select {
	case n := <-second:
		t.Fatalf("the second one returns %d before the kernel's datagram was taken", n)
	case <-time.After(10 * time.Millisecond):
	}
	if n, _, err := unix.Recvfrom(s.fd, make([]byte, 10), unix.MSG_DONTWAIT); n != len("bell") || err != nil {
		t.Fatal(n, err)
	}
	s.Received(from)
	if n := <-second; n != len("after") {
		t.Errorf("the second one returns %d", n)
	}
}

// TestLeaveAsleep has a goroutine sleep in the kernel's call. A sender rings, and sends by
// memory, and another goroutine gives the descriptor away: Leave returns when the first one has
// the bell, which another program would take, and it gets what is in memory after that.
func TestLeaveAsleep(t *testing.T) {
	s, at := receiver(t)
	sender, from := listen(t)
	tx, g := ends(t, from, at)
	s.in.beginFlow(g)
	s.awake(s.in.flows[0])
	b := make([]byte, 10)
	if !tx.Settled(shm.Nanotime()) {
		t.Fatal("it is not settled")
	}
	if _, ok := s.Receive(b); ok {
		t.Fatal("there is something")
	}
	if _, err := sender.WriteToUDPAddrPort([]byte("bell"), at); err != nil {
		t.Fatal(err)
	}
	tx.Sent(1, shm.Nanotime())
	if out := tx.Send([]byte("after"), datagram.Meta{}); out != datagram.Published {
		t.Fatal(out)
	}
	done := make(chan struct{})
	go func() { s.Leave(); close(done) }()
	for !s.Left() || !s.in.sleepsOverKept() {
		runtime.Gosched()
	}
	n, _, err := unix.Recvfrom(s.fd, b, 0)
	if s.Received(from); err != nil || string(b[:n]) != "bell" {
		t.Fatalf("%q, %v", b[:max(n, 0)], err)
	}
	<-done
	if d, ok := s.Receive(b); !ok || string(b[:d.N]) != "after" || !s.Plain() {
		t.Errorf("%v, %q, plain %v", ok, b[:d.N], s.Plain())
	}
}

// TestSleepers has goroutines sleep in the kernel's call, and their sender send: nothing is in
// memory, where nobody would look, until the last one is awake.
func TestSleepers(t *testing.T) {
	s, tx := receiverOfOne(t)
	f, b := s.in.flows[0], make([]byte, 10)
	if d, ok := s.Receive(b); !ok || d.N != 1 {
		t.Fatal("nothing is received")
	}
	for range 2 {
		if _, ok := s.Receive(b); ok || f.phase != inArmed {
			t.Fatalf("there is something: it is %v", f.phase)
		}
	}
	from := tx.Info().From
	for i, want := range []datagram.Outcome{datagram.ByKernel, datagram.Published} {
		s.Received(from) // one of them has it
		f.rx.Dry(f.rx.Kernel())
		tx.Settled(shm.Nanotime() + int64(time.Hour))
		if out := tx.Send([]byte("x"), datagram.Meta{}); out != want {
			t.Errorf("%v with %d asleep", out, 1-i)
		}
	}
}

// TestKernelBetween has a receiver that is never out of records: it gets the kernel's datagrams,
// too.
func TestKernelBetween(t *testing.T) {
	s, tx := receiverOfOne(t)
	other, from := listen(t)
	if _, err := other.WriteToUDPAddrPort([]byte("kernel"), tx.Info().To); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	for i := range 2 * shadowEvery {
		if out := tx.Send([]byte("x"), datagram.Meta{}); out != datagram.Published {
			t.Fatal(i, out)
		}
		d, ok := s.Receive(b)
		if !ok {
			t.Fatal("nothing is received")
		}
		if d.From == from {
			if d.N != len(b) || d.Len != len("kernel") || string(b) != "kern" {
				t.Errorf("%+v, %q", d, b)
			}
			return
		}
	}
	t.Error("it gets none of the kernel's")
}

// TestZone has the sender of a datagram from the kernel be what package net says.
func TestZone(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip(err)
	}
	for _, p := range []struct {
		zone uint32
		from string
	}{{0, "[fe80::1]:5"}, {uint32(lo.Index), "[fe80::1%lo]:5"}, {1 << 30, "[fe80::1%1073741824]:5"}} {
		at := addrOf(&unix.SockaddrInet6{Port: 5, ZoneId: p.zone, Addr: netip.MustParseAddr("fe80::1").As16()})
		if at.String() != p.from {
			t.Errorf("%v, want %s", at, p.from)
		}
	}
}

// TestDeadlineMoved has the deadline of a receive pass, and another goroutine move that of the
// kernel's socket before the receive would call it: the call would sleep, while the sender uses
// the ring.
func TestDeadlineMoved(t *testing.T) {
	s, _ := receiverOfOne(t)
	s.SetReadDeadline(time.Now().Add(-time.Second))
	b := make([]byte, 10)
	if d, ok := s.Receive(b); !ok || d.Err != nil || d.N != 1 {
		t.Fatalf("%+v, %v: a datagram is in memory", d, ok)
	}
	if _, ok := s.Receive(b); ok || s.in.flows[0].phase != inArmed {
		t.Errorf("it is %v: who sleeps now hears nothing of the sender", s.in.flows[0].phase)
	}
}

// TestManyOverlaps has goroutines receive from a socket at the same time, again and again: all its
// datagrams go by the kernel then. A single overlap ends nothing.
func TestManyOverlaps(t *testing.T) {
	s, at := receiver(t)
	_, from := listen(t)
	tx, g := ends(t, from, at)
	s.in.beginFlow(g)
	s.awake(s.in.flows[0])
	b := make([]byte, 10)
	if _, ok := s.Receive(b); ok {
		t.Fatal("there is something")
	}
	for i := range mostOverlaps {
		if s.Plain() || tx.HungUp() {
			t.Fatalf("the flow has ended after %d overlaps", i)
		}
		if _, ok := s.Receive(b); ok {
			t.Fatal("there is something")
		}
		s.Received(netip.AddrPort{})
	}
	if !s.Plain() || !tx.HungUp() {
		t.Errorf("plain: %v, closed: %v", s.Plain(), tx.HungUp())
	}
	s.Received(netip.AddrPort{})
}

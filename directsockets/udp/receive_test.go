package udp

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/datagram"
	"exnet/internal/shm"
)

// TestBusySender has a sender publish for a while whenever a receiver is about to sleep: its flow
// is over before that costs much. A receiver that comes to look late does not wait so long: so the
// time that it may wait is used up later on a busy machine.
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
		f.wake(in)
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
		if _, ok, _ := in.arm(nil, false); ok {
			t.Fatal("it has received something")
		}
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
func TestTwoReceivers(t *testing.T) {
	s, at := receiver(t)
	sender, from := listen(t)
	tx, g := ends(t, from, at)
	s.in.begin(g)
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
	s.Received(from, nil)
	if n := <-second; n != len("after") {
		t.Errorf("the second one returns %d", n)
	}
}

// sleeper is what a socket has that wakes who sleeps in the kernel's call.
type sleeper struct {
	syscall.RawConn
	Sleeper
}

// lateSleeper is a sleeper whose deadlines take their time: the goroutine that sets one has lost
// its processor.
type lateSleeper struct {
	sleeper
	resets chan struct{} // a deadline that is none waits for this
}

func (l lateSleeper) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		<-l.resets
	}
	return l.sleeper.SetReadDeadline(t)
}

// TestLeaveWakesLate has Leave wake a goroutine, which takes all that is kept, and receives again
// before Leave has taken back the deadline by which it has woken it. That is no error of the
// program's.
func TestLeaveWakesLate(t *testing.T) {
	c, at := listen(t)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	kernel := lateSleeper{sleeper{raw, c}, make(chan struct{})}
	s := New(Config{Raw: kernel, Local: at, Broker: new(client.Client)})
	t.Cleanup(s.Close)
	s.in.mu.Lock()
	s.in.kept = append(s.in.kept, kept{b: []byte("memory")})
	s.in.mu.Unlock()
	s.in.some.Store(true)
	s.in.waiting.Add(1) // it sleeps
	left := make(chan struct{})
	go func() { defer close(left); s.Leave() }()
	b := make([]byte, 10)
	_, from, err := c.ReadFromUDPAddrPort(b)
	if !s.Received(from, err) {
		t.Fatal("it is not woken", err)
	}
	if d, ok := s.Receive(b); !ok || d.N != len("memory") {
		t.Fatal("it does not receive what is kept")
	}
	if s.Plain() {
		t.Error("the kernel's socket is all that there is, and has a deadline that the program has not set")
	}
	close(kernel.resets)
	<-left
	if !s.Plain() {
		t.Error("the kernel's socket is not all that there is")
	}
}

// TestLeaveWakes has a goroutine sleep in the kernel's call. A sender rings, and sends by memory;
// another program, which has the descriptor by Leave, takes the bell. Deadlines stay the program's.
func TestLeaveWakes(t *testing.T) {
	c, at := listen(t)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Raw: sleeper{raw, c}, Local: at, Broker: new(client.Client)})
	t.Cleanup(s.Close)
	sender, from := listen(t)
	tx, g := ends(t, from, at)
	s.in.begin(g)
	s.awake(s.in.flows[0])
	if !tx.Settled(shm.Nanotime()) {
		t.Fatal("it is not settled")
	}
	got := make(chan string, 1)
	read := func() {
		b := make([]byte, 10)
		for {
			if d, ok := s.Receive(b); ok {
				got <- string(b[:d.N])
				return
			}
			n, from, err := c.ReadFromUDPAddrPort(b)
			if !s.Received(from, err) {
				got <- fmt.Sprint(string(b[:n]), err)
				return
			}
		}
	}
	go read()
	for s.in.waiting.Load() == 0 {
		runtime.Gosched()
	}
	// The bell was read by another.
	tx.Sent(1, shm.Nanotime())
	if out := tx.Send([]byte("memory"), datagram.Meta{}); out != datagram.Published {
		t.Fatal(out)
	}
	says := func(want string) {
		t.Helper()
		select {
		case s := <-got:
			if !strings.Contains(s, want) {
				t.Errorf("the reader says %q, want %q", s, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("the reader does not say %q", want)
		}
	}
	if err := s.SetReadDeadline(time.Now().Add(time.Hour), c.SetReadDeadline); err != nil {
		t.Fatal(err)
	}
	s.Leave()
	says("memory")
	if _, err := sender.WriteToUDPAddrPort([]byte("kernel"), at); err != nil {
		t.Fatal(err)
	}
	go read()
	says("kernel<nil>")
	go read()
	if err := s.SetReadDeadline(time.Unix(1, 0), c.SetReadDeadline); err != nil {
		t.Fatal(err)
	}
	says("i/o timeout")
}

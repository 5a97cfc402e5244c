package datagram

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/wire"
	"exnet/internal/netns/netnstest"
	"exnet/internal/shm"
)

// TestSizes sends datagrams of all sizes: each comes whole, once, and in order.
func TestSizes(t *testing.T) {
	netnstest.CheckFDs(t)
	f := newFlow(t, minRing, 0)
	f.open(t)
	for round := range 3 {
		for _, n := range []int{0, 1, 14, 48, 49, 64, 111, 112, 113, 1400, 4096, 9000, 65507} {
			p := bytes.Repeat([]byte{byte(n + round)}, n)
			m := Meta{TOS: uint8(n), TTL: uint8(64 + round)}
			if got := f.tx.Send(p, m); got != Published {
				t.Fatalf("%d bytes: %v", n, got)
			}
			if !f.rx.Ready() {
				t.Fatalf("%d bytes are not there", n)
			}
			got, gotM, ok := f.receive(t)
			if !ok || !bytes.Equal(got, p) || gotM != m {
				t.Fatalf("%d bytes, %+v, %v; want %d, %+v", len(got), gotM, ok, n, m)
			}
			if _, _, ok := f.receive(t); ok || f.rx.Ready() {
				t.Fatal("it comes twice")
			}
		}
	}
}

// TestFull fills the ring at random: nothing is lost, nothing is torn, and NoRoom says when.
func TestFull(t *testing.T) {
	f := newFlow(t, minRing, 0)
	f.open(t)
	r := rand.New(rand.NewPCG(1, 2))
	var sent, got [][]byte
	full := 0
	for len(got) < 20000 {
		if r.IntN(3) > 0 {
			p := make([]byte, []int{r.IntN(50), r.IntN(200), r.IntN(3000), r.IntN(MaxLen + 1)}[r.IntN(4)])
			for i := range p {
				p[i] = byte(len(sent) + i)
			}
			switch o := f.tx.Send(p, Meta{}); o {
			case Published:
				sent = append(sent, p)
			case NoRoom:
				full++
			default:
				t.Fatal(o)
			}
		} else {
			for range r.IntN(4) {
				p, _, ok := f.receive(t)
				if !ok {
					break
				}
				if !bytes.Equal(p, sent[len(got)]) {
					t.Fatalf("datagram %d has %d bytes, or others than %d", len(got), len(p), len(sent[len(got)]))
				}
				sent[len(got)] = nil
				got = append(got, nil)
			}
			f.rx.returnBytes()
		}
	}
	if full == 0 {
		t.Error("the ring was never full")
	}
}

// TestBound has a receiver with a small SO_RCVBUF: it bounds what waits, and one datagram fits
// always.
func TestBound(t *testing.T) {
	for _, tt := range []struct{ bound, size, most int }{
		{0, 64, minRing/128 - 1}, {8192, 64, 10}, {8192, 1400, 3}, {2304, 60000, 1}, {1, 0, 1},
	} {
		f := newFlow(t, 0, uint32(tt.bound))
		if tt.bound == 0 {
			f = newFlow(t, minRing, 0)
		}
		f.open(t)
		n := 0
		for f.tx.Send(make([]byte, tt.size), Meta{}) == Published {
			n++
		}
		if n != tt.most {
			t.Errorf("%d datagrams of %d bytes with a bound of %d, want %d", n, tt.size, tt.bound, tt.most)
		}
		f.tx.Drop()
		if n := f.peer.wordAt(txOff + droppedOff).Load(); n != 1 {
			t.Errorf("%d dropped", n)
		}
		f.receive(t)
		f.rx.returnBytes()
		if f.tx.Send(make([]byte, tt.size), Meta{}) != Published {
			t.Error("there is no room after one was taken")
		}
	}
}

// TestShared has another socket send from the sender's address: what the receiver counts is not
// the sender's alone.
func TestShared(t *testing.T) {
	f := newFlow(t, 0, 0)
	f.open(t)
	f.tx.Share()
	long := shm.Nanotime() - 2*int64(SoftirqTime)
	f.tx.Sent(2, long)
	f.rx.Took() // the other one's
	if f.tx.Settled(shm.Nanotime()) {
		t.Error("another socket's datagram counts")
	}
	f.rx.Dry(f.rx.Kernel())
	if !f.tx.Settled(shm.Nanotime()) || f.tx.Known() || f.tx.Bell() {
		t.Error("the receiver's empty queue does not count, or more than that")
	}
	if f.tx.Send([]byte("x"), Meta{}) != Published {
		t.Fatal("nothing is on its way, and a record does not go through memory")
	}
	if _, there, err := f.rx.Next(); err != nil || !there || !f.rx.Due() {
		t.Errorf("a record waits for %d datagrams, of a number that means nothing: %v, %v", f.rx.Missing(), there, err)
	}
	f.rx.Arm(false)
	if f.tx.Send([]byte("x"), Meta{}) != ByKernel {
		t.Error("a receiver that sleeps has a record in memory")
	}
}

// TestPages has a flow that is answered datagram by datagram touch few pages.
func TestPages(t *testing.T) {
	f := newFlow(t, 0, 0)
	f.open(t)
	for range 10_000 {
		if f.tx.Send(make([]byte, 14), Meta{}) != Published {
			t.Fatal("not published")
		}
		f.receive(t)
	}
	var st unix.Stat_t
	if err := unix.Fstat(f.seg.Fd(), &st); err != nil {
		t.Fatal(err)
	}
	if used := st.Blocks * 512; used > 40*4096 {
		t.Errorf("%d bytes", used)
	}
}

// TestEnds has each side end: the other one finds out, and what was sent is there.
func TestEnds(t *testing.T) {
	netnstest.CheckFDs(t)
	f := newFlow(t, 0, 0)
	f.open(t)
	f.tx.Send([]byte("last"), Meta{})
	f.tx.Close()
	if f.rx.Over() {
		t.Error("it is over before the last datagram is read")
	}
	if p, _, _ := f.receive(t); string(p) != "last" || !f.rx.Over() {
		t.Errorf("%q, over %v", p, f.rx.Over())
	}
	if o := f.tx.Send(nil, Meta{}); o != Gone {
		t.Error(o)
	}

	f = newFlow(t, 0, 0)
	f.open(t)
	f.rx.Close()
	if o := f.tx.Send(nil, Meta{}); o != Gone || !f.tx.Ended() {
		t.Errorf("%v to a receiver that has closed", o)
	}

	// Killed: nothing but the end of the pair says so.
	f = newFlow(t, 0, 0)
	f.open(t)
	unix.Close(f.rx.bell)
	f.rx.bell = -1
	f.rx.ended = true
	f.tx.probed = 0
	gone := false
	for range 2 * probeEvery {
		gone = gone || f.tx.Send(nil, Meta{}) == Gone
	}
	if !gone {
		t.Error("a receiver that was killed is not noticed")
	}

	s, err := Create(someone, 0)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	tx := NewTx(s, pair[0], shm.Nanotime(), new(KernelSends))
	d, err := Map(s.Fd())
	if err != nil {
		t.Fatal(err)
	}
	Refuse(d, pair[1])
	if _, refused := tx.Attached(); !refused || !tx.HungUp() {
		t.Error("the sender does not know that it was refused")
	}
	tx.Close()
}

// TestMissed closes a flow while its sender publishes: the sender learns whether its datagram
// was taken.
func TestMissed(t *testing.T) {
	for _, taken := range []bool{false, true} {
		f := newFlow(t, minRing, 0)
		f.open(t)
		f.tx.busy.Swap(1)
		if got := f.tx.publishRecord([]byte("x"), Meta{}); got != Published {
			t.Fatal(got)
		}
		if f.tx.missedLast() {
			t.Error("missed, of a receiver that takes datagrams")
		}
		if taken {
			if _, _, ok := f.receive(t); !ok {
				t.Fatal("nothing came")
			}
		}
		f.rx.Close() // it has waited for long enough
		f.tx.clearBusy()
		if f.tx.missedLast() == taken {
			t.Errorf("taken: %v, and missed says the same", taken)
		}
	}
}

// TestMap refuses what is no segment.
func TestMap(t *testing.T) {
	netnstest.CheckFDs(t)
	for name, spoil := range map[string]func(head []byte){
		"magic":   func(h []byte) { h[5]++ },
		"version": func(h []byte) { h[headVersionOff] = 2 },
		"ring":    func(h []byte) { h[headRingOff+2]++ },
		"no ring": func(h []byte) { clear(h[headRingOff : headRingOff+8]) },
		"size":    func(h []byte) { h[headSizeOff]++ },
	} {
		s, err := Create(someone, 0)
		if err != nil {
			t.Fatal(err)
		}
		spoil(s.Exposed())
		if _, err := Map(s.Fd()); !errors.Is(err, ErrSegment) {
			t.Errorf("%s: %v", name, err)
		}
		s.Retire()
	}
	for _, ring := range []int{1, 65536, minRing + 4096, maxRing * 2} {
		if _, err := Create(someone, ring); !errors.Is(err, ErrSegment) {
			t.Errorf("ring of %d: %v", ring, err)
		}
	}
	for _, size := range []int{4096, ringOff + minRing - 4096, ringOff + maxRing + 4096} {
		mem, err := shm.CreateShared("test", size)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Map(mem.Fd()); !errors.Is(err, ErrSegment) {
			t.Errorf("%d bytes: %v", size, err)
		}
		mem.Retire()
	}
	wantKey := wire.Key{Client: netip.MustParseAddrPort("127.0.0.1:4000"), Server: netip.MustParseAddrPort("127.0.0.1:53")}
	if f := newFlow(t, 0, 0); f.rx.Info().From != wantKey.Client || f.tx.Info().To != wantKey.Server {
		t.Errorf("%+v", f.rx.Info())
	}
}

func BenchmarkFlow(b *testing.B) {
	for _, n := range []int{14, 64, 1400} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := newFlow(b, 0, 0)
			f.open(b)
			p := make([]byte, n)
			for b.Loop() {
				if f.tx.Send(p, Meta{}) != Published {
					b.Fatal("not published")
				}
				f.rx.Next()
				f.rx.CopyTo(p)
				f.rx.Consume()
			}
		})
	}
}

// TestAfter has a sender ring, and write what follows at once: the receiver knows what it comes
// after, whether the datagram by the kernel comes or is lost, and a full ring of it.
func TestAfter(t *testing.T) {
	for _, n := range []int{0, 1, 48, 49, 300, 65507} {
		f := newFlow(t, minRing, 0)
		f.open(t)
		f.rx.Arm(false)
		if got := f.tx.Send(make([]byte, n), Meta{}); got != ByKernel {
			t.Fatalf("%d bytes to one that sleeps: %v", n, got)
		}
		// It rings again once the bell seems lost. By this time that is far off, however busy
		// the machine is.
		f.tx.Sent(1, shm.Nanotime()+int64(time.Hour))
		p := bytes.Repeat([]byte{7}, n)
		if got := f.tx.Send(p, Meta{TOS: 3}); got != Published || !f.rx.Ready() {
			t.Fatalf("%d bytes after the bell: %v", n, got)
		}
		rec, ok, err := f.rx.Next()
		if !ok || err != nil || f.rx.Due() {
			t.Fatal("due before what it comes after", rec, ok, err)
		}
		if n%2 == 0 {
			f.rx.Took()
		} else {
			_ = f.rx.GiveUp()
		}
		if !f.rx.Due() {
			t.Fatal("not due")
		}
		if got, m, ok := f.receive(t); !ok || !bytes.Equal(got, p) || m.TOS != 3 {
			t.Fatalf("%d bytes of %d, %+v", len(got), n, m)
		}
		f.rx.Disarm()
		if f.tx.Send(p, Meta{}) != Published {
			t.Fatal("not published")
		}
		if rec, ok, _ := f.rx.Next(); !ok || rec.waits || !f.rx.Due() {
			t.Fatalf("%+v: it comes after nothing more", rec)
		}
	}
}

// TestRings has a receiver that is armed: it is rung when nothing is on its way to it, and again
// if it seems to have missed that, but no datagram by the kernel is taken for one before it.
func TestRings(t *testing.T) {
	f := newFlow(t, minRing, 0)
	if f.tx.Send(nil, Meta{}) != ByKernel || f.tx.Bell() {
		t.Fatal("not by the kernel, though it is not known how many were lost")
	}
	f.open(t)
	send := func(what string, want Outcome) {
		t.Helper()
		if got := f.tx.Send(nil, Meta{}); got != want {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
		if want == ByKernel {
			f.tx.Sent(1, shm.Nanotime())
		}
	}
	f.rx.Arm(false)
	send("it sleeps", ByKernel)
	send("it was rung", Published)
	f.tx.lastKernel -= 2 * int64(SoftirqTime)
	send("perhaps it was not, but a record waits for that", Published)
	f.tx.lastKernel -= bellLost
	send("it was not", ByKernel)
	f.rx.Took()
	f.rx.Took()
	send("it has taken that, and sleeps", ByKernel)
	send("it was rung, and has not taken what it had before", Published)
	f.receive(t)
	f.rx.returnBytes()
	f.tx.lastKernel -= bellLost
	send("it takes that", Published)
	f.tx.moved -= bellLost
	send("it does not any more", ByKernel)
	f.rx.Took()
	f.rx.Took()
	for range 4 {
		if _, _, ok := f.receive(t); !ok || !f.rx.Due() {
			break
		}
	}
	f.rx.Arm(true)
	send("several sleep", ByKernel)
	send("several sleep", ByKernel)
	f.rx.Took()
	f.rx.Arm(false)
	f.rx.Dry(f.rx.Kernel())
	send("its queue was empty", ByKernel)
	f.tx.lastKernel -= 2 * int64(SoftirqTime)
	send("nothing is in the ring", ByKernel)
}

package segment

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"exnet/internal/shm"

	"golang.org/x/sys/unix"
)

// oneWay is one direction, whose bytes are checked.
type oneWay struct {
	t         *testing.T
	tx, rx    *End
	sent, got int
	together  bool // both ends are on one CPU
	buf       []byte
}

func newOneWay(t *testing.T) *oneWay {
	client, server := promoted(t, Config{})
	return &oneWay{t: t, tx: client, rx: server, buf: make([]byte, defaultRing)}
}

func oneWayByte(i int) byte { return byte(i*131 + i>>9) }

// give sends n bytes, or what the ring takes of them.
func (l *oneWay) give(n int) int {
	l.t.Helper()
	p := l.buf[:n]
	for i := range p {
		p[i] = oneWayByte(l.sent + i)
	}
	if !l.together {
		l.rx.own.cpu.Store(0) // as if it were on another CPU
	}
	k, err := l.tx.Send(p)
	if err != nil && err != ErrAgain {
		l.t.Fatal(err)
	}
	l.sent += k
	return k
}

func (l *oneWay) take(n int) {
	l.t.Helper()
	for n > 0 {
		k, err := l.rx.Recv(l.buf[:n])
		if err != nil {
			l.t.Fatal(err)
		}
		for i, b := range l.buf[:k] {
			if b != oneWayByte(l.got+i) {
				l.t.Fatalf("byte %d is another", l.got+i)
			}
		}
		l.got += k
		n -= k
	}
}

func (l *oneWay) wide() bool { return l.tx.tx.span == l.tx.tx.mem.Len() }

// touched is how many bytes of the segment have pages.
func (l *oneWay) touched() int64 {
	var st unix.Stat_t
	if err := unix.Fstat(l.tx.seg.Fd(), &st); err != nil {
		l.t.Fatal(err)
	}
	return st.Blocks * 512
}

// A connection uses the first part of its ring only, until it has much to send.
func TestWiden(t *testing.T) {
	t.Run("nobody reads", func(t *testing.T) {
		l := newOneWay(t)
		for l.give(60_000) > 0 {
		}
		if l.sent < defaultRing-minChunk {
			t.Errorf("%d bytes fit", l.sent)
		}
		l.take(l.sent)
	})
	t.Run("answered", func(t *testing.T) {
		l := newOneWay(t)
		for i := range 100 {
			if n := l.give(200_000); n != 200_000 || l.wide() {
				t.Fatalf("message %d: %d bytes, wide %v", i, n, l.wide())
			}
			l.take(200_000)
		}
		if n := l.touched(); n > 300_000 && !shm.Strict() {
			t.Errorf("%d bytes are touched", n)
		}
	})
	t.Run("a stream", func(t *testing.T) {
		l := newOneWay(t)
		l.give(3000)
		for l.sent < 2*long {
			if n := l.give(50_000); n != 50_000 {
				t.Fatalf("no room after %d bytes", l.sent)
			}
			l.take(50_000)
			if l.sent < long && l.wide() {
				t.Fatalf("wide after %d bytes", l.sent)
			}
		}
		if !l.wide() {
			t.Error("not wide")
		}
	})
	t.Run("a node carries it", func(t *testing.T) {
		l := newOneWay(t)
		l.rx.own.flags.Store(l.rx.own.flags.Load() | flagRelayed)
		l.give(3000)
		for l.sent < narrow+100_000 {
			l.give(50_000)
			l.take(50_000)
		}
		if !l.wide() {
			t.Error("not wide")
		}
	})
	t.Run("on one CPU", func(t *testing.T) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var all, one unix.CPUSet
		one.Set(shm.CPU())
		if err := errors.Join(unix.SchedGetaffinity(0, &all), unix.SchedSetaffinity(0, &one)); err != nil {
			t.Fatal(err)
		}
		defer unix.SchedSetaffinity(0, &all)
		l := newOneWay(t)
		l.together = true
		for l.sent < 2*long {
			l.rx.noteCPU()
			l.give(60_000)
			l.take(l.sent - l.got - 1000)
		}
		if l.wide() {
			t.Error("wide")
		}
	})
	t.Run("unread at the end", func(t *testing.T) { // stays there
		l := newOneWay(t)
		l.give(4096)
		for n := narrow - 4096 - 1024; n > 0; n -= min(n, 65536) {
			l.give(min(n, 65536))
			l.take(l.sent - l.got - 1024)
		}
		l.give(1024)
		l.take(l.sent - l.got - 1024)
		if n := l.give(narrow - 2048); n != narrow-2048 || l.wide() {
			t.Fatalf("second lap: %d bytes, wide %v", n, l.wide())
		}
		if n := l.give(3000); n != 0 || l.wide() {
			t.Errorf("%d bytes find room, wide %v", n, l.wide())
		}
		l.take(l.sent - l.got)
	})
	t.Run("any sizes", func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 20 {
			l := newOneWay(t)
			for lag := rnd.IntN(narrow); l.sent < long+4*narrow; {
				l.give(1 + rnd.IntN(100_000))
				if behind := l.sent - l.got; behind > lag {
					l.take(behind - rnd.IntN(lag+1))
				}
			}
			l.take(l.sent - l.got)
		}
	})
}

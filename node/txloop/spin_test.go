package txloop

import (
	"math"
	"sync/atomic"
	"testing"
	"time"
)

// A spin begins when waits are short, goes on while it pays, and ends when it does not.
func TestSpin(t *testing.T) {
	var s spin
	now := time.Second
	if s.lookAgain(now) {
		t.Error("it spins before anything is known")
	}
	s.noteWaited(spinTime)
	if s.lookAgain(now) {
		t.Error("it spins after a long wait")
	}
	s.noteWaited(spinTime / 2)
	for range 100 {
		if !s.lookAgain(now) || !s.lookAgain(now+spinTime-1) {
			t.Fatal("it does not spin after a short wait")
		}
		if !s.noteFound() || s.noteFound() {
			t.Error("not one spin has found something")
		}
		now += spinTime
	}
	fails := 0
	for ; s.lookAgain(now); now += spinTime {
		if s.lookAgain(now + spinTime) {
			t.Fatal("it spins for too long")
		}
		fails++
	}
	if fails != maxScore {
		t.Errorf("it gave up after %d spins for nothing, want %d", fails, maxScore)
	}
}

// Every other spin may fail: the way back of a request that comes alone.
func TestSpinAlternates(t *testing.T) {
	s := spin{score: 1}
	now := time.Second
	for i := range 100 {
		if !s.lookAgain(now) {
			t.Fatalf("it gave up after %d rounds", i)
		}
		s.noteFound()
		if !s.lookAgain(now) || s.lookAgain(now+spinTime) {
			t.Fatal("a spin has another length")
		}
	}
}

// A program that keeps the CPU bars spinning, for longer each time, until it has
// paid for long.
func TestSpinBarred(t *testing.T) {
	s := spin{score: maxScore}
	now := time.Second
	bar := func() (d time.Duration) {
		s.lookAgain(now)
		s.noteYielded(now, crowded)
		for d = 0; !s.lookAgain(now + d); d += minBar {
		}
		now += d
		return d
	}
	for want := minBar; want <= maxBar; want *= 2 {
		if got := bar(); got != want {
			t.Errorf("barred for %v, want %v", got, want)
		}
	}
	if got := bar(); got != maxBar {
		t.Errorf("barred for %v, want %v", got, maxBar)
	}
	s.noteYielded(now, crowded-1)
	for range forgiven {
		if !s.lookAgain(now) {
			t.Fatal("barred after a short turn of others")
		}
		s.noteFound()
	}
	if got := bar(); got != minBar {
		t.Errorf("barred for %v after it had paid for long, want %v", got, minBar)
	}
}

// Where the process was at real-time priority from the start, programs would not get the
// CPU by a yield.
func TestSpinNever(t *testing.T) {
	s := spin{score: maxScore}
	s.noteNoYield()
	s.noteWaited(0)
	if s.lookAgain(math.MaxInt64 - 1) {
		t.Error("it spins")
	}
}

// answering is a link on which something comes at every third look, and soon after each
// beginning of a wait, until it is quiet.
type answering struct {
	*fakeLink
	looks int
	quiet atomic.Bool
}

func (a *answering) Serve(rung bool) (int, bool) {
	if a.looks++; a.looks%3 == 0 && !a.quiet.Load() {
		a.put(1)
	}
	return a.fakeLink.Serve(rung)
}

func (a *answering) Arm() time.Duration {
	if !a.quiet.Load() {
		a.ring()
	}
	return a.fakeLink.Arm()
}

// A loop whose waits are short begins to look, finds what comes, and rests when nothing
// comes any more.
func TestLoopSpins(t *testing.T) {
	ports, _ := newPorts(t, 1, 8)
	l, stop := start(t, Config{}, ports)
	a := &answering{fakeLink: newLink(t)}
	if !l.Take(a) {
		t.Fatal("not taken")
	}
	eventually(t, "the loop finds something by looking", func() bool { return l.Stats().Caught > 0 })
	a.quiet.Store(true)
	rests := l.Stats().Rests
	eventually(t, "the loop rests", func() bool { return l.Stats().Rests > rests })
	if s := l.Stats(); s.Caught > s.Spins {
		t.Errorf("%d of %d spins found something", s.Caught, s.Spins)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

package txloop

import (
	"testing"
	"time"

	"exnet/internal/counter"
	"exnet/internal/sched"
)

// A glance begins when a request from this CPU follows an answer from elsewhere, and ends with the
// next answer, or when none comes for glanceTime.
func TestGlance(t *testing.T) {
	var g glance
	now := time.Second
	if g.lookAgain(now) {
		t.Error("it looks before anything was sent")
	}
	g.noteCarried(false)
	g.noteCarried(true)
	if !g.lookAgain(now) || !g.lookAgain(now+glanceTime-1) {
		t.Fatal("it does not look for the answer to a request")
	}
	if !g.noteCarried(false) {
		t.Error("the answer was not found by looking")
	}
	if g.lookAgain(now) {
		t.Error("it looks after an answer: the program here is to have the CPU")
	}
	g.noteCarried(true)
	if !g.lookAgain(now) || g.lookAgain(now+glanceTime) || g.lookAgain(now+glanceTime) {
		t.Error("it looks for another time than glanceTime")
	}
	if g.noteCarried(false) {
		t.Error("an answer that came later was found by looking")
	}
}

// A program that sends one packet after the other is not kept from doing so.
func TestGlanceStream(t *testing.T) {
	g := glance{score: maxScore}
	g.noteCarried(false)
	g.noteCarried(true)
	for range 10 {
		g.noteCarried(true)
		if g.lookAgain(time.Second) {
			t.Fatal("it looks though the program sends on")
		}
	}
}

// Where no answer comes in time it looks seldom, and again each time as soon as one does.
func TestGlanceInVain(t *testing.T) {
	var g glance
	now := time.Second
	looks := 0
	const requests = 100000
	for range requests {
		g.noteCarried(false)
		g.noteCarried(true)
		if g.lookAgain(now) {
			looks++
			g.lookAgain(now + glanceTime)
		}
		now += time.Millisecond
	}
	if looks == 0 || looks > requests/maxGap+10 {
		t.Errorf("it looks %d times for nothing for %d requests", looks, requests)
	}
	for range maxGap {
		g.noteCarried(false)
		g.noteCarried(true)
		if g.lookAgain(now) {
			break
		}
	}
	g.noteCarried(false)
	for i := range 100 {
		g.noteCarried(true)
		if !g.lookAgain(now) {
			t.Fatalf("it does not look for answer %d since one came in time", i)
		}
		g.noteCarried(false)
	}
}

// Two programs that never sleep, each on its CPU, take turns (MPI): after the first that has kept
// the CPU, answers are found by looking, without a wake-up, and packets wait for a program's time
// slice only when a bar is over. The clock and the scheduler are a model.
func TestGlanceBesideSpinners(t *testing.T) {
	inThread(func() {
		const (
			slice  = 4 * time.Millisecond // of the program here, after a yield
			answer = 8 * time.Microsecond // from when it has the packet, of the program elsewhere
			rounds = 100000
		)
		now := time.Second
		l := &Loop{clock: func() time.Duration { return now }, yielding: func() { now += slice }}
		asked, waits := 0, 0
		l.threadCPU, l.place.home, l.place.cpuNow = -1, -1, func() int { asked++; return currentCPU() }
		l.home.realtime = func() bool { return true }
		defer func() { l.raisePriority(); sched.Raise() }()
		caught, stopped, begun := 0, 0, now
		for range rounds {
			// The program here sends: the loop carries it, and looks or waits for the answer.
			l.spin.noteFound()
			l.sourceCPU = currentCPU()
			l.noteGlance(64, 0)
			ready := now + answer
			for {
				now += 200 * time.Nanosecond
				if now >= ready {
					break
				}
				if l.mayGlance() || l.spinOn() {
					continue
				}
				now = max(now, ready) + 20*time.Microsecond // another CPU wakes it
				l.spin.noteWaited(30 * time.Microsecond)
				l.threadCPU = -1
				waits++
				break
			}
			if now-ready > time.Millisecond {
				stopped++
			}
			// The answer is carried to the program here, which has the CPU then, or a yield.
			before := l.stats.Glanced.Load()
			l.spin.noteFound()
			l.sourceCPU = currentCPU() + 1
			l.noteGlance(64, 0)
			caught += int(l.stats.Glanced.Load() - before)
			if l.mayGlance() {
				t.Fatal("it looks while the program here is to have the CPU")
			}
			if l.spinOn() {
				stopped++
			}
			now += 5 * time.Microsecond
			l.spin.noteWaited(5 * time.Microsecond)
			l.threadCPU = -1
			waits++
		}
		if yields := int(l.stats.Spins.Load()); asked > waits+yields+1 {
			t.Errorf("it asked the kernel %d times for its CPU, in %d waits and %d yields", asked, waits, yields)
		}
		if caught < rounds*9/10 {
			t.Errorf("%d of %d answers were found by looking", caught, rounds)
		}
		if most := int((now-begun)/maxBar) + 12; stopped > most {
			t.Errorf("%d packets waited for a time slice in %v, want %d at most", stopped, now-begun, most)
		}
	})
}

// The first packet of a burst counts, by when it was sent.
func TestWaitTimes(t *testing.T) {
	l, p, s, _ := queueLoop(t)
	now := time.Second
	l.clock, l.zero = func() time.Duration { return now }, time.Hour
	for _, d := range []time.Duration{0, 5 * time.Microsecond, 5*time.Microsecond + 1, 5 * time.Millisecond, time.Hour} {
		s.first = uint64(l.zero + now)
		s.sent.Add(2)
		p.dev.put(nil, packet(1, 100), packet(2, 100))
		now += d
		if _, err := l.readBurst(&l.ports[0]); err != nil {
			t.Fatal(err)
		}
	}
	got, want := l.WaitTimes(), counter.WaitTimes{Sum: time.Hour + 5*time.Millisecond + 10*time.Microsecond + 1}
	want.Counts[0], want.Counts[1], want.Counts[9], want.Counts[len(counter.WaitBounds)] = 2, 1, 1, 1
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// What was sent and dropped leaves no time behind, from which the next packet would seem to wait.
func TestWaitTimesDropped(t *testing.T) {
	l, p, s, reads := queueLoop(t)
	now := time.Second
	l.clock = func() time.Duration { return now }
	s.first = uint64(now)
	s.sent.Add(1)
	for range maxVain {
		reads()
	}
	now += time.Hour
	s.sent.Add(1)
	p.dev.put(nil, packet(1, 100))
	reads()
	if got := l.WaitTimes(); got != (counter.WaitTimes{}) {
		t.Errorf("%+v, want none", got)
	}
}

package txloop

import "time"

// glance says whether the thread looks for the answer to a packet at its own priority, without
// leaving the CPU, before it waits: where programs keep the CPU after a yield (spin), as MPI does,
// which asks the kernel repeatedly. The program that has sent the packet is on this CPU and
// has nothing to do but wait; the one that answers, on another, need not wake this thread, which
// on a virtual machine takes 10 µs of its time and as much here:
//
//	CPU 0: A sends ─► loop carries ─► looks ──────────────────► carries, sleeps ─► A has the answer
//	CPU 1:                  └► B has it, answers, wakes nobody ──┘
//
// It looks if request and answer take turns. A program that sends one packet after the other has
// more to do than to wait.
type glance struct {
	score    int           // positive: looking pays
	armed    bool          // a program on this CPU has sent a request
	begun    time.Duration // when this glance began; 0: there is none
	fromHere bool          // what was carried last came from this CPU
	skip     int           // requests to leave out before the next try
	gap      int           // as many after a glance that has failed
}

const (
	// glanceTime is how long it looks. An answer takes half of that.
	glanceTime = 40 * time.Microsecond
	minGap     = 8
	maxGap     = 4096
)

// noteCarried says that something was carried, and whether a program on this CPU has sent it.
// It reports whether a glance has found it.
func (g *glance) noteCarried(here bool) (found bool) {
	if found = g.begun != 0 && !here; found {
		g.score, g.gap = min(g.score+paid, maxScore), 0
	}
	g.begun = 0
	g.armed, g.fromHere = here && !g.fromHere, here
	return found
}

// lookAgain reports whether to look again, at a time when there is nothing to do.
func (g *glance) lookAgain(now time.Duration) bool {
	switch {
	case !g.armed:
		return false
	case g.begun == 0 && g.score <= 0 && g.skip > 0:
		g.skip--
		g.armed = false
		return false
	case g.begun == 0:
		g.begun = now
	case now-g.begun >= glanceTime:
		g.begun, g.armed = 0, false
		if g.score--; g.score <= 0 {
			g.gap = min(max(2*g.gap, minGap), maxGap)
			g.score, g.skip = 0, g.gap
		}
		return false
	}
	return true
}

// noteGlance tells glance what was carried: n bytes of packets from this host, and what links
// brought.
func (l *Loop) noteGlance(n, received int) {
	if !l.spin.isBarred() {
		return
	}
	here := received == 0 && n <= smallBytes && l.sourceCPU >= 0 && l.sourceCPU == l.currentCPU()
	if l.glance.noteCarried(here) {
		l.stats.Glanced.Add(1)
	}
}

// currentCPU returns the CPU of the thread. The kernel is asked once after each wait: a thread at
// real-time priority stays where it is until the next, and the system call takes a microsecond on
// some virtual machines.
func (l *Loop) currentCPU() int {
	if l.place.home >= 0 {
		return l.place.home
	}
	if l.threadCPU < 0 {
		l.threadCPU = l.place.cpuNow()
	}
	return l.threadCPU
}

// mayGlance reports whether to look again at once. Only a thread that goes before all programs
// does so: another would lose its turn by it.
func (l *Loop) mayGlance() bool {
	if !l.glance.armed {
		return false
	}
	now := l.sinceStart()
	if now >= l.spin.until || !l.home.realtime() {
		l.glance.armed, l.glance.begun = false, 0
		return false
	}
	return l.glance.lookAgain(now)
}

package txloop

import (
	"slices"

	"exnet/internal/sched"

	"golang.org/x/sys/unix"
)

// home is where the loop rests: on the CPU of the programs whose packets wake it, or, if
// a link brings them, on that of the peer's thread. To wake a thread on the same CPU is a
// switch of tasks. To wake another CPU that sleeps takes an interrupt, on a virtual machine
// with the help of its host, and a packet that comes alone would pass from one sleeping CPU
// to the next:
//
//	ping ─► this process ─► peer, its device, the kernel's answer, peer ─► this process ─► ping
//	└────────────────────────────── all on one CPU ──────────────────────────────────────┘
//
// Only a process at real-time priority has a home: it goes before whatever else runs there.
// Traffic that continues has the thread leave.
type home struct {
	realtime func() bool // the process goes before all programs
	thread   int         // bound to cpu; 0: none
	cpu      int
	next     int  // to rest on
	came     int  // where the packet came from that ended the last rest
	looks    int  // yields since something was found
	fresh    bool // a rest has ended, and no packet was read since
}

const (
	// maxLooks is how often a thread yields to its peer's before it waits.
	maxLooks = 2
	// settled is the wait after a rest until which the thread, at home, does not look for
	// long for what is to come. A ping takes four.
	settled = 8
	// lazy is the wait after a rest at which the descriptors of a process without links leave the
	// runtime's poller: by then a ping has been answered.
	lazy = 2
)

func (h *home) reset() {
	h.realtime, h.next, h.came = sched.First, -1, -1
}

// bindToHome binds the thread, which is about to rest, to the CPU where packets come from.
func (l *Loop) bindToHome() {
	h := &l.home
	for i := range l.ports {
		if s := l.ports[i].Senders; s != nil {
			s.Main() // what was sent until now does not end the rest
		}
	}
	if h.next < 0 || !h.realtime() || !l.place.allowed.IsSet(h.next) {
		l.unbindHome()
		return
	}
	tid := unix.Gettid()
	if h.thread == tid && h.cpu == h.next {
		return
	}
	l.unbindHome()
	var one unix.CPUSet
	one.Set(h.next)
	if unix.SchedSetaffinity(0, &one) != nil {
		return
	}
	h.thread, h.cpu = tid, h.next
	l.place.bindTo(h.cpu, l.links)
	l.stats.Moves.Add(1)
}

// unbindHome undoes settle.
func (l *Loop) unbindHome() {
	h := &l.home
	if h.thread == 0 {
		return
	}
	h.thread = 0
	l.place.bindTo(-1, l.links)
	// The goroutine may have another thread now, and that one may have made more, which
	// inherited its CPU.
	sched.Unbind(h.cpu, &l.place.allowed)
}

// noteRested is called when something has ended a rest.
func (h *home) noteRested() { h.looks, h.fresh = 0, true }

// noteSender records the CPU of the programs whose packet has ended a rest.
func (h *home) noteSender(s Senders) {
	if h.fresh && s != nil {
		h.noteSource(s.Main())
	}
	h.fresh = false
}

// noteReceiver records the CPU of the peer's thread whose packet has ended a rest.
func (h *home) noteReceiver(s served) {
	if h.fresh {
		h.noteSource(s.PeerCPU())
	}
	h.fresh = false
}

// noteSource records where a packet came from that has ended a rest: twice, before the thread
// moves, since a program may have moved for once.
func (h *home) noteSource(cpu int) {
	if cpu >= 0 && (cpu == h.came || h.next < 0) {
		h.next = cpu
	}
	h.came = cpu
}

// isAnswering reports whether the thread has sent something soon after a rest, so that it is for
// the peer to continue.
func (l *Loop) isAnswering(sent int) bool { return sent > 0 && l.round == 0 }

// isBrief reports whether to wait at once after so few bytes: poll(2) says whether more has come,
// and the program that waits for these, on the same CPU, continues when the loop sleeps.
func (l *Loop) isBrief(bytes int) bool {
	return l.home.thread != 0 && l.round < settled && bytes <= smallBytes && len(l.links) == 0
}

// handOver leaves the CPU to the thread of a peer at home on the same one, and reports
// whether to look again. The peer, which has just got a packet, then answers without waking
// anybody.
func (l *Loop) handOver() bool {
	h := &l.home
	if h.thread == 0 || h.looks >= maxLooks ||
		!slices.ContainsFunc(l.links, func(s served) bool { return s.PeerCPU() == h.cpu }) {
		return false
	}
	h.looks++
	l.threadCPU = -1
	unix.RawSyscallNoError(unix.SYS_SCHED_YIELD, 0, 0, 0)
	return true
}

// answersFirst reports whether the loop looks for an answer before it looks for the next packet:
// little is sent, and it finds what comes by looking again.
func (l *Loop) answersFirst() bool {
	return l.spin.row > 0 && l.load.sent+l.load.received <= smallBytes
}

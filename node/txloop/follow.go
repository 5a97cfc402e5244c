package txloop

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Senders tells the loop where the programs behind a device run.
type Senders interface {
	// Main returns the CPU that sent more than half of the packets since the last
	// call, or -1.
	Main() int
	// Sent returns how many packets they have sent. One is counted before it can be read.
	Sent() uint64
	// Take returns the CPU that sent packets since the last call (-1: none, or several), and when
	// the first of these was sent, in nanoseconds of CLOCK_MONOTONIC (0: none).
	Take() (cpu int, first uint64)
}

const (
	// followBursts is how many bursts pass between two looks at the senders.
	followBursts = 64
	// followCPUs is how many CPUs there may be for the thread to share one with the
	// programs; with more, the scheduler has others for it.
	followCPUs = 4
)

// follower keeps the thread on the CPU of the programs that send. A packet of 64 KB
// then passes from core to core once on its way, and not three times: on two CPUs a
// gigabyte took 0.55 CPU seconds instead of 0.8. The scheduler does not do it by
// itself: it moves the thread and the programs out of each other's way.
//
// Where the thread of a peer is bound that sends what this one receives, this one is
// not: all programs would end up on one CPU, with the other idle. Unbound, it is on
// another CPU, and draws the programs there that it wakes.
type follower struct {
	senders Senders // nil: not to be followed
	few     bool    // so few CPUs that the thread shares one with programs
	stays   bool    // bound by bindThread
	allowed unix.CPUSet
	home    int // CPU that the thread is bound to; -1: none
	cpuNow  func() int
	lock    func() // takes the thread for the goroutine alone

	bursts, sent, received int // since the last look
}

// findHomes begins. Several devices have their programs in several places.
func (f *follower) findHomes(ports []port, lock func()) {
	f.home, f.cpuNow, f.lock = -1, currentCPU, lock
	if unix.SchedGetaffinity(0, &f.allowed) != nil {
		return
	}
	n := f.allowed.Count()
	f.few = n >= 2 && n <= followCPUs
	if f.few && len(ports) == 1 {
		f.senders = ports[0].Senders
	}
}

// bindThread binds the thread to the CPU where it is, while it looks repeatedly: there it
// has its turn when the program there sleeps. The scheduler would have another CPU that
// falls idle take it over.
func (f *follower) bindThread(links []served) {
	if !f.few || f.home >= 0 {
		return
	}
	cpu := f.cpuNow()
	var one unix.CPUSet
	one.Set(cpu)
	if f.allowed.IsSet(cpu) && unix.SchedSetaffinity(0, &one) == nil {
		f.bindTo(cpu, links)
		f.stays = true
	}
}

// roam ends stay.
func (f *follower) roam(links []served) {
	if f.stays {
		f.unbindThread(links)
	}
}

// noteBurst is called after each burst of packets. It returns true if the thread has
// moved.
func (f *follower) noteBurst(bytes int, links []served) bool {
	f.sent += bytes
	if f.bursts++; f.senders == nil || f.bursts < followBursts {
		return false
	}
	receives := f.received > 4*f.sent
	f.bursts, f.sent, f.received = 0, 0, 0
	cpu := f.senders.Main()
	switch {
	case receives && slices.ContainsFunc(links, func(s served) bool { return s.PeerCPU() == max(cpu, f.home) }):
		f.unbindThread(links)
		return false
	case cpu < 0 || cpu == f.home || !f.allowed.IsSet(cpu) || f.home < 0 && cpu == f.cpuNow():
		return false
	}
	var one unix.CPUSet
	one.Set(cpu)
	f.lock()
	if unix.SchedSetaffinity(0, &one) != nil {
		f.senders = nil // not allowed
		return false
	}
	f.bindTo(cpu, links)
	return true
}

// unbindThread lets the scheduler choose the CPU again.
func (f *follower) unbindThread(links []served) {
	if f.home >= 0 {
		f.bindTo(-1, links)
		_ = unix.SchedSetaffinity(0, &f.allowed) // it was allowed before
	}
}

// bindTo notes the CPU that the thread is to have, and tells the peers.
func (f *follower) bindTo(cpu int, links []served) {
	f.home, f.stays = cpu, false
	for _, s := range links {
		s.Bind(cpu)
	}
}

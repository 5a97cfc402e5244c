package txloop

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

type fakeSenders int

func (f *fakeSenders) Main() int           { return int(*f) }
func (f *fakeSenders) Sent() uint64        { return 0 }
func (f *fakeSenders) Take() (int, uint64) { return int(*f), 0 }

// inThread runs f in a thread of its own, which is thrown away.
func inThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

// The thread is bound to the CPU of the programs that send, with one device only,
// not where a peer that sends is bound, and not after a rest.
func TestFollow(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	if n := all.Count(); n < 2 || n > followCPUs || !all.IsSet(0) || !all.IsSet(1) {
		t.Skipf("%d CPUs, not among them 0 and 1", n)
	}
	inThread(func() {
		var senders fakeSenders
		peer := newLink(t)
		links := []served{{Served: peer}}
		var f follower
		f.findHomes([]port{{Port: Port{Senders: &senders}}}, func() {})
		bursts := func(bytes, received int) (moves int) {
			for range followBursts {
				f.received += received
				if f.noteBurst(bytes, links) {
					moves++
				}
			}
			return moves
		}
		expect := func(what string, cpu, moves, got int) {
			t.Helper()
			if int(peer.bound.Load()) != cpu || f.home != cpu || got != moves {
				t.Errorf("%s: bound to %d (told %d) after %d moves, want %d after %d", what, f.home, peer.bound.Load(), got, cpu, moves)
			}
			var now unix.CPUSet
			if err := unix.SchedGetaffinity(0, &now); err != nil {
				t.Error(err)
			}
			if want := map[bool]int{true: 1, false: all.Count()}[cpu >= 0]; now.Count() != want || cpu >= 0 && !now.IsSet(cpu) {
				t.Errorf("%s: the thread may run on %d CPUs", what, now.Count())
			}
		}
		here, other := 0, 1
		f.cpuNow = func() int { return here }
		senders = fakeSenders(here)
		expect("programs here", -1, 0, bursts(1000, 0))
		senders = fakeSenders(other)
		expect("programs on another CPU", other, 1, bursts(1000, 0))
		expect("there already", other, 0, bursts(1000, 0))
		senders = -1
		expect("no CPU has most", other, 0, bursts(1000, 0))
		senders = 100
		expect("a CPU that is not allowed", other, 0, bursts(1000, 0))
		senders = fakeSenders(here)
		expect("the programs have moved", here, 1, bursts(1000, 0))
		peer.peerCPU.Store(int64(here))
		expect("the peer is there, but does not send", here, 0, bursts(1000, 1000))
		expect("the peer is there and sends", -1, 0, bursts(1000, 5000))
		senders = fakeSenders(other)
		expect("programs on another CPU than the peer", other, 1, bursts(1000, 5000))
		f.unbindThread(links)
		expect("rest", -1, 0, 0)
	})
	for _, ports := range [][]port{nil, {{}}, {{Port: Port{Senders: new(fakeSenders)}}, {}}} {
		inThread(func() {
			var f follower
			if f.findHomes(ports, nil); f.noteBurst(1000, nil) || f.home != -1 || f.senders != nil {
				t.Errorf("%d ports: followed", len(ports))
			}
		})
	}
}

// A thread that looks repeatedly stays where it is, until it roams.
func TestStay(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	if n := all.Count(); n < 2 || n > followCPUs {
		t.Skipf("%d CPUs", n)
	}
	inThread(func() {
		peer := newLink(t)
		links := []served{{Served: peer}}
		var f follower
		f.findHomes([]port{{}, {}}, func() {})
		cpus := func() int {
			var now unix.CPUSet
			if err := unix.SchedGetaffinity(0, &now); err != nil {
				t.Error(err)
			}
			return now.Count()
		}
		for range 2 {
			f.bindThread(links)
			f.bindThread(links)
			if cpu := currentCPU(); cpus() != 1 || f.home != cpu || int(peer.bound.Load()) != cpu {
				t.Errorf("on CPU %d of %d, bound to %d, told %d", cpu, cpus(), f.home, peer.bound.Load())
			}
			f.roam(links)
			f.roam(links)
			if cpus() != all.Count() || f.home >= 0 || peer.bound.Load() >= 0 {
				t.Errorf("bound to %d of %d CPUs afterwards, told %d", f.home, cpus(), peer.bound.Load())
			}
		}
		f.bindTo(1, links) // by the senders
		f.roam(links)
		if f.home != 1 {
			t.Error("it left the CPU of the programs that send")
		}
	})
}

package pager

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// follow has the pager's thread run on the CPU of the program's thread that waits for it. While
// one thread has nearly all faults, that CPU has nothing else to do at that moment; to wake one
// that sleeps takes longer than to serve the fault, above all on a virtual machine.
type follow struct {
	allowed   unix.CPUSet // those that the thread may run on
	cpu       int         // it runs on this one alone; -1: on all
	after     time.Time   // not before
	schedstat *os.File    // its /proc/TID/schedstat; nil: it follows nobody
	waited    uint64      // ns that it has waited for a CPU so far
	looked    time.Time
	pid, tid  int // who has most of the faults, by votes
	votes     int
	faults    int
	stat      *os.File // its /proc/PID/task/TID/stat; nil: not open
	statOf    int      // the TID
	buffer    [1024]byte
}

const (
	fewFaults = 4 // since the last look: they say nothing
	// pauseTime is how long the thread runs on all CPUs after it had to wait on one, for more
	// than a part of the time (mostWaited).
	pauseTime  = 500 * time.Millisecond
	mostWaited = 4
)

// beginFollow belongs to the pager's thread, as all methods do.
func (f *follow) beginFollow() {
	f.cpu = -1
	if unix.SchedGetaffinity(0, &f.allowed) != nil || f.allowed.Count() < 2 {
		return
	}
	f.schedstat, _ = os.Open("/proc/thread-self/schedstat") // nil: the kernel does not count
}

// endFollow lets the thread run on all CPUs again.
func (f *follow) endFollow() {
	f.releasePeer()
	f.schedstat.Close() // nil: it does nothing
	f.stat.Close()
}

// countFault counts a fault of a thread.
func (f *follow) countFault(pid, tid int) {
	f.faults++
	switch {
	case f.tid == tid && f.pid == pid:
		f.votes++
	case f.votes == 0:
		f.pid, f.tid, f.votes = pid, tid, 1
	default:
		f.votes--
	}
}

// chooseCPU chooses the CPU by the faults since it was called last.
func (f *follow) chooseCPU(now time.Time) {
	faults, votes := f.faults, f.votes
	f.faults, f.votes = 0, 0
	if f.schedstat == nil {
		return
	}
	waited, since := f.waitedTime(), now.Sub(f.looked)
	crowded := f.cpu >= 0 && waited-f.waited > uint64(since)/mostWaited
	f.waited, f.looked = waited, now
	switch {
	case crowded:
		f.releasePeer()
		f.after = now.Add(pauseTime)
	case faults < fewFaults || now.Before(f.after):
	case votes < faults*3/4:
		f.releasePeer()
	default:
		f.bindTo(f.cpuOf(f.pid, f.tid))
	}
}

// bindTo has the thread run on a CPU, -1: on all.
func (f *follow) bindTo(cpu int) {
	if cpu < 0 || !f.allowed.IsSet(cpu) {
		f.releasePeer()
		return
	}
	if cpu == f.cpu {
		return
	}
	var one unix.CPUSet
	one.Set(cpu)
	if unix.SchedSetaffinity(0, &one) == nil {
		f.cpu = cpu
	}
}

func (f *follow) releasePeer() {
	if f.cpu >= 0 && unix.SchedSetaffinity(0, &f.allowed) == nil {
		f.cpu = -1
	}
}

// waitedTime is how long the thread has waited for a CPU so far, in ns.
func (f *follow) waitedTime() uint64 {
	fields := bytes.Fields(f.readFile(f.schedstat))
	if len(fields) < 2 {
		return 0
	}
	n, _ := strconv.ParseUint(string(fields[1]), 10, 64) // 0: not known
	return n
}

// cpuOf is the CPU on which a thread ran last; -1: not known.
func (f *follow) cpuOf(pid, tid int) int {
	if f.stat == nil || f.statOf != tid {
		f.stat.Close()
		f.stat, _ = os.Open(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid)) // nil: it has ended
		f.statOf = tid
	}
	if f.stat == nil {
		return -1
	}
	text := f.readFile(f.stat)
	const after = 39 - 3 // proc(5): the fields after the name, which may have any bytes
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= after {
		return -1
	}
	cpu, err := strconv.Atoi(string(fields[after]))
	if err != nil {
		return -1
	}
	return cpu
}

func (f *follow) readFile(file *os.File) []byte {
	n, _ := file.ReadAt(f.buffer[:], 0) // as far as it goes
	return f.buffer[:n]
}

// Package sched sets the scheduling policy of a process that carries packets.
//
// # Architecture
//
// The data path is to the host what a softirq is to a kernel: if the scheduler
// runs it after the programs that wait for it, all of them wait. Under the fair
// scheduler it was runnable but not running for a fifth of the time, and moved
// 0.52 times as much as a veth pair; with SCHED_RR it moved 0.64 times as much
// in the same run.
//
// The whole process runs at real-time priority, not just the thread that reads
// the packets: other threads of the Go runtime work for that thread (garbage
// collection, scheduling), and it could wait for them for ever on a CPU that it
// does not yield.
//
// New threads inherit the policy, and so would programs: a thread that starts
// one calls Fair first (package netns does).
//
// The lowest priority is enough, and the kernel leaves 5 % of a CPU to the fair
// scheduler however busy real-time threads are (sched_rt_runtime_us, and the
// fair server since Linux 6.12), so the host still answers.
//
// # Concurrency
//
// All functions may be called from any goroutine. Fair is for a goroutine that
// is locked to its thread.
package sched

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	_ "exnet/internal/linux"

	"golang.org/x/sys/unix"
)

// priority is the lowest real-time priority (sched(7)).
const priority = 1

// before is the policy that the process had when it called Realtime first, and process the
// one that it was given last.
var before, process atomic.Pointer[unix.SchedAttr]

// cpus are those that the process may run on, as it was when it called Realtime first.
var cpus atomic.Pointer[unix.CPUSet]

// Realtime gives all threads of the process the policy SCHED_RR. That takes
// root (CAP_SYS_NICE) or a limit on real-time priority (RLIMIT_RTPRIO, ulimit
// -r) of at least 1; the error says so, and leaves the process as it was.
func Realtime() error {
	old, err := unix.SchedGetAttr(os.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("sched: %w", err)
	}
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &all); err != nil {
		return fmt.Errorf("sched: %w", err)
	}
	if before.CompareAndSwap(nil, old) {
		cpus.Store(&all)
	}
	return setAll(unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: priority})
}

// Normal undoes Realtime. A process that polls all the time must not do that
// before all others.
func Normal() error {
	return setAll(fair())
}

// setAll gives all threads of the process a policy.
func setAll(attr unix.SchedAttr) error {
	done := make(map[int]bool)
	// A thread that was made meanwhile by one not yet changed is found by
	// another pass; one made by a changed thread needs none.
	for changed := true; changed; {
		changed = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("sched: %w", err)
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil || done[tid] {
				continue
			}
			switch err := unix.SchedSetAttr(tid, &attr, 0); err {
			case nil, unix.ESRCH: // it has ended
			case unix.EPERM:
				return fmt.Errorf("sched: real-time priority: %w: run as root, or allow it (ulimit -r 1)", err)
			default:
				return fmt.Errorf("sched: policy %d: %w", attr.Policy, err)
			}
			done[tid] = true
			changed = true
		}
	}
	process.Store(&attr)
	return nil
}

// fair is the default policy, SCHED_OTHER, with the nice value that the calling thread has:
// a lower one would need rights that a user under nice(1) lacks.
func fair() unix.SchedAttr {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
	if raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil {
		attr.Nice = int32(20 - raw) // the system call returns 20 - nice, 1 to 40
	}
	return attr
}

// First reports whether the process goes before all programs, by Realtime.
func First() bool {
	now := process.Load()
	return now != nil && realtime(now)
}

// Fair gives the calling thread the default policy, SCHED_OTHER, and the CPUs that the
// process had before Realtime. It keeps the nice value.
func Fair() error {
	attr := fair()
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("sched: default policy: %w", err)
	}
	if all := cpus.Load(); all != nil {
		if err := unix.SchedSetaffinity(0, all); err != nil {
			return fmt.Errorf("sched: CPUs: %w", err)
		}
	}
	return nil
}

// Unbind lets the threads of the process that are bound to cpu run on all of all.
func Unbind(cpu int, all *unix.CPUSet) {
	var one, now unix.CPUSet
	one.Set(cpu)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err == nil && unix.SchedGetaffinity(tid, &now) == nil && now == one {
			_ = unix.SchedSetaffinity(tid, all) // or it has ended
		}
	}
}

// Lower gives the calling thread the default policy if the process had it before Realtime,
// so that by sched_yield(2) it leaves the CPU to the programs. It reports whether it does
// so now; changed says that it did not before, and Raise is to follow.
func Lower() (yields, changed bool) {
	now, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return false, false
	}
	if !realtime(now) {
		return true, false
	}
	old := before.Load()
	if old == nil || realtime(old) || unix.SchedSetAttr(0, old, 0) != nil {
		return false, false
	}
	return true, true
}

// realtime reports whether a thread of that policy goes before all that have the default one.
func realtime(a *unix.SchedAttr) bool {
	return a.Policy == unix.SCHED_RR || a.Policy == unix.SCHED_FIFO || a.Policy == unix.SCHED_DEADLINE
}

// Raise undoes Lower: the calling thread has the policy of the process again.
func Raise() {
	if now := process.Load(); now != nil {
		_ = unix.SchedSetAttr(0, now, 0) // the process has it
	}
}

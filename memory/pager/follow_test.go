package pager

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The pager's thread runs on the CPU of the one thread that has the faults, and on all when
// there are several, or when it had to wait there.
func TestFollow(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	var f follow
	f.beginFollow()
	if f.schedstat == nil {
		t.Skip("one CPU, or a kernel that does not count how long a thread waits for one")
	}
	defer f.endFollow()
	var cpus []int
	for i := range 1024 {
		if f.allowed.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	on := func() (now unix.CPUSet) {
		if err := unix.SchedGetaffinity(0, &now); err != nil {
			t.Fatal(err)
		}
		return now
	}
	pid, now := os.Getpid(), time.Now()
	look := func(votes ...int) {
		for _, tid := range votes {
			for range fewFaults {
				f.countFault(pid, tid)
			}
		}
		now = now.Add(time.Hour) // so that no wait is a part of it
		f.chooseCPU(now)
	}
	first, second := threadOn(t, cpus[0]), threadOn(t, cpus[1])
	for _, c := range []struct{ tid, cpu int }{{first, cpus[0]}, {second, cpus[1]}} {
		look(c.tid)
		if got := on(); got.Count() != 1 || !got.IsSet(c.cpu) {
			t.Errorf("the thread is on CPU %d, and the pager's may run on %v", c.cpu, got)
		}
	}
	f.countFault(pid, first)
	now = now.Add(time.Hour)
	if f.chooseCPU(now); f.cpu != cpus[1] {
		t.Error("a single fault says nothing")
	}
	if look(first, second); on() != f.allowed {
		t.Error("of two threads none is followed")
	}
	if look(1 << 30); on() != f.allowed {
		t.Error("there is no such thread")
	}
	look(first)
	f.waited, f.looked = 0, now // as if it had waited all the time since
	now = now.Add(1)
	if f.chooseCPU(now); f.waited > 0 && on() != f.allowed {
		t.Error("it had to wait")
	}
}

// threadOn starts a thread that ran last on a CPU, and returns its ID. It ends with the test.
func threadOn(t *testing.T, cpu int) int {
	t.Helper()
	end, tid := make(chan struct{}), make(chan int)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Error(err)
		}
		tid <- unix.Gettid()
		<-end
	}()
	t.Cleanup(func() { close(end); <-done })
	return <-tid
}

// A Pager's thread follows the thread whose faults it serves, to another CPU, too.
func TestFollows(t *testing.T) {
	library := needPaging(t)
	program := compile(t, "wanders")
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	if all.Count() < 2 {
		t.Skip("one CPU")
	}
	if _, err := os.Stat("/proc/thread-self/schedstat"); err != nil {
		t.Skip(err)
	}
	socket := filepath.Join(t.TempDir(), "pager")
	const size = 1 << 26
	g, err := New(Config{Local: 4 << 20, Store: Memory(size), Size: size, Socket: socket,
		Say: func(text string) { t.Error(text) }, Full: func() { t.Error("the store is full") }})
	if err != nil {
		t.Fatal(err)
	}
	thread, served := make(chan int, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread <- unix.Gettid()
		served <- g.Run()
	}()
	cmd := exec.CommandContext(t.Context(), program, "16")
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+library, "EXNET_PAGER="+socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pager, seen := <-thread, 0
	for cpu := 0; cpu < 1024 && seen < 2; cpu++ {
		if !all.IsSet(cpu) {
			continue
		}
		seen++
		var one, now unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(cmd.Process.Pid, &one); err != nil { // its first thread alone
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); now != one; time.Sleep(time.Millisecond) {
			if err := unix.SchedGetaffinity(pager, &now); err != nil {
				t.Fatal(err)
			}
			if time.Now().After(end) {
				t.Errorf("the program is on CPU %d, and its pager may run on %v", cpu, now)
				break
			}
		}
	}
	_ = cmd.Process.Kill() // or it has ended
	_ = cmd.Wait()
	g.Finish()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

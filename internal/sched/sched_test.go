package sched

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// policies returns the policy of every thread of this process.
func policies(t *testing.T) map[int]uint32 {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[int]uint32)
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			t.Fatal(err)
		}
		if attr, err := unix.SchedGetAttr(tid, 0); err == nil {
			all[tid] = attr.Policy
		}
	}
	return all
}

// inChild runs the calling test again in a process of its own, since a process
// does not get back to the fair scheduler as a whole, and reports whether this
// is that process.
func inChild(t *testing.T) bool {
	t.Helper()
	const env = "EXNET_SCHED_TEST"
	if os.Getenv(env) != "" {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("in a process of its own:\n%s", out)
	}
	return false
}

func TestRealtimeAndFair(t *testing.T) {
	if !inChild(t) {
		return
	}
	if err := Realtime(); err != nil {
		t.Skip(err)
	}
	for tid, policy := range policies(t) {
		if policy != unix.SCHED_RR {
			t.Errorf("thread %d has policy %d, want SCHED_RR", tid, policy)
		}
	}
	// A thread made later inherits it, and Fair is for one thread alone.
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		attr, err := unix.SchedGetAttr(0, 0)
		if err != nil || attr.Policy != unix.SCHED_RR {
			t.Errorf("a later thread has %+v, %v; want SCHED_RR", attr, err)
		}
		if err := Fair(); err != nil {
			done <- err
			return
		}
		attr, err = unix.SchedGetAttr(0, 0)
		if err != nil || attr.Policy != unix.SCHED_NORMAL {
			t.Errorf("after Fair: %+v, %v", attr, err)
		}
		out, err := exec.Command("cut", "-d ", "-f", "41", "/proc/self/stat").Output()
		if policy := strings.TrimSpace(string(out)); policy != "0" {
			t.Errorf("a program started after Fair has policy %q (%v), want 0", policy, err)
		}
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	fair := 0
	for _, policy := range policies(t) {
		if policy == unix.SCHED_NORMAL {
			fair++
		}
	}
	if fair > 1 {
		t.Errorf("%d threads at the default policy after Fair on one", fair)
	}
}

func TestNormal(t *testing.T) {
	if !inChild(t) {
		return
	}
	if err := Realtime(); err != nil {
		t.Skip(err)
	}
	if err := Normal(); err != nil {
		t.Fatal(err)
	}
	for tid, policy := range policies(t) {
		if policy != unix.SCHED_NORMAL {
			t.Errorf("thread %d has policy %d, want SCHED_OTHER", tid, policy)
		}
	}
}

func TestRealtimeRefused(t *testing.T) {
	if !inChild(t) {
		return
	}
	if os.Geteuid() == 0 {
		// Root without CAP_SYS_NICE and without the limit is refused too.
		runtime.LockOSThread()
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&hdr, &data[0]); err != nil {
			t.Fatal(err)
		}
		data[0].Effective &^= 1 << unix.CAP_SYS_NICE
		data[0].Permitted &^= 1 << unix.CAP_SYS_NICE
		if err := unix.Setrlimit(unix.RLIMIT_RTPRIO, &unix.Rlimit{}); err != nil {
			t.Fatal(err)
		}
		if err := unix.Capset(&hdr, &data[0]); err != nil {
			t.Fatal(err)
		}
	}
	err := Realtime()
	if err == nil || !strings.Contains(err.Error(), "ulimit -r 1") {
		t.Errorf("Realtime: %v, want an error that says what to do", err)
	}
}

// A program started under nice(1) keeps its nice value, and needs no rights for that.
func TestFairKeepsNice(t *testing.T) {
	if !inChild(t) {
		return
	}
	runtime.LockOSThread() // the thread ends with the test
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 7); err != nil {
		t.Fatal(err)
	}
	if err := Fair(); err != nil {
		t.Fatal(err)
	}
	if raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || 20-raw != 7 {
		t.Errorf("nice %d after Fair, %v; want 7", 20-raw, err)
	}
}

// A thread yields to programs with the policy that the process had before Realtime, and
// gets its own back.
func TestLowerAndRaise(t *testing.T) {
	if !inChild(t) {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		policy := func(want uint32) {
			t.Helper()
			if attr, err := unix.SchedGetAttr(0, 0); err != nil || attr.Policy != want {
				t.Errorf("%+v, %v; want policy %d", attr, err, want)
			}
		}
		start, err := unix.SchedGetAttr(0, 0)
		if err != nil || realtime(start) {
			return // the tests run at real-time priority, or must not ask
		}
		if yields, changed := Lower(); !yields || changed {
			t.Errorf("before Realtime: %v, %v", yields, changed)
		}
		if Realtime() != nil {
			return
		}
		if yields, changed := Lower(); !yields || !changed {
			t.Errorf("Lower: %v, %v", yields, changed)
		}
		policy(start.Policy)
		Raise()
		policy(unix.SCHED_RR)
		before.Store(&unix.SchedAttr{Policy: unix.SCHED_FIFO})
		if yields, changed := Lower(); yields || changed {
			t.Errorf("real-time from the start: %v, %v", yields, changed)
		}
		policy(unix.SCHED_RR)
	}()
	<-done
}

// What a thread starts that was bound to a CPU may run on all that the process had, and Unbind
// frees the threads that are bound to one CPU, no others.
func TestCPUs(t *testing.T) {
	if !inChild(t) {
		return
	}
	runtime.LockOSThread() // the thread ends with the test
	var all, one, now unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	if !all.IsSet(0) || !all.IsSet(1) {
		t.Skip("there are no CPUs 0 and 1")
	}
	if First() {
		t.Error("the process is before all programs from the beginning")
	}
	if err := Realtime(); err != nil {
		t.Skip(err)
	}
	if !First() {
		t.Error("a real-time process is not before all programs")
	}
	one.Set(1)
	bound := func() int {
		if err := unix.SchedGetaffinity(0, &now); err != nil {
			t.Error(err)
		}
		return now.Count()
	}
	for _, free := range []func(){func() { Unbind(1, &all) }, func() {
		if err := Fair(); err != nil {
			t.Error(err)
		}
	}} {
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Fatal(err)
		}
		if Unbind(0, &all); bound() != 1 {
			t.Error("a thread on another CPU was unbound")
		}
		if free(); bound() != all.Count() {
			t.Errorf("the thread may run on %d of %d CPUs", bound(), all.Count())
		}
	}
	if err := Normal(); err != nil || First() {
		t.Errorf("Normal: %v, before all programs: %v", err, First())
	}
}

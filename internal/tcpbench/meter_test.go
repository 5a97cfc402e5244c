package tcpbench

import (
	"math"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

func TestMeterCountsBetweenTheBounds(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
	m := newMeter(start, job{Spec: Spec{Warmup: 100 * time.Millisecond, Duration: 200 * time.Millisecond}}, nil, nil)

	m.countBytes(1000, at(99)) // warm-up
	if m.counting || m.done {
		t.Fatal("the meter counts before its time")
	}
	m.countBytes(500, at(110)) // under way when the warm-up ended: sets the time
	if !m.counting || m.bytes != 0 {
		t.Fatalf("after the warm-up: counting %v, %d bytes", m.counting, m.bytes)
	}
	m.countBytes(10, at(150))
	m.countBytes(20, at(309))
	if m.done {
		t.Fatal("the meter is done before its time")
	}
	m.countBytes(30, at(330)) // under way at the end: counted, with its time
	m.countBytes(9999, at(340))
	if !m.done || m.bytes != 60 {
		t.Fatalf("at the end: done %v, %d bytes, want 60", m.done, m.bytes)
	}
	if r := sumMeters([]meter{m}); r.Bytes != 60 || math.Abs(r.Seconds-0.220) > 1e-9 {
		t.Errorf("result = %+v, want 60 bytes in 0.22 s", r)
	}
}

// way is a connection of which a test says how its bytes go.
type way struct{ done bool }

func (w *way) shadow() (uint64, string) { return 0, "" }
func (w *way) settled() bool            { return w.done }

// The warm-up lasts until all connections of the process go the direct way, but not for ever.
func TestMeterWarmsUpUntilDirect(t *testing.T) {
	const warmup = 100 * time.Millisecond
	j := job{Spec: Spec{Warmup: warmup, Duration: 50 * time.Millisecond}}
	ways, settling := [2]way{}, settlingOf(2)
	meters := [2]meter{newMeter(time.Now(), j, &ways[0], settling), newMeter(time.Now(), j, &ways[1], settling)}
	counting := func(now time.Duration, want bool) {
		t.Helper()
		for i := range meters {
			meters[i].countBytes(10, now)
		}
		for i := range meters {
			if m := &meters[i]; m.counting != want || m.done {
				t.Errorf("at %v: connection %d counts: %v, done: %v; want it to count: %v", now, i, m.counting, m.done, want)
			}
		}
	}
	counting(warmup+settleTime/2, false)
	ways[0].done = true
	counting(warmup+settleTime/2+1, false)
	counting(warmup+settleTime/2+2, false) // once for each connection
	ways[1].done = true
	meters[1].countBytes(10, warmup+settleTime/2+3)
	counting(warmup+settleTime/2+4, true)

	m := newMeter(time.Now(), j, &way{}, settlingOf(1))
	if m.countBytes(10, warmup+settleTime-1); m.counting {
		t.Error("it counts before the connection goes the direct way")
	}
	if m.countBytes(10, warmup+settleTime); !m.counting {
		t.Error("it waits for ever")
	}
}

func TestMeterWithoutWarmup(t *testing.T) {
	start := time.Now()
	m := newMeter(start, job{Spec: Spec{Duration: time.Second}}, nil, nil)
	m.countBytes(5, 0) // the first operation has no beginning that is known
	m.countBytes(7, time.Second)
	if r := sumMeters([]meter{m}); r.Bytes != 7 || r.Seconds != 1 {
		t.Errorf("result = %+v, want 7 bytes in 1 s", r)
	}
}

func TestMeterFinishedBeforeItCounted(t *testing.T) {
	start := time.Now()
	m := newMeter(start, job{Spec: Spec{Warmup: time.Second, Duration: time.Second}}, nil, nil)
	m.countBytes(5, 0)
	m.finish(3 * time.Second)
	if r := sumMeters([]meter{m}); r.Bytes != 0 || r.cpuShare() != 0 {
		t.Errorf("result = %+v, want nothing", r)
	}
}

func TestSumMeters(t *testing.T) {
	start := time.Now()
	at := func(s int) time.Duration { return time.Duration(s) * time.Second }
	r := sumMeters([]meter{
		{base: start, first: at(2), last: at(5), cpuFirst: 20 * time.Millisecond, cpuLast: 50 * time.Millisecond, bytes: 100},
		{base: start, first: at(1), last: at(4), cpuFirst: 10 * time.Millisecond, cpuLast: 40 * time.Millisecond, bytes: 200},
		{base: start.Add(time.Second), first: at(2), last: at(5), cpuFirst: 30 * time.Millisecond, cpuLast: 60 * time.Millisecond, bytes: 300},
	})
	want := jobResult{Bytes: 600, Seconds: 5, CPUSeconds: 0.05}
	if r != want {
		t.Errorf("result = %+v, want %+v", r, want)
	}
	if r.cpuShare() != 0.01 {
		t.Errorf("cpu = %v, want 0.01", r.cpuShare())
	}
	if (jobResult{CPUSeconds: 1}).cpuShare() != 0 {
		t.Error("a result without time has a CPU load")
	}
}

func TestCPUTimeGrows(t *testing.T) {
	before := cpuTime(nil)
	start := time.Now()
	for cpuTime(nil)-before < 20*time.Millisecond {
		if d := time.Since(start); d > 30*time.Second {
			t.Fatalf("%v of work took %v of CPU time", d, cpuTime(nil)-before)
		}
	}
	// No more than all CPUs together can do.
	d, most := cpuTime(nil)-before, time.Duration(runtime.NumCPU())*(time.Since(start)+100*time.Millisecond)
	if d > most {
		t.Errorf("%v of work took %v of CPU time", time.Since(start), d)
	}
}

// TestCPUTimeOfOthers: a process that carries packets is counted until it ends.
func TestCPUTimeOfOthers(t *testing.T) {
	other := exec.Command("/bin/sh", "-c", "while :; do :; done")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		other.Process.Kill()
		other.Wait()
	}()
	pid := other.Process.Pid
	for start := time.Now(); processTime(pid) < 10*time.Millisecond; time.Sleep(time.Millisecond) {
		if time.Since(start) > 30*time.Second {
			t.Fatalf("the process used %v", processTime(pid))
		}
	}
	alone, with := cpuTime(nil), cpuTime([]int{pid})
	if with-alone < 10*time.Millisecond {
		t.Errorf("%v alone, %v with the other", alone, with)
	}
	other.Process.Kill()
	other.Wait()
	if d := processTime(pid); d != 0 {
		t.Errorf("%v of a process that is gone", d)
	}
}

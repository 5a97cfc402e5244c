package study

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exnet/fabric/pattern"
)

// job is one of so many ranks, which only talk to the next one.
func job(tb testing.TB, name string, ranks int, submit, length time.Duration) Job {
	tb.Helper()
	return Job{Name: name, Pattern: traffic(tb, "ring", pattern.Params{Ranks: ranks, Bytes: 5}), Submit: submit * time.Second, Duration: length * time.Second}
}

// starts runs jobs on 8 hosts of 8 cores, and returns when each starts, in seconds.
func starts(t *testing.T, scheduler string, jobs ...Job) []int {
	t.Helper()
	r, err := Simulate(Config{
		Graph: network(t, "mesh:8"), Cores: 8, Scheduler: scheduler, Selector: "linear", Placement: "block", Router: "tables", Jobs: jobs,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Load.Idle() || len(r.Order) != len(jobs) {
		t.Errorf("idle %v, started %v", r.Load.Idle(), r.Order)
	}
	at := make([]int, len(jobs))
	for i, j := range r.Records {
		at[i] = int(j.Start / time.Second)
		if j.Start < j.Submit || j.End != j.Start+jobs[i].Duration {
			t.Errorf("job %d: %+v", i, j)
		}
	}
	return at
}

func TestSchedulers(t *testing.T) {
	// Jobs of 64 cores fill the machine: one after the other, in order.
	full := []Job{job(t, "a", 64, 0, 10), job(t, "b", 64, 0, 10), job(t, "c", 64, 1, 10)}
	for _, scheduler := range Schedulers {
		if got := starts(t, scheduler, full...); !slices.Equal(got, []int{0, 10, 20}) {
			t.Errorf("%s: %v", scheduler, got)
		}
	}
	// a takes half until 10, b waits for all of it. c would end before, d would not, and
	// e needs none of what b needs.
	mixed := []Job{job(t, "a", 32, 0, 10), job(t, "b", 56, 1, 10), job(t, "c", 16, 2, 8), job(t, "d", 32, 2, 20), job(t, "e", 8, 2, 100)}
	if got, want := starts(t, "fcfs", mixed...), []int{0, 10, 20, 20, 20}; !slices.Equal(got, want) {
		t.Errorf("fcfs: %v, want %v", got, want)
	}
	if got, want := starts(t, "backfill", mixed...), []int{0, 10, 2, 20, 2}; !slices.Equal(got, want) {
		t.Errorf("backfill: %v, want %v", got, want)
	}
}

// Backfill never puts off a job that FCFS would have started first at its turn: the
// first of the queue starts when those that ran before it have ended.
func TestBackfillKeepsPromise(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		var jobs []Job
		for i := range 20 {
			jobs = append(jobs, job(t, "j", 8*(1+rng.IntN(8)), time.Duration(i), time.Duration(1+rng.IntN(20))))
		}
		fcfs, back := starts(t, "fcfs", jobs...), starts(t, "backfill", jobs...)
		for i := range jobs { // the first job that had to wait is promised its start
			if fcfs[i] > i {
				if back[i] > fcfs[i] {
					t.Fatalf("job %d starts at %d, FCFS at %d", i, back[i], fcfs[i])
				}
				break
			}
		}
	}
}

func TestLinear(t *testing.T) {
	m := newMachine(12)
	m.markBusy([]int{2, 6, 9})
	for n, want := range map[int][]int{
		1: {0}, 2: {0, 1}, 3: {3, 4, 5}, // the shortest run that has enough, the first of those
		4: {3, 4, 5, 0}, 6: {3, 4, 5, 0, 1, 7}, 9: {3, 4, 5, 0, 1, 7, 8, 10, 11},
	} {
		if got := m.selectLinear(n); !slices.Equal(got, want) {
			t.Errorf("%d of %v: %v, want %v", n, m.busy, got, want)
		}
	}
}

func TestRandomSelector(t *testing.T) {
	m := newMachine(12)
	m.markBusy([]int{0, 11})
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 11 {
		got := m.selectRandom(n, rng)
		slices.Sort(got)
		if len(got) != n || len(slices.Compact(got)) != n || slices.Contains(got, 0) || slices.Contains(got, 11) {
			t.Errorf("%d hosts: %v", n, got)
		}
	}
}

func TestPlacement(t *testing.T) {
	var block, cyclic []int
	for rank := range 7 {
		block = append(block, hostOfRank("block", rank, 2, 4))
		cyclic = append(cyclic, hostOfRank("cyclic", rank, 2, 4))
	}
	if !slices.Equal(block, []int{0, 0, 1, 1, 2, 2, 3}) || !slices.Equal(cyclic, []int{0, 1, 2, 3, 0, 1, 2}) {
		t.Errorf("block %v, cyclic %v", block, cyclic)
	}
}

// The same seed gives the same result, another one another.
func TestSeed(t *testing.T) {
	p := traffic(t, "alltoall", pattern.Params{Ranks: 40, Bytes: 10})
	peaks := func(seed uint64) []uint64 {
		return simulate(t, Config{Graph: network(t, "tree:8x8/4"), Selector: "random", Placement: "block", Router: "random", Seed: seed}, p).Load.Peak
	}
	if a := peaks(1); !cmp.Equal(a, peaks(1)) || cmp.Equal(a, peaks(2)) {
		t.Error("seeds")
	}
}

// Two jobs that overlap load a link together; one that follows does not.
func TestOverlap(t *testing.T) {
	c := Config{Graph: network(t, "mesh:2"), Cores: 2, Scheduler: "fcfs", Selector: "linear", Placement: "cyclic", Router: "tables"}
	c.Jobs = []Job{job(t, "a", 4, 0, 3), job(t, "b", 4, 0, 3)}
	r, err := Simulate(c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Load.Peak[0] != 10 || r.Load.Total[0] != 20 || r.Makespan() != 6*time.Second || r.Wait() != 1500*time.Millisecond {
		t.Errorf("%+v, makespan %v, wait %v", r.Load, r.Makespan(), r.Wait())
	}
}

func TestSimulateRefuses(t *testing.T) {
	good := Config{Graph: network(t, "mesh:2"), Scheduler: "fcfs", Selector: "linear", Placement: "block", Router: "tables"}
	for what, change := range map[string]func(*Config){
		"scheduler": func(c *Config) { c.Scheduler = "x" },
		"selector":  func(c *Config) { c.Selector = "x" },
		"placement": func(c *Config) { c.Placement = "x" },
		"ranks":     func(c *Config) { c.Jobs = []Job{job(t, "a", 3, 0, 1)} },
	} {
		c := good
		change(&c)
		if _, err := Simulate(c); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	c := good
	c.Router = "x"
	if _, err := Simulate(c); err == nil {
		t.Error("router x")
	}
}

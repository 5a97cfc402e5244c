package soak

import (
	"context"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/preload"
	"exnet/internal/leaktest"
	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"

	"go.uber.org/goleak"
)

var (
	soakTime     = flag.Duration("soak.time", 10*time.Second, "how long things are broken, beside some `time` without")
	soakSeed     = flag.Uint64("soak.seed", 0, "what the faults and sizes depend on (a random `number`, which is printed)")
	soakJSON     = flag.String("soak.json", "", "write the summary to this `file`, too")
	soakLinks    = flag.String("soak.links", "drop=0.01,corrupt=0.005,duplicate=0.005,reorder=0.005", "the `faults` of the last node's links, as in exn-tun up --faults; empty: none")
	soakPaths    = flag.String("soak.paths", "", "in TestRootSoakCuts, the paths that match a `regular expression`, such as hosts, TLS: relay, or with a number of connections: hosts: exn0,.*, 200$")
	soakPatience = flag.Duration("soak.patience", 0, "in TestRootSoakCuts, the `time` after which a connection without progress has failed; 0: what TCP takes")
	soakStop     = flag.Duration("soak.stop", 0, "in TestRootSoakCuts, the `time` for which a node is stopped at most, also between hosts; 0: a second, and not between hosts")
	soakSlow     = flag.Duration("soak.slow", 0, "in TestRootSoakCuts, the `time` after which a connection without progress is counted and shown; 0: a minute")
	soakBreak    = flag.String("soak.break", "", "do `what` the soak has to find: corrupt, lose, leak")
)

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(jobEnv); ok {
		os.Exit(runJob(text))
	}
	os.Exit(m.Run())
}

// warmTime is for connections and buffers to become as many as they will.
const warmTime = 5 * time.Second

// All traffic at once, while things break.
func TestRootSoak(t *testing.T) {
	longtest.Skip(t)
	netnstest.Require(t)
	for _, p := range []struct {
		name, packages string
		must           bool
	}{{"ip", "iproute2", true}, {"gcc", "gcc libc6-dev", true}, {"redis-server", "redis-server", false}, {"python3", "python3", false}, {"curl", "curl", false}} {
		switch {
		case find(p.name) != "":
		case os.Getenv("CI") == "true":
			t.Fatalf("%s is missing: apt-get install %s", p.name, p.packages)
		case p.must:
			t.Skipf("%s is missing: apt-get install %s", p.name, p.packages)
		default:
			t.Logf("without %s: apt-get install %s", p.name, p.packages)
		}
	}
	// Not while somebody waits for a program: it takes long on a machine that is busy.
	if _, err := preload.Build(t.Context()); err != nil {
		t.Fatal(err)
	}
	netnstest.CheckFDs(t)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaktest.None(t, before) })

	seed := *soakSeed
	for seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	t.Logf("%v with -soak.seed %d", *soakTime, seed)
	l := newLab(t, seed, *soakBreak)
	start := time.Now()
	first, last, err := l.run(t.Context(), t.Logf, *soakTime, seed)
	if err != nil {
		l.fail("%v", err)
	}
	leaks := l.close()
	s := l.summarize()
	s.Seed, s.Seconds, s.Before, s.After = seed, time.Since(start).Seconds(), first, last
	s.Leaks = append(last.above(first), leaks...)

	var text strings.Builder
	s.print(&text)
	t.Logf("summary\n%s", &text)
	if *soakJSON != "" {
		b, err := json.MarshalIndent(s, "", "  ")
		if err == nil {
			err = os.WriteFile(*soakJSON, append(b, '\n'), 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if n := len(s.Failures) + len(s.Leaks); n > 0 {
		t.Errorf("%d failures, see above; again: -soak.time %v -soak.seed %d", n, *soakTime, seed)
	}
	if s.Direct == 0 || s.InMemory == 0 {
		t.Error("no direct socket was direct")
	}
	if s.Unreachable > 10+s.Connections/100 {
		t.Errorf("%d of %d connections did not find the neighbour", s.Unreachable, s.Connections)
	}
	for kind, n := range s.Datagrams {
		// IP may lose some, as when a machine is so busy that a socket's buffer overflows.
		if n > 20+s.Kinds[kind].Messages/50 {
			t.Errorf("%s: %d datagrams of %d were lost without a fault", kind, n, s.Kinds[kind].Messages)
		}
	}
}

// run makes traffic and breaks things. It returns what programs hold before and after.
func (l *lab) run(ctx context.Context, logf func(string, ...any), d time.Duration, seed uint64) (first, last levels, err error) {
	start := time.Now()
	at := func(what string) { logf("%5.1f s: %s", time.Since(start).Seconds(), what) }
	if err = l.resume(); err != nil {
		return
	}
	if err = l.allWorks(); err != nil {
		return
	}
	at("everything works")
	time.Sleep(warmTime)
	if first, err = l.pause(nil); err != nil {
		return
	}
	at("paused")
	if err = l.resume(); err != nil {
		return
	}
	l.breakThings(ctx, d, plan(seed, d, len(l.nodes), func(node int) (names []string) {
		for _, p := range l.nodes[node-1].programs {
			names = append(names, p.name)
		}
		return names
	}))
	at("nothing is broken any more")
	if err = l.allWorks(); err != nil {
		return
	}
	at("everything works")
	for _, n := range l.nodes {
		l.look(n)
	}
	last, err = l.pause(first)
	at("paused")
	return
}

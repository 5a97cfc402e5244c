package study

import (
	"errors"
	"strings"
	"testing"
)

const writers = `
topology = "torus:8x8"
router   = "dor"
[storage]
routers = 8
groups  = 2
servers = 4
targets = 16
[[job]]
pattern  = "write"
ranks    = 40
bytes    = "64k"
duration = "10s"
target   = ["random", "nearest", "balanced"]
[[job]]
pattern = "ring"
ranks   = 16
`

// TestWrite runs a job that writes beside one that does not.
func TestWrite(t *testing.T) {
	s, err := parseScenario("w.toml", []byte(writers))
	if err != nil {
		t.Fatal(err)
	}
	sum := make(map[string]uint64)
	for _, r := range s.Runs() {
		c, err := r.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		result, err := Simulate(c)
		if err != nil {
			t.Fatal(err)
		}
		w := result.Records[0]
		if !result.Load.Idle() || w.Bytes != 40<<16 || w.Imbalance < 1 || result.Records[1].Imbalance != 0 {
			t.Errorf("%s: %+v", r.Label(), w)
		}
		if r.Label() == "balanced" && w.Imbalance != 1.2 { // 3 writers at a target, over 10 at a server of 4 targets
			t.Errorf("balanced writers have an imbalance factor of %v", w.Imbalance)
		}
		for _, record := range result.Records { // every eighth host is a router, and no job's
			for _, h := range record.Hosts {
				if c.Graph.HostIndex(h)%8 == 0 {
					t.Errorf("%s has host %d, a router", record.Name, h)
				}
			}
		}
		for _, n := range result.Load.Total {
			sum[r.Label()] += n
		}
	}
	if sum["nearest"] >= sum["random"] {
		t.Errorf("the links carry %d bytes to the nearest routers, and %d to any", sum["nearest"], sum["random"])
	}
}

// TestFilesClose checks that a job's files count until it ends: a second one by the same seed finds
// the storage as the first did.
func TestFilesClose(t *testing.T) {
	s, err := parseScenario("w.toml", []byte(strings.Replace(writers, `["random", "nearest", "balanced"]`, `"balanced"`+"\nsubmit = \"every:10s\"\ncount = 2", 1)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Runs()[0].Prepare()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Simulate(c)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := r.Records[0].Imbalance, r.Records[1].Imbalance; a != b {
		t.Errorf("imbalance factors %v, then %v", a, b)
	}
}

func TestWriteMistakes(t *testing.T) {
	for _, tt := range []struct{ from, to, want string }{
		{"groups  = 2", "groups  = 3", "8 routers are no multiple of 3 groups"},
		{"groups  = 2", "groups  = 0", "w.toml:6: groups: 0 is not a whole number"},
		{"groups  = 2\n", "", "w.toml:4: groups is missing"},
		{"routers = 8", "routers = 64", "64 routers leave no host of 64 for jobs"},
		{"ranks    = 40", "ranks    = 57", "57 ranks, more than 56 hosts"},
		{"[storage]", "[store]", "w.toml:4: unknown key \"store\""},
		{"[storage]\nrouters = 8\ngroups  = 2\nservers = 4\ntargets = 16\n", "", "w.toml:5: pattern: write needs a table [storage]"},
		{"[storage]\nrouters = 8\ngroups  = 2\nservers = 4\ntargets = 16\n", "storage = 5\n", "storage: write a table, [storage]"},
		{`"balanced"`, `"best"`, `"best" is not one of random, nearest, balanced`},
	} {
		s, err := parseScenario("w.toml", []byte(strings.Replace(writers, tt.from, tt.to, 1)))
		if err == nil {
			err = s.checkRuns()
		}
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.to, err, tt.want)
		}
	}
}

// TestWriteWithoutStorage makes a configuration that no scenario can.
func TestWriteWithoutStorage(t *testing.T) {
	j := job(t, "w", 4, 0, 1)
	j.Write, j.Target = 5, "random"
	_, err := Simulate(Config{Graph: network(t, "mesh:8"), Scheduler: "fcfs", Selector: "linear", Placement: "block", Router: "tables", Jobs: []Job{j}})
	if !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

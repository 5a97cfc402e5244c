package study

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const example = `
topology  = ["tree:4x5/2", "torus:4x4"]
cores     = 8
placement = ["block", "cyclic"]
router    = ["dmodk", "smodk", "minmax"]
[[job]]
pattern = "cg"
ranks   = 128
[[job]]
name    = "ring"
pattern = "ring"
ranks   = 16
bytes   = "64k"
submit  = "every:10s"
count   = 3
duration = "5s"
`

func TestScenario(t *testing.T) {
	s, err := parseScenario("x/cg.toml", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	runs := s.Runs()
	if len(runs) != 12 { // the example of the thesis has as many
		t.Fatalf("%d runs", len(runs))
	}
	if l := runs[11].Label(); l != "torus:4x4 cyclic minmax" {
		t.Errorf("the last run: %s", l)
	}
	c, err := runs[0].Prepare()
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Jobs) != 4 || c.Jobs[3].Submit != 20*time.Second || c.Jobs[3].Name != "ring" || c.Jobs[1].Pattern.Bytes() != 16<<16 || c.Cores != 8 {
		t.Errorf("%+v", c)
	}
	for _, r := range runs {
		c, err := r.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		result, err := Simulate(c)
		if err != nil || !result.Load.Idle() || result.Stats().Max == 0 {
			t.Errorf("%s: %v", r.Label(), err)
		}
	}
}

// Every kind of mistake has a line, and all of a file are said at once.
func TestScenarioMistakes(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"syntax", "topology = \n", "s.toml:1: "},
		{"empty", "", "s.toml: topology is missing\ns.toml: no job: add a [[job]] with a pattern"},
		{"values", `topology = 5
cores = 0
seed = -1
router = ["dmodk", "fastest"]
placement = "block "
selector = []
[[job]]
bytes = "64q"
class = 3
submit = "soon"
duration = "-1s"
count = 1.5
ranks = "many"
`, `s.toml:1: topology: 5 is not a quoted string
s.toml:2: cores: 0 is not a whole number from 1 to 65536
s.toml:3: seed: -1 is not a whole number from 0 to 9223372036854775807
s.toml:6: selector: the list is empty
s.toml:5: placement: "block " is not one of block, cyclic
s.toml:4: router: "fastest" is not one of tables, dor, dmodk, smodk, random, minsum, minmax, refine, alg3, adaptive
s.toml:7: pattern is missing
s.toml:13: ranks: many is not a whole number from 1 to 1048576
s.toml:8: bytes: 64q is not a number of bytes, such as 64 or "64k"
s.toml:9: class: "3" is not one of S, W, A, B, C, D, E
s.toml:10: submit: "soon" is not a time of arrival: use "5s", "every:10s" or "exp:10s"
s.toml:11: duration: -1s is not a time above 0, such as "10s"
s.toml:12: count: 1.5 is not a whole number from 1 to 100000`},
		{"keys", "topology = \"mesh:2\"\nrooter = 1\n[[job]]\npattern = \"ring\"\nranks = 2\ncolour = 2\n[algorithms]\n", `s.toml:7: unknown key "algorithms": use name, topology`},
		{"pattern", "topology = \"mesh:2\"\n[[job]]\npattern = \"rings\"\nranks = 2\n", `s.toml:3: pattern: "rings" is not one of allreduce`},
		{"other table", "topology = \"mesh:2\"\n[[jobs]]\nranks = 0\n[[job]]\nranks = 0\n", `s.toml:2: unknown key "jobs": use name, topology, cores, seed, scheduler, selector, placement, router
s.toml:4: pattern is missing
s.toml:5: ranks: 0 is not`},
		{"job", "topology = \"mesh:2\"\njob = 1\n", "s.toml:2: job: write a table of its own for each, [[job]]"},
		{"too many", "topology = \"mesh:2\"\nseed = [" + strings.Repeat("1,", 5000) + "]\n[[job]]\npattern = \"ring\"\nranks = 2\n", "s.toml:2: seed: more than 4096 combinations"},
	} {
		_, err := parseScenario("s.toml", []byte(tt.text))
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s:\n%v\nwant\n%s", tt.name, err, tt.want)
		}
	}
}

// What a scenario names is checked, too, and keeps its place.
func TestPrepareMistakes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"bad.graphml": "<graphml><graph>\n<edge source=\"a\" target=\"b\"/></graph></graphml>",
		"bad.csv":     "0,1,2\n0,1\nx,1,2\n",
		"bad.toml":    "nodes = [1, 2]\nlinks = [\"1 2\",\n\"1 3\"]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ head, job, want string }{
		{`"bad.graphml"`, "pattern = \"ring\"\nranks = 2", `s.toml:1: topology: bad.graphml:2: edge: source "a" is not a node above it`},
		{`"bad.toml"`, "pattern = \"ring\"\nranks = 2", `s.toml:1: topology: bad.toml:3: link 2`},
		{`"tree:2x2/1"` + "\nrouter = \"dor\"", "pattern = \"ring\"\nranks = 2", "s.toml:2: router: invalid router: dor is for a torus or mesh"},
		{`"mesh:2"`, "pattern = \"ring\"", "s.toml:3: pattern: ranks is missing"},
		{`"mesh:2"`, "pattern = \"ring\"\nranks = 3", "s.toml:3: ring-3 has 3 ranks, more than 2 hosts of 1 cores hold"},
		{`"mesh:2"`, "pattern = \"cg\"\nranks = 3", "s.toml:3: pattern: invalid pattern: cg of 3 ranks: use a power of two"},
		{`"mesh:2"`, "pattern = \"./bad.csv\"", "s.toml:3: pattern: bad.csv:2: invalid pattern: \"0,1\": use from,to,bytes\ns.toml:3: pattern: bad.csv:3: "},
		{`"mesh:2"`, "pattern = \"no.json\"", "s.toml:3: pattern: stat "},
	} {
		s, err := parseScenario(filepath.Join(dir, "s.toml"), []byte("topology = "+tt.head+"\n[[job]]\n"+tt.job+"\n"))
		if err != nil {
			t.Errorf("%s, %s: %v", tt.head, tt.job, err)
			continue
		}
		if _, err := s.Runs()[0].Prepare(); err == nil || !strings.HasPrefix(strings.ReplaceAll(err.Error(), dir+"/s", "s"), tt.want) {
			t.Errorf("%s, %s:\n%v\nwant\n%s", tt.head, tt.job, err, tt.want)
		}
	}
}

// A scenario's own mistakes do not hide those in what it names, nor do they cause others.
func TestAllMistakes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"net.toml": "nodes = [1, 2]\ncolour = 1\nlinks = [\"1 2\", \"1 3\",\n\"x\"]\n",
		"p.csv":    "0,1\nx,1,2\n",
		"p.json":   "[{\"rank\":0,\"n_procs\":3,\"tx_bytes\":[1,2]},\n{\"rank\":0,\"n_procs\":2,\"tx_bytes\":[1]}]",
		"s.toml": `topology = ["net.toml", "tree:2x2/1", "ring:3", 5]
cores = "many"
router = ["dor", "best"]
seed = [1, 2, 3]
[[job]]
pattern = ["./p.csv", "./p.json", "song"]
ranks = 0
[[job]]
pattern = ["cg", "ring"]
ranks = [3, 999999]
bytes = "1x"
[[job]]
pattern = "none.csv"
submit = "never"
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := ReadScenario(filepath.Join(dir, "s.toml"))
	if err == nil {
		t.Fatal("no mistake")
	}
	got := strings.Split(strings.ReplaceAll(err.Error(), dir, "."), "\n")
	want := []string{
		`./s.toml:1: topology: 5 is not a quoted string`,
		`./s.toml:2: cores: many is not a whole number from 1 to 65536`,
		`./s.toml:3: router: "best" is not one of tables`,
		`./s.toml:6: pattern: "song" is not one of allreduce`,
		`./s.toml:7: ranks: 0 is not a whole number`,
		`./s.toml:11: bytes: 1x is not a number of bytes`,
		`./s.toml:14: submit: "never" is not a time of arrival`,
		`./s.toml:1: topology: net.toml:2: unknown key "colour"`,
		`./s.toml:1: topology: net.toml:4: link "x": use a form`,
		`./s.toml:1: topology: net.toml:3: link 2 (1.x- 3.x+): no node 3`,
		`./s.toml:6: pattern: p.csv:1: invalid pattern: "0,1"`,
		`./s.toml:6: pattern: p.csv:2: invalid pattern: "x" is not a rank`,
		`./s.toml:9: pattern: invalid pattern: cg of 3 ranks: use a power of two`,
		`./s.toml:13: pattern: open ./none.csv: no such file`,
		`./s.toml:9: pattern: invalid pattern: cg of 999999 ranks`,
		`./s.toml:6: pattern: p.json:1: invalid pattern: rank 0 says n_procs is 3, but there are 2 ranks`,
		`./s.toml:6: pattern: p.json:2: invalid pattern: rank 0 appears twice`,
		`./s.toml:3: router: invalid router: dor is for a torus or mesh`,
		`./s.toml:1: topology: invalid network: "ring:3": use torus`,
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Fatalf("line %d:\n%s\nwant\n%s", i+1, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// What jobs send in all has to fit a counter.
func TestTooMuch(t *testing.T) {
	s, err := parseScenario("s.toml", []byte("topology = \"mesh:2\"\n[[job]]\npattern = \"ring\"\nranks = 2\nbytes = \"400000000G\"\ncount = 100\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Runs()[0].Prepare(); err == nil || !strings.HasPrefix(err.Error(), "s.toml:3: ring-2: more than 2^62 bytes in all jobs") {
		t.Error(err)
	}
}

func FuzzScenario(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte("topology = [[1]]\n[[job]]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseScenario("s.toml", data)
		if err == nil && len(s.Runs()) == 0 {
			t.Error("no runs and no error")
		}
	})
}

// The patterns of a run are bounded together, and those of earlier runs are not kept for ever.
func TestFlowsOfARun(t *testing.T) {
	s, err := parseScenario("s.toml", []byte("topology = \"torus:8x8\"\n[[job]]\npattern = \"ring\"\nranks = 64\nbytes = [1, 2, 3]\n"+
		"[[job]]\npattern = \"ring\"\nranks = [2, 64, 63]\ncount = 9\nbytes = 9\n"))
	if err != nil {
		t.Fatal(err)
	}
	s.cache.most = 127
	for _, r := range s.Runs() {
		_, err := r.Prepare()
		got := fmt.Sprint(err)
		want := "<nil>"
		if ranks, _ := r.valueAndLine(2, "ranks"); ranks == int64(64) {
			want = "s.toml:7: the patterns of the jobs up to here have more than 127 flows"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", r.Label(), got, want)
		}
		kept := 0
		for _, rec := range s.cache.patterns {
			kept += len(rec.pattern.Flows)
		}
		if kept != s.cache.flows || kept > s.cache.most {
			t.Errorf("%s: keeps %d flows, counted %d", r.Label(), kept, s.cache.flows)
		}
	}
}

// A key is found without a search, however many jobs there are: the index has each of them.
func TestIndex(t *testing.T) {
	s, err := parseScenario("s.toml", []byte("topology = \"torus:2x2\"\n"+strings.Repeat("[[job]]\npattern = \"ring\"\nranks = [2, 3]\n", 3)))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.index) != len(s.entries) || len(s.entries) != len(machineKeys)+3*len(jobKeys) {
		t.Errorf("%d entries, %d in the index", len(s.entries), len(s.index))
	}
	for _, r := range s.Runs() {
		if len(r.choice) != 3 { // the lists, and not all keys
			t.Fatalf("run %d has %d choices", r.Number, len(r.choice))
		}
		for job := 1; job <= 3; job++ {
			bit := int64(r.Number-1) >> (3 - job) & 1
			if v, line := r.valueAndLine(job, "ranks"); v != 2+bit || line != 1+3*job {
				t.Errorf("run %d: job %d has %v ranks, of line %d", r.Number, job, v, line)
			}
		}
	}
}

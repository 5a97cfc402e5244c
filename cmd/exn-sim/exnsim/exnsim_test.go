package exnsim

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"exnet/internal/cli"
)

// call runs the program.
func call(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = Run(t.Context(), args, &out, &errs)
	return status, out.String(), errs.String()
}

func scenario(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.toml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const cgScenario = `topology = "tree:4x5/2"
cores = 8
placement = ["block", "cyclic"]
router = ["dmodk", "minmax"]
[[job]]
pattern = "cg"
ranks = 128
`

func TestRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	status, stdout, stderr := call(t, "run", scenario(t, cgScenario), "-o", dir, "--paths")
	if status != 0 || !strings.Contains(stdout, "2    block minmax   3.0 GB        0.5000") || strings.Count(stderr, "\n") != 4 {
		t.Fatalf("%d\n%s%s", status, stdout, stderr)
	}
	for file, want := range map[string]string{
		"index.html":              "<td>3.0 GB</td><td>0.5000</td>",
		"runs.csv":                "1,block dmodk,tree:4x5/2,dmodk,5929050624,1,",
		"run-001/links.csv":       "leaf3,spine",
		"run-001/jobs.csv":        "1,cg-128,0,0,1,16,h1,",
		"run-001/network.graphml": `attr.name="total"`,
		"run-004/load.svg":        "</svg>",
		"run-002/paths.csv":       "job,bytes,path",
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, %q is not in it", file, err, want)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "runs.json"))
	if err != nil {
		t.Fatal(err)
	}
	var runs []outcome
	if err := json.Unmarshal(data, &runs); err != nil || len(runs) != 4 || !runs[3].Idle || runs[1].Stats.Max != 2964656640 {
		t.Errorf("%+v, %v", runs, err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(string(page), -1) {
		if _, err := os.Stat(filepath.Join(dir, m[1])); err != nil {
			t.Errorf("the page names %s: %v", m[1], err)
		}
	}
}

// networkx reads the GraphML, walks the paths, and finds the same loads.
func TestNetworkx(t *testing.T) {
	python := ""
	for _, p := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(p, "-c", "import networkx").Run() == nil {
			python = p
			break
		}
	}
	if python == "" {
		t.Skip("no python3 that has networkx")
	}
	dir := t.TempDir()
	text := `topology = ["tree:4x4/2", "mesh:4x4"]
cores = 2
router = ["tables", "dmodk", "minmax", "alg3"]
placement = "cyclic"
[[job]]
pattern = ["halo2d", "alltoall"]
ranks = 32
`
	if status, _, stderr := call(t, "run", scenario(t, text), "-o", dir, "--paths"); status != 0 {
		t.Fatal(stderr)
	}
	runs, err := os.ReadFile(filepath.Join(dir, "runs.csv"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(runs)).ReadAll()
	if err != nil || len(rows) != 17 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	args := []string{"testdata/loads.py"}
	for _, row := range rows[1:] {
		args = append(args, filepath.Join(dir, fmt.Sprintf("run-%03s", row[0])))
	}
	out, err := exec.Command(python, args...).Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) != len(rows)-1 {
		t.Fatalf("%v: %s", err, out)
	}
	for i, line := range lines {
		var name string
		var edges, hops, wrong, longer int
		if _, err := fmt.Sscan(line, &name, &edges, &hops, &wrong, &longer); err != nil {
			t.Fatal(err)
		}
		if edges < 48 || hops < 32 || wrong > 0 || longer > 0 && rows[i+1][3] != "alg3" {
			t.Errorf("%v: %d edges, %d hops, %d edges wrong, %d hops too many", rows[i+1][1], edges, hops, wrong, longer)
		}
	}
}

// Bad input: a line for each mistake, and nothing is written.
func TestMistakes(t *testing.T) {
	bad := scenario(t, "topology = [\"mesh:2\", \"ring:9\"]\nrouter = \"best\"\n[[job]]\npattern = \"ring\"\nranks = 0\n")
	dir := filepath.Join(t.TempDir(), "out")
	for _, args := range [][]string{{"check", bad}, {"run", bad, "-o", dir}} {
		status, stdout, stderr := call(t, args...)
		want := `exn-sim COMMAND: SCENARIO:2: router: "best" is not one of tables, dor, dmodk, smodk, random, minsum, minmax, refine, alg3, adaptive
exn-sim COMMAND: SCENARIO:5: ranks: 0 is not a whole number from 1 to 1048576
exn-sim COMMAND: SCENARIO:1: topology: invalid network: "ring:9": use torus:4x4x4, mesh:4x4, tree:LEAVESxHOSTS/SPINES, fattree:K, FILE.toml or FILE.graphml
`
		want = strings.NewReplacer("COMMAND", args[0], "SCENARIO", bad).Replace(want)
		if status != cli.ExitFailure || stdout != "" || stderr != want {
			t.Errorf("%v: %d %s\n%s", args, status, stdout, stderr)
		}
	}
	worse := scenario(t, "topology = [\"mesh:2\", \"ring:9\"]\n[[job]]\npattern = \"ring\"\nranks = [2, 3]\n")
	_, _, stderr := call(t, "check", worse)
	if lines := strings.Count(stderr, "\n"); lines != 2 || !strings.Contains(stderr, "s.toml:1: topology: invalid network: \"ring:9\"") || !strings.Contains(stderr, "s.toml:3: ring-3 has 3 ranks") {
		t.Errorf("%d lines:\n%s", lines, stderr)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a folder was made: %v", err)
	}
	for _, args := range [][]string{{}, {"x"}, {"run"}, {"run", bad}, {"run", bad, "-q"}, {"check", bad, bad}, {"topo", "mesh:2", "-o", "x.png"}} {
		if status, _, stderr := call(t, args...); status != cli.ExitUsage || stderr == "" {
			t.Errorf("%v: %d %s", args, status, stderr)
		}
	}
	for _, args := range [][]string{{"check", "none.toml"}, {"topo", "ring:3"}, {"topo", "mesh:2", "-o", "none/x.svg"}} {
		if status, _, stderr := call(t, args...); status != cli.ExitFailure || stderr == "" {
			t.Errorf("%v: %d %s", args, status, stderr)
		}
	}
}

func TestOther(t *testing.T) {
	good := scenario(t, cgScenario)
	svg := filepath.Join(t.TempDir(), "x.svg")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-h"}, "Usage:"}, {[]string{"run", "-h"}, "Usage:"}, {[]string{"version"}, "exn-sim "},
		{[]string{"check", good}, "ok, runs: 4"}, {[]string{"topo", "mesh:3"}, "<graphml"}, {[]string{"topo", "mesh:3", "-o", svg}, ""},
	} {
		status, stdout, stderr := call(t, tt.args...)
		if status != 0 || stderr != "" || !strings.Contains(stdout, tt.want) {
			t.Errorf("%v: %d %s %s", tt.args, status, stdout, stderr)
		}
	}
	if text, err := os.ReadFile(svg); err != nil || !strings.Contains(string(text), "</svg>") {
		t.Errorf("drawing: %v", err)
	}
}

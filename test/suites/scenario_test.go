package suites

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
)

// scenario is a program that serves, with clients whose data is checked.
type scenario struct {
	name  string
	needs map[string]string // programs, or patterns of their paths, and the Debian packages that have them
	long  bool              // only with -full, or by name
	tcp   string            // why it may be that nothing is direct; "": something has to be
	// serve writes what the server needs, starts it and waits until it listens.
	serve func(s *stage)
	// check runs clients and compares what they got.
	check func(s *stage)
	// load does the same work at each call; nil: check is it.
	load func(s *stage)
}

// size is one of a load: that of every day, or with -full.
func size(small, full int) int {
	if *fullFlag {
		return full
	}
	return small
}

// missing returns what to install for a scenario; "": nothing.
func (s *scenario) missing() string {
	var packages []string
	for program, pkg := range s.needs {
		if !installed(program) {
			packages = append(packages, pkg)
		}
	}
	slices.Sort(packages)
	return strings.Join(slices.Compact(packages), " ")
}

// installed looks for a program in PATH, in /usr/sbin, or by a pattern of paths; "python3:M" is a
// module of Python.
func installed(program string) bool {
	if module, ok := strings.CutPrefix(program, "python3:"); ok {
		return exec.Command("/usr/bin/python3", "-c", "import "+module).Run() == nil
	}
	if found, err := filepath.Glob(program); err == nil && len(found) > 0 {
		return true
	}
	_, err := exec.LookPath(cmp.Or(sbin(program), program))
	return err == nil
}

// sbin returns the path of a program that is in /usr/sbin, or "".
func sbin(program string) string {
	path := filepath.Join("/usr/sbin", program)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// run runs a scenario in every mode and adds a row of each to the table. The plain server stays
// until the end, to compare the times.
func (sc *scenario) run(t *testing.T, all []mode, table *programTable) {
	var beside *stage
	for _, m := range all {
		parent := t
		t.Run("mode="+string(m), func(t *testing.T) {
			row := programRow{Program: sc.name, Mode: m, Data: "wrong"}
			defer func() { table.Rows = append(table.Rows, row) }()
			s := newStage(parent, m)
			s.T = t
			sc.serve(s)
			sc.check(s)
			if t.Failed() {
				return
			}
			row.Data = "ok"
			if m == plain {
				beside = s
				return
			}
			s.end()
			row.Traffic = s.traffic()
			if row.Traffic.Direct == 0 && sc.tcp == "" {
				t.Errorf("no connection was direct: %s", row.Traffic.because())
			}
			if beside != nil && m == normal && *roundsFlag > 0 {
				beside.T = t
				row.Ratios, row.Plain = sc.race(t, beside)
			}
		})
	}
	if beside != nil {
		beside.T = t
		beside.end()
	}
}

// race times the load, plain and under exn-run without reports by turns, and returns the ratios and
// the median of the plain times, in seconds.
func (sc *scenario) race(t *testing.T, beside *stage) (ratios []float64, base float64) {
	s := newStage(t, normal)
	s.timed = true
	sc.serve(s)
	load := sc.load
	if load == nil {
		load = sc.check
	} else {
		sc.check(s)
	}
	took := func(s *stage) float64 {
		began := time.Now()
		load(s)
		return time.Since(began).Seconds()
	}
	took(beside) // both are to be warm
	took(s)
	var times []float64
	for range *roundsFlag {
		p := took(beside)
		times = append(times, p)
		ratios = append(ratios, took(s)/p)
	}
	s.end()
	return ratios, median(times)
}

// Programs with their data checked: what is right plain is right under exn-run, and direct.
func TestRootPrograms(t *testing.T) {
	longtest.Skip(t)
	netnstest.Require(t)
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is missing: apt-get install gcc")
	}
	only := matcher(t, "programs", *programsFlag)
	all, err := modes()
	if err != nil {
		t.Fatal(err)
	}
	table := &programTable{Commit: commit("."), Date: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU()}
	for _, sc := range scenarios() {
		if !only.MatchString(sc.name) || sc.long && !*fullFlag && *programsFlag == "" {
			continue
		}
		if packages := sc.missing(); packages != "" {
			table.Rows = append(table.Rows, programRow{Program: sc.name, Skipped: "not installed: apt-get install " + packages})
			t.Run(sc.name, func(t *testing.T) {
				if os.Getenv("CI") == "true" && !sc.long {
					t.Fatalf("a program is missing: apt-get install %s", packages)
				}
				t.Skipf("a program is missing: apt-get install %s", packages)
			})
			continue
		}
		t.Run(sc.name, func(t *testing.T) { sc.run(t, all, table) })
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		table.Load = strings.Join(strings.Fields(string(text))[:3], " ")
	}
	t.Logf("\n%s", table)
	if err := writeTable(*outFlag, table); err != nil {
		t.Error(err)
	}
}

// What the scenarios of every day need is what .ci/run installs.
func TestPackages(t *testing.T) {
	longtest.Skip(t)
	text, err := os.ReadFile("../packages.txt")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			listed = append(listed, line)
		}
	}
	for _, sc := range scenarios() {
		for program, pkg := range sc.needs {
			if !sc.long && !slices.Contains(listed, pkg) {
				t.Errorf("packages.txt has no %s, for %s of %s", pkg, program, sc.name)
			}
		}
	}
}

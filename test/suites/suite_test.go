package suites

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
)

// verdict is what became of a test.
type verdict int

const (
	passed verdict = iota + 1
	failed
	skipped
)

// suite is the tests that others wrote of a program or library.
type suite struct {
	name  string
	needs string // what -checkout has to be, for people
	// units lists what its own runner can run alone. dir is the checkout.
	units func(dir string) ([]unit, error)
	// parse returns the verdict of each test of a unit from what the runner wrote and its exit
	// status.
	parse func(u unit, out string, status int) map[string]verdict
}

// unit is what the runner of a suite can run alone.
type unit struct {
	name string
	argv []string
	env  []string
	dir  string // where; "": in the checkout
	// alone is the unit for one of its tests, to run it again; nil: the unit itself.
	alone func(test string) unit
}

// Tests of a unit that no runner tells of.
const (
	theUnit = "(unit)"  // the unit ended with an error, though no test failed
	theHang = "(hang)"  // it did not end
	fewer   = "(count)" // fewer tests were run than plain
)

// result is what a run of a unit said.
type result struct {
	verdicts map[string]verdict
	out      string
	took     time.Duration
	traffic  traffic
}

// failures returns the tests that failed, sorted.
func (r result) failures() []string {
	return slices.Sorted(maps.Keys(maps.Collect(func(yield func(string, bool) bool) {
		for test, v := range r.verdicts {
			if v == failed && !yield(test, true) {
				return
			}
		}
	})))
}

// count returns how many tests had a verdict.
func (r result) count(v verdict) int {
	n := 0
	for _, got := range r.verdicts {
		if got == v {
			n++
		}
	}
	return n
}

// run runs a unit in a new box.
func (s *suite) run(ctx context.Context, checkout string, u unit, m mode) (result, error) {
	b, err := newBox(m, checkout)
	if err != nil {
		return result{}, err
	}
	defer b.close()
	began := time.Now()
	p, err := b.run(cmp.Or(u.dir, checkout), u.env, u.argv)
	if err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, *unitTimeFlag)
	defer cancel()
	hung := p.wait(ctx)
	r := result{out: p.out.String(), took: time.Since(began)}
	r.verdicts = s.parse(u, r.out, p.cmd.ProcessState.ExitCode())
	switch {
	case hung:
		r.verdicts[theHang] = failed
	case p.err != nil && r.count(failed) == 0 && r.count(skipped) == 0:
		r.verdicts[theUnit] = failed
	}
	r.traffic, err = b.traffic()
	return r, err
}

// difference is a test that fails in a mode and not plain.
type difference struct {
	Unit  string `json:"unit"`
	Test  string `json:"test"`
	Mode  mode   `json:"mode"`
	Fails int    `json:"fails"` // of Runs, in Mode; the first time is not counted
	Plain int    `json:"plain"` // fails of Runs, plain
	Runs  int    `json:"runs"`
	Kind  string `json:"kind"`
	About string `json:"about,omitempty"` // why it is no fault
	out   string
}

// kind tells what differs from what fails now and then in any mode.
func (d *difference) kind() string {
	switch {
	case d.About != "":
		return "explained"
	case d.Fails == 0:
		return "failed once"
	case d.Plain > 0:
		return "flaky"
	case d.Fails < d.Runs:
		return "differs at times"
	}
	return "differs"
}

// again runs a test that differed once more, several times, in its mode and plain by turns.
func (s *suite) again(ctx context.Context, checkout string, u unit, d *difference) error {
	if u.alone != nil && !strings.HasPrefix(d.Test, "(") {
		u = u.alone(d.Test)
	}
	for d.Runs = 0; d.Runs < *repeatFlag; d.Runs++ {
		for _, m := range []mode{plain, d.Mode} {
			r, err := s.run(ctx, checkout, u, m)
			if err != nil {
				return err
			}
			switch {
			case r.verdicts[d.Test] != failed:
			case m == plain:
				d.Plain++
			default:
				d.Fails++
				d.out = r.out
			}
		}
	}
	return nil
}

// differing returns the tests of a unit that fail in a mode and not plain.
func differing(u unit, m mode, with, without result) []difference {
	var all []difference
	add := func(test string) { all = append(all, difference{Unit: u.name, Test: test, Mode: m, out: with.out}) }
	for _, test := range with.failures() {
		if without.verdicts[test] != failed {
			add(test)
		}
	}
	hung := with.verdicts[theHang] == failed || without.verdicts[theHang] == failed
	if len(with.verdicts) < len(without.verdicts) && len(all) == 0 && !hung {
		add(fewer)
	}
	return all
}

// runUnit runs a unit in every mode and adds what came out to the table.
func (s *suite) runUnit(ctx context.Context, checkout string, u unit, all []mode, table *suiteTable, say func(...any)) error {
	results := make(map[mode]result)
	for _, m := range all {
		r, err := s.run(ctx, checkout, u, m)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", u.name, m, err)
		}
		results[m] = r
		table.count(m, r)
	}
	without, ok := results[plain]
	if !ok {
		return nil
	}
	for _, m := range all {
		if m == plain {
			continue
		}
		for _, d := range differing(u, m, results[m], without) {
			if d.About = explained(s.name, u.name, d.Test, m); d.About == "" && d.Test != fewer {
				if err := s.again(ctx, checkout, u, &d); err != nil {
					return err
				}
			}
			d.Kind = d.kind()
			if d.Test == fewer {
				d.Kind = "differs"
			}
			table.differs(d)
			say(d.Unit, ": ", d.Test, " (", d.Mode, "): ", d.Kind)
		}
	}
	return nil
}

// The suites of others: what passes plain passes under exn-run.
func TestRootSuite(t *testing.T) {
	longtest.Skip(t)
	if *suiteFlag == "" {
		t.Skip("-suite NAME -checkout DIR: one of ", suiteNames())
	}
	netnstest.Require(t)
	all, err := modes()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(*suiteFlag, ",") {
		i := slices.IndexFunc(suites, func(s suite) bool { return s.name == name })
		if i < 0 {
			t.Fatalf("-suite: %q is none of %v", name, suiteNames())
		}
		t.Run(name, func(t *testing.T) { runSuite(t, &suites[i], all) })
	}
}

func runSuite(t *testing.T, s *suite, all []mode) {
	checkout := *checkoutFlag
	if checkout != "" {
		var err error
		if checkout, err = filepath.Abs(checkout); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(checkout); s.needs != "" && (err != nil || !info.IsDir()) {
		t.Fatalf("-checkout: %s", s.needs)
	}
	units, err := s.units(checkout)
	if err != nil {
		t.Fatalf("%v; -checkout: %s", err, s.needs)
	}
	only, skip := matcher(t, "only", *onlyFlag), matcher(t, "skip", *skipFlag)
	units = slices.DeleteFunc(units, func(u unit) bool { return !only.MatchString(u.name) || skip.MatchString(u.name) })
	if len(units) == 0 {
		t.Fatal("no unit to run")
	}
	table := newSuiteTable(s.name, checkout, all)
	work := make(chan unit)
	var wg sync.WaitGroup
	for range max(*jobsFlag, 1) {
		wg.Go(func() {
			for u := range work {
				if err := s.runUnit(t.Context(), checkout, u, all, table, t.Log); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, u := range units {
		work <- u
	}
	close(work)
	wg.Wait()
	table.finish()
	t.Logf("\n%s", table)
	if err := table.write(*outFlag); err != nil {
		t.Error(err)
	}
	for _, d := range table.Differences {
		if strings.HasPrefix(d.Kind, "differs") {
			t.Errorf("%s: %s: %s under exn-run (%s): %d of %d; plain: %d\n%s", d.Unit, d.Test, d.Kind, d.Mode, d.Fails, d.Runs, d.Plain, tail(d.out, 3000))
		}
	}
}

// tail returns the last n bytes of a text.
func tail(text string, n int) string { return text[max(0, len(text)-n):] }

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	_ "exnet/internal/linux"
)

// account is what came of tests.
type account struct {
	Passed  int
	Failed  []failure
	Skipped []skip
	// Unsteady are tests that failed, and passed when they were run again by themselves.
	Unsteady []string
}

// failure is a test that failed, or a package.
type failure struct {
	Package string
	Test    string // "": the package as a whole
	Race    bool   // with the race detector
	Grave   bool   // no work beside it can have caused that
	Seconds float64
}

func (f failure) String() string { return strings.TrimSuffix(f.Package+" "+f.Test, " ") }

// skip is a test that was skipped.
type skip struct{ Test, Reason string }

func loadAccount(file string) (*account, error) {
	a := new(account)
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err == nil {
		err = json.Unmarshal(b, a)
	}
	return a, err
}

// lockAccount waits until nobody else adds to the account.
func lockAccount(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file+".lock", os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

func (a *account) storeAccount(file string) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

func (a *account) addAccount(b *account) {
	a.Passed += b.Passed
	a.Failed = append(a.Failed, b.Failed...)
	a.Skipped = append(a.Skipped, b.Skipped...)
}

const (
	mostAgain = 8  // so many tests may fail for work beside them to be the cause
	quick     = 60 // a test that took fewer seconds runs again thrice, others once
)

// listAgain lists the tests to run again.
func (a *account) listAgain(w io.Writer) {
	if len(a.Failed) > mostAgain || slices.ContainsFunc(a.Failed, func(f failure) bool { return f.Grave }) {
		return
	}
	for _, f := range a.Failed {
		race, times := "-", 3
		if f.Race {
			race = "-race"
		}
		if f.Seconds >= quick {
			times = 1
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%v\n", race, times, f.Package, runPattern(f.Test), f)
	}
}

// runPattern is what go test -run takes for one test.
func runPattern(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// recordPass records that a test which failed has passed since.
func (a *account) recordPass(test string) error {
	i := slices.IndexFunc(a.Failed, func(f failure) bool { return f.String() == test })
	if i < 0 {
		return fmt.Errorf("%s has not failed", test)
	}
	a.Failed = slices.Delete(a.Failed, i, i+1)
	a.Passed++
	a.Unsteady = append(a.Unsteady, test)
	return nil
}

// printAccount writes what was skipped, by its reason, what failed, and how many there were.
// ok: nothing failed.
func (a *account) printAccount(w io.Writer) (ok bool) {
	skipped := slices.Clone(a.Skipped)
	slices.SortStableFunc(skipped, func(a, b skip) int { return cmp.Compare(a.Reason, b.Reason) })
	for i, s := range skipped {
		if i == 0 || s.Reason != skipped[i-1].Reason {
			fmt.Fprintf(w, "skipped: %s\n", s.Reason)
		}
		fmt.Fprintf(w, "\t%s\n", s.Test)
	}
	for _, test := range a.Unsteady {
		fmt.Fprintf(w, "unsteady, failed once and passed by itself: %s\n", test)
	}
	for _, f := range a.Failed {
		fmt.Fprintf(w, "failed: %v\n", f)
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", a.Passed, len(a.Failed), len(a.Skipped))
	return len(a.Failed) == 0
}

// event is a line of go test -json (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output
	Test       string
	Elapsed    float64
	Output     string
}

// results are what is known of one package.
type results struct {
	output  map[string][]string // by test; "": the package's own
	ended   []event             // tests, in the order of their ends
	parents map[string]bool
}

// readEvents reads events, and prints what go test prints without -v.
func readEvents(in io.Reader, out io.Writer) (*account, error) {
	a := new(account)
	packages := map[string]*results{}
	lines := json.NewDecoder(in)
	for {
		var e event
		switch err := lines.Decode(&e); {
		case err == io.EOF:
			for name := range packages { // go test itself was ended
				a.Failed = append(a.Failed, failure{Package: name, Grave: true})
			}
			return a, nil
		case err != nil:
			return nil, err
		}
		if e.Action == "build-output" {
			fmt.Fprint(out, e.Output)
			continue
		}
		if e.Package == "" {
			continue
		}
		p := packages[e.Package]
		if p == nil {
			p = &results{output: map[string][]string{}, parents: map[string]bool{}}
			packages[e.Package] = p
		}
		if p.noteEvent(e) {
			a.endPackage(e, p, out)
			delete(packages, e.Package)
		}
	}
}

// noteEvent notes an event. last: it is the package's end.
func (p *results) noteEvent(e event) (last bool) {
	if i := strings.LastIndexByte(e.Test, '/'); i > 0 {
		p.parents[e.Test[:i]] = true
	}
	switch e.Action {
	case "output":
		p.output[e.Test] = append(p.output[e.Test], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			return true
		}
		p.ended = append(p.ended, e)
	}
	return false
}

// endPackage counts a package that has ended, and prints it.
func (a *account) endPackage(end event, p *results, out io.Writer) {
	var failed, skipped []event
	for _, e := range p.ended {
		switch {
		case e.Action == "fail":
			// A parent fails with its subtests; it is one of its own if none of them has.
			if !slices.ContainsFunc(failed, func(f event) bool { return strings.HasPrefix(f.Test, e.Test+"/") }) {
				failed = append(failed, e)
			}
			fmt.Fprint(out, strings.Join(p.output[e.Test], ""))
		case e.Action == "skip":
			skipped = append(skipped, e)
			a.Skipped = append(a.Skipped, skip{Test: end.Package + " " + e.Test, Reason: skipReason(p.output[e.Test])})
		case !p.parents[e.Test]:
			a.Passed++
		}
	}
	for _, e := range failed {
		a.Failed = append(a.Failed, failure{Package: end.Package, Test: e.Test, Grave: slices.ContainsFunc(p.output[e.Test], isGrave), Seconds: e.Elapsed})
	}
	if end.Action == "fail" && len(failed) == 0 { // it does not build, or panicked, or was ended
		a.Failed = append(a.Failed, failure{Package: end.Package, Grave: true})
		for test, lines := range p.output {
			if !slices.ContainsFunc(p.ended, func(e event) bool { return e.Test == test }) && test != "" {
				fmt.Fprint(out, strings.Join(lines, ""))
			}
		}
	}
	for _, line := range p.output[""] {
		switch {
		case line == "PASS\n" && end.Action != "fail":
		case strings.HasPrefix(line, "ok  \t") && len(skipped) > 0:
			fmt.Fprintf(out, "%s\t[%d skipped]\n", strings.TrimSuffix(line, "\n"), len(skipped))
		case strings.HasPrefix(line, "?   \t"): // no test files
		default:
			fmt.Fprint(out, line)
		}
	}
}

// signs are of what only a fault of the program explains: of its memory, or of the bytes that it
// moves.
var signs = []string{
	"DATA RACE", "race detected", "Sanitizer", "runtime error", "panic:", "fatal error:", "SIGSEGV", "egmentation fault",
	"corrupt", "differ", "mismatch", "sha256", "checksum", "out of order", "leak",
}

// nothing matches a counter that has counted nothing, in JSON, perhaps quoted, or in a table, and
// how much a link is to damage (--faults), and a test: their names are no sign.
var nothing = regexp.MustCompile(`[\w.]+(\\?":|\s+)0\b|\bcorrupt=[\d.]+|\bTest\w+(/\S*)?`)

// isGrave reports whether a line of a test's output has one of the signs.
func isGrave(line string) bool {
	line = nothing.ReplaceAllString(line, "")
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(line, sign) })
}

// skipReason is why a test was skipped: what it printed last, without where.
func skipReason(output []string) string {
	why := ""
	for _, line := range output {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if _, text, ok := strings.Cut(line, ": "); ok && strings.Contains(line[:len(line)-len(text)], ".go:") {
			line = text
		}
		why = line
	}
	return cmp.Or(why, "it does not say why")
}

package suites

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// suiteTable is what a suite came to.
type suiteTable struct {
	Suite       string       `json:"suite"`
	Version     string       `json:"version,omitempty"` // commit of its checkout
	Commit      string       `json:"commit"`            // of exnet
	Date        time.Time    `json:"date"`
	Modes       []*modeRow   `json:"modes"`
	Differences []difference `json:"differences"`

	mu sync.Mutex
}

// modeRow is what a suite came to in a mode.
type modeRow struct {
	Mode    mode    `json:"mode"`
	Units   int     `json:"units"`
	Passed  int     `json:"passed"`
	Failed  int     `json:"failed"`
	Skipped int     `json:"skipped"`
	Hung    int     `json:"hung"`
	Seconds float64 `json:"seconds"` // of all units
	Traffic traffic `json:"traffic"`
}

func newSuiteTable(name, checkout string, all []mode) *suiteTable {
	t := &suiteTable{Suite: name, Commit: commit("."), Date: time.Now().UTC().Truncate(time.Second), Differences: []difference{}}
	if checkout != "" {
		t.Version = commit(checkout)
	}
	for _, m := range all {
		t.Modes = append(t.Modes, &modeRow{Mode: m})
	}
	return t
}

// count adds the result of a unit.
func (t *suiteTable) count(m mode, r result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	row := t.Modes[slices.IndexFunc(t.Modes, func(row *modeRow) bool { return row.Mode == m })]
	row.Units++
	row.Passed += r.count(passed)
	row.Failed += r.count(failed)
	row.Skipped += r.count(skipped)
	if r.verdicts[theHang] == failed {
		row.Hung++
	}
	row.Seconds += r.took.Seconds()
	row.Traffic.add(r.traffic)
}

func (t *suiteTable) differs(d difference) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Differences = append(t.Differences, d)
}

// finish sorts what came in any order.
func (t *suiteTable) finish() {
	slices.SortFunc(t.Differences, func(a, b difference) int {
		return cmp.Or(strings.Compare(a.Unit, b.Unit), strings.Compare(a.Test, b.Test), strings.Compare(string(a.Mode), string(b.Mode)))
	})
}

// String is the table as text.
func (t *suiteTable) String() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s %s, exnet %s, %s\n", t.Suite, t.Version, t.Commit, t.Date.Format(time.RFC3339))
	fmt.Fprintf(w, "mode\tunits\tpassed\tfailed\tskipped\thung\ttime\tends direct\tof\tbytes direct\n")
	for _, r := range t.Modes {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%.0f s\t%d\t%d\t%s\n", r.Mode, r.Units, r.Passed, r.Failed, r.Skipped, r.Hung, r.Seconds,
			r.Traffic.Direct, r.Traffic.Connections, bytesText(r.Traffic.DirectBytes))
	}
	for _, r := range t.Modes {
		if len(r.Traffic.Because) > 0 {
			fmt.Fprintf(w, "%s: not direct because: %s\n", r.Mode, r.Traffic.because())
		}
	}
	for i, d := range t.Differences {
		if i == 0 {
			fmt.Fprintf(w, "unit\ttest\tmode\tkind\tfails again\tplain\n")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d of %d\t%d of %d\n", d.Unit, d.Test, d.Mode, cmp.Or(d.About, d.Kind), d.Fails, d.Runs, d.Plain, d.Runs)
	}
	w.Flush()
	return text.String()
}

// write writes the table to path.txt and path.json, if there is a path.
func (t *suiteTable) write(path string) error { return writeTable(path, t) }

// writeTable writes a table as text and as JSON.
func writeTable(path string, table fmt.Stringer) error {
	if path == "" {
		return nil
	}
	if err := os.WriteFile(path+".txt", []byte(table.String()), 0o644); err != nil {
		return err
	}
	text, err := json.MarshalIndent(table, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path+".json", append(text, '\n'), 0o644)
}

// known is a difference that is no fault.
type known struct {
	suite string
	mode  mode           // "": each
	test  *regexp.Regexp // of "unit test"
	about string         // why
}

// knownDifferences are those that docs/exn-run.md tells of, and those that the mode itself makes.
var knownDifferences = []known{
	{"cpython", "", regexp.MustCompile(`EpollSelectorTestCase.test_above_fd_setsize$`), "docs/exn-run.md: epoll_wait tells of 1024 at a time"},
	{"ltp", eagerly, regexp.MustCompile(`^send02 `), "docs/exn-run.md: MSG_MORE holds nothing back"},
	{"libuv", eagerly, regexp.MustCompile(`^watcher_cross_stop `), "2,500 sockets in 5 s, and eager waits 2 ms for each"},
	{"libevent", eagerly, regexp.MustCompile(`^http/bad_request `), "the answer has to come in 10 ms, and eager waits in both ends"},
}

// explained returns why a test that differs is no fault; "": it is one.
func explained(suite, unit, test string, m mode) string {
	for _, k := range knownDifferences {
		if k.suite == suite && (k.mode == "" || k.mode == m) && k.test.MatchString(unit+" "+test) {
			return k.about
		}
	}
	return ""
}

package paths

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"exnet/test/numbered"
)

// Options say how much is done.
type Options struct {
	// Time is for how long new connections are made in a row.
	Time time.Duration
	// Pause is the mean pause of slow calls.
	Pause time.Duration
	// Only are the paths; nil: all.
	Only *regexp.Regexp
	// Disturb says that the links between hosts are cut, and the nodes of one host are stopped and
	// go on, all the time.
	Disturb bool
	// Stop is for how long a node is stopped at most; nodes of two hosts are only if it is not 0.
	// 0: a second.
	Stop time.Duration
	// Patience is how long a connection may make no progress where that is so; 0:
	// numbered.Patience.
	Patience time.Duration
	// Slow is after which time without progress a connection is noted, and counted as slow; 0:
	// numbered.NoteAfter.
	Slow time.Duration
	// Long is all rows, also those of which others say the same.
	Long bool
	// Seed is what sizes, pauses and ends depend on.
	Seed uint64
}

// Row is what a number of connections on a path have done.
type Row struct {
	Path         string
	Programs     string   // client to server
	Conns        int      // at a time
	Load         int      // processes that spin beside it
	numbered.Sum          // both ends
	Share        float64  // of the bytes went by the path
	Faults       []string // at most maxFaults
	Took         time.Duration

	Disturbed int             // times that a link was cut, or a node stopped
	Resumed   uint64          // connections that went on after that, by what nodes count
	Away      float64         // part of the time in which the nodes had no link
	Slow      int             // ends of connections that made no progress for Options.Slow
	Timeouts  uint64          // packets that TCP of both hosts sent again because it had waited for too long
	kinds     map[failure]int // what the faults were
}

// maxFaults bounds what is reported of a row.
const maxFaults = 5

// least is the share of a row's bytes that has to go the way that its path names, in one try: the
// first one, or one of those that follow it until hang, each of which makes connections for twice
// as long, longest at most.
const (
	least   = 0.02
	longest = 5 * time.Second
)

// Run moves words over all paths, and fails the test for each row in which something is wrong. It
// logs the rows as a table.
func Run(t *testing.T, o Options) {
	t.Helper()
	bin := buildPrograms(t)
	if o.Disturb {
		if o.Patience == 0 {
			o.Patience = numbered.Patience
		}
		t.Setenv(numbered.PatientEnv, strconv.Itoa(int(o.Patience.Seconds())))
		if o.Slow == 0 {
			o.Slow = numbered.NoteAfter
		}
		t.Setenv(numbered.NoteEnv, strconv.Itoa(int(o.Slow.Seconds())))
	}
	var rows []Row
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			l := &lab{t: t, bin: bin, o: o}
			l.needPlace(p)
			for _, path := range l.chosenPaths() {
				for _, n := range path.connCounts(o.Long) {
					load := 0
					if n == loaded {
						load = spinners
					}
					rows = append(rows, l.runRow(path, n, load))
				}
			}
		})
	}
	var text strings.Builder
	Print(&text, rows)
	t.Logf("\n%s", &text)
}

// Print writes rows as a table.
func Print(w io.Writer, rows []Row) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "path\tprograms\tat a time\tspinning\tcuts\tno link\tresumed\ttime-outs\tslow\tconnections\tbytes\twords checked\tthis way\ttime\twrong\tshort\treset\tother\t")
	var sum numbered.Sum
	for _, r := range rows {
		fmt.Fprintf(tab, "%s\t%s\t%d\t%d\t%d\t%.0f %%\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f %%\t%.1f s\t%d\t%d\t%d\t%d\t\n", r.Path, r.Programs, r.Conns, r.Load, r.Disturbed, 100*r.Away, r.Resumed, r.Timeouts, r.Slow,
			r.Sum.Conns, r.Bytes, r.Words(), 100*r.Share, r.Took.Seconds(), r.kinds[wrongBytes], r.kinds[tooShort], r.kinds[reset], r.kinds[otherFailure])
		sum.Add(r.Sum)
	}
	fmt.Fprintf(tab, "all\t\t\t\t\t\t\t\t\t%d\t%d\t%d\t\t\t%d\t\t\t\t\n", sum.Conns, sum.Bytes, sum.Words(), sum.Wrong)
	_ = tab.Flush() // w is a buffer
}

package killmatrix

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
)

// TestRootKillMatrix kills and stops each process on each path at each moment, and prints
// what the others saw.
func TestRootKillMatrix(t *testing.T) {
	longtest.Skip(t)
	netnstest.Require(t)
	for _, program := range []string{"gcc", pythonPath()} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: apt-get install gcc libc6-dev python3", err)
		}
	}
	var table []result
	began := time.Now()
	for _, p := range paths {
		var todo []cell
		for _, c := range cells(p) {
			if chosen(t, c) {
				todo = append(todo, c)
			}
		}
		if todo == nil {
			continue
		}
		t.Run("path="+p.name, func(t *testing.T) {
			w := newWorld(t, p)
			for _, c := range todo {
				res, err := tryCell(t, w, c)
				if err != nil {
					// The world is in an unknown state.
					t.Fatalf("%v: %v", c, err)
				}
				table = append(table, res)
			}
		})
	}
	t.Logf("%d cells in %v\n%s", len(table), time.Since(began).Round(time.Second), text(table))
}

// chosen reports whether a cell is to be run.
func chosen(t *testing.T, c cell) bool {
	if *only == "" {
		return *full || c.inCI()
	}
	ok, err := regexp.MatchString("^("+*only+")$", c.String())
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// tryCell runs a cell, again if it was only too slow: with twice the slack each time, so that
// what takes a second on a quiet machine may take 16 on a busy one, and what hangs fails.
func tryCell(t *testing.T, w *world, c cell) (res result, err error) {
	for try := 1; ; try++ {
		res, err = runCell(w, c, 1<<(try-1))
		var s slowError
		if !errors.As(err, &s) || try >= *tries {
			return res, err
		}
		t.Logf("%v: %v; trying again", c, err)
	}
}

// text is the table.
func text(table []result) string {
	b := new(strings.Builder)
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "path\tmoment\tvictim\tsignal\tproof of the moment\twhat was seen\tafter\tothers' gap\tserved again")
	for _, r := range table {
		fmt.Fprintf(tw, "%s\t%v\t%v\t%s\t%s\t%s\t%s\t%s\t%s\n", r.cell.path.name, r.cell.moment, r.cell.victim, r.cell.sig(), r.proof, r.saw,
			ms(r.after), ms(r.gap)+" "+r.gapOf, ms(r.again))
	}
	_ = tw.Flush() // to memory
	return b.String()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d)/1e6) }

package report

import (
	"fmt"
	"regexp"
	"strings"

	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/display"
)

// How a number, a row and the difference of two rows are written in a sentence.

// sizeText writes a size for a sentence: "120 bytes", "64 KiB".
func sizeText(n int) string {
	if n < 1<<10 {
		return display.Count(n, "byte")
	}
	return display.Size(float64(n))
}

// behindNumber is a unit as it follows a number: " Gbit/s", "/s".
func behindNumber(unit string) string {
	if text := unitText(unit); strings.HasPrefix(text, "/") {
		return text
	}
	return " " + unitText(unit)
}

// microText writes microseconds with their letter wherever a text has them as us.
func microText(s string) string { return microseconds.ReplaceAllString(s, micros) }

var microseconds = regexp.MustCompile(`\bus\b`)

// measured writes a row's median and what follows the number, with the extremes of its runs if they
// lie far apart: "124 Gbit/s", "124 Gbit/s (57.1 to 142)".
func measured(r *result.Row, unit string) string {
	text := display.Number(r.Median) + unit
	if r.Noisy {
		text += " (" + extremes(r, 1) + ")"
	}
	return text
}

func extremes(r *result.Row, factor float64) string {
	return display.Number(r.Min*factor) + " to " + display.Number(r.Max*factor)
}

// versus compares a row's median with another's, and says how far apart its runs lie if that is
// far: "4.1 GB/s (3 to 6; 0.6 times as fast as veth)". Where runs of both overlap it says so.
func versus(r, base *result.Row, factor float64, unit string) string {
	if r == nil || base == nil || base.Median == 0 {
		return ""
	}
	noisy := ""
	if r.Noisy {
		noisy = extremes(r, factor) + "; "
	}
	return fmt.Sprintf("%s %s (%s%s)", display.Number(r.Median*factor), unit, noisy, times(r, base))
}

// times says how many times as fast as another one a row is: "0.6 times as fast as veth".
func times(r, base *result.Row) string {
	text := ratioText(speed(r, base).Median) + " times as fast as " + base.Path
	if unclear(r, base) {
		text += overlap
	}
	return text
}

// unclear tells whether some run of one row came out between those of the other.
func unclear(a, b *result.Row) bool {
	return min(len(a.Values), len(b.Values)) > 1 && a.Min <= b.Max && b.Min <= a.Max
}

// overlap is what is said of a difference that is unclear.
const overlap = ", the runs overlap"

// rowName is a row's name in a table: a program's rows have it with its path.
func rowName(r result.Row) string {
	if r.Path == "tcp" || r.Path == "direct" {
		return r.Measure + ", " + r.Path
	}
	return microText(r.Path)
}

// first returns the first row that there is.
func first(rows ...*result.Row) *result.Row {
	for _, r := range rows {
		if r != nil {
			return r
		}
	}
	return nil
}

package report

import (
	"regexp"

	"exnet/cmd/dsbench/internal/result"
)

// microText writes microseconds with their letter wherever a text has them as us.
func microText(s string) string { return microseconds.ReplaceAllString(s, micros) }

var microseconds = regexp.MustCompile(`\bus\b`)

// comparison says how many times as fast as its control a row is: "0.60 times as fast as lo".
func (d *Data) comparison(part string, r, control *result.Row) string {
	text := d.times(part, r).Short() + " times as fast as " + control.Path
	if len(r.Values) > 1 && len(control.Values) > 1 && r.Min <= control.Max && control.Min <= r.Max {
		text += ", the runs overlap"
	}
	return text
}

// rowName is a row's name in a table: a program's rows have it with its path.
func rowName(r result.Row) string {
	if r.Path == "tcp" || r.Path == "direct" {
		return r.Measure + ", " + r.Path
	}
	return microText(r.Path)
}

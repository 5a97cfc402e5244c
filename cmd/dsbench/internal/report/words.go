package report

import (
	"regexp"

	"exnet/cmd/dsbench/internal/result"
)

// microText writes microseconds with their letter wherever a text has them as us.
func microText(s string) string { return microseconds.ReplaceAllString(s, micros) }

var microseconds = regexp.MustCompile(`\bus\b`)

// times says how many times as fast as another one a row is: "0.6 times as fast as veth".
func times(r, base *result.Row) string {
	text := ratioText(speed(r, base).Median) + " times as fast as " + base.Path
	if len(r.Values) > 1 && len(base.Values) > 1 && r.Min <= base.Max && base.Min <= r.Max {
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

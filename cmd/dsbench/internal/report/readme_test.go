package report

import (
	"strings"
	"testing"

	"exnet/cmd/dsbench/internal/result"
)

// How many times as fast a row is comes of the rounds, not of two medians.
func TestTimesText(t *testing.T) {
	row := func(unit string, values ...float64) *result.Row {
		r := rowOf("x", 64, values...)
		r.Unit = unit
		return &r
	}
	for name, tt := range map[string]struct {
		r, control *result.Row
		want       string
	}{
		"a rate":                     {row("1/s", 20, 20, 20), row("1/s", 10, 10, 10), "2.0"},
		"a time":                     {row("us", 5, 5, 5), row("us", 10, 10, 10), "2.0"},
		"both fell in a round":       {row("1/s", 20, 2, 20), row("1/s", 10, 1, 10), "2.0"},
		"rounds that do not agree":   {row("1/s", 20, 30, 10, 60, 10), row("1/s", 10, 10, 10, 10, 10), "2.0 (1.0 to 3.0)"},
		"one of eight does not":      {row("1/s", 20, 20, 20, 20, 20, 20, 20, 90), row("1/s", 10, 10, 10, 10, 10, 10, 10, 10), "2.0"},
		"rounds are missing":         {row("1/s", 20, 30), row("1/s", 10), "2.5"},
		"a control of nothing":       {row("1/s", 20), row("1/s", 0), ""},
		"a round without its figure": {row("us", 5, 0, 5), row("us", 10, 10, 10), "2.0"},
	} {
		if got := timesText(tt.r, tt.control); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if text := timesNoise(); !strings.Contains(text, "25 %") {
		t.Error(text)
	}
}

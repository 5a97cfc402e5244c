package display

import (
	"slices"
	"testing"
	"time"
)

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0512: "0.0512", 0.5: "0.5", 0.9996: "1", 2.5: "2.5", 2: "2", 12.34: "12.3", 9.996: "10",
		1200: "1200", 20: "20", 100: "100", -2.5: "-2.5", 99.97: "100", 0.00001: "1e-05"} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0: "0.000", 0.05: "0.050", 0.9996: "1.00", 2.5: "2.50", 9.996: "10.0", 12.34: "12.3", 99.97: "100", 1200: "1200", -12.34: "-12.3"} {
		if got := Figure(v); got != want {
			t.Errorf("Figure(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for want, got := range map[string]string{"1 node": Count(1, "node"), "0 nodes": Count(0, "node"), "2 processes": Count(2, "process"), "1 process": Count(1, "process"), "25 %": Percent(0.25)} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 4567: "4.57µs", 12345678: "12.3ms", 123456789: "123ms", 1500 * time.Millisecond: "1.5s", 1534567890: "1.53s",
		9996 * time.Millisecond: "10s", 12600 * time.Millisecond: "13s", 2*time.Hour + 5*time.Minute + 6700*time.Millisecond: "2h5m7s", -1534567890: "-1.53s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%d) = %q, want %q", d, got, want)
		}
	}
}

// No line is longer than the width, except for a word that is.
func TestWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"": {""}, "one": {"one"}, "one two  three": {"one two", "three"}, "µµµ µµµ µ": {"µµµ µµµ", "µ"}, "a longest-word b": {"a", "longest-word", "b"},
		"  one\ttwo \n three ": {"one two", "three"},
	} {
		if got := Wrap(text, 7); !slices.Equal(got, want) {
			t.Errorf("Wrap(%q) = %q, want %q", text, got, want)
		}
	}
}

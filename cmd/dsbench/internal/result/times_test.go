package result

import (
	"strings"
	"testing"
	"time"
)

// How many times as fast a row is comes of the rounds, not of two medians.
func TestTimes(t *testing.T) {
	for name, tt := range map[string]struct {
		unit             string
		values, controls []float64
		want             string
	}{
		"a rate":                     {"1/s", []float64{20, 20, 20}, []float64{10, 10, 10}, "2.0"},
		"a price":                    {"s/GB", []float64{5}, []float64{10}, "2.0"},
		"no control":                 {"1/s", []float64{5}, nil, ""},
		"a time":                     {"us", []float64{5, 5, 5}, []float64{10, 10, 10}, "2.0"},
		"both fell in a round":       {"1/s", []float64{20, 2, 20}, []float64{10, 1, 10}, "2.0"},
		"rounds that do not agree":   {"1/s", []float64{20, 30, 10, 60, 10}, []float64{10, 10, 10, 10, 10}, "2.0 (1.0 to 3.0)"},
		"one of eight does not":      {"1/s", []float64{20, 20, 20, 20, 20, 20, 20, 90}, []float64{10, 10, 10, 10, 10, 10, 10, 10}, "2.0"},
		"rounds are missing":         {"1/s", []float64{20, 30}, []float64{10}, "2.5"},
		"a control of nothing":       {"1/s", []float64{20}, []float64{0}, ""},
		"a round without its figure": {"us", []float64{5, 0, 5}, []float64{10, 10, 10}, "2.0"},
	} {
		if got := TimesOf(tt.unit, tt.values, tt.controls).String(); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if text := RangeText(); !strings.Contains(text, "25 %") {
		t.Error(text)
	}
}

func TestTimesText(t *testing.T) {
	for v, want := range map[float64]string{0.42: "0.42", 6.14: "6.1", 31.2: "31", 0.05: "0.050", 0.008: "0.008", 1: "1.0", 0.996: "1.0", 124.4: "124"} {
		if got := TimesText(v); got != want {
			t.Errorf("TimesText(%v) = %s, want %s", v, got, want)
		}
	}
}

// TestBusyTime: what this process computes is part of the time that CPUs are busy.
func TestBusyTime(t *testing.T) {
	before, _, err := BusyTime()
	if err != nil {
		t.Fatal(err)
	}
	const while = 100 * time.Millisecond
	for begin := time.Now(); time.Since(begin) < while; {
	}
	after, _, err := BusyTime()
	if err != nil || after-before < 10*time.Millisecond {
		t.Errorf("%v in %v, %v", after-before, while, err)
	}
}

package stats

import (
	"math"
	"slices"
	"testing"
)

func TestSummarize(t *testing.T) {
	tests := []struct {
		name   string
		values []float64
		want   Summary
		spread float64
		noisy  bool // at a bound of 0.25
	}{
		{"none", nil, Summary{}, 0, false},
		{"one", []float64{7}, Summary{1, 7, 7, 7, 7, 7}, 0, false},
		{"two are never noisy", []float64{30, 10}, Summary{2, 20, 10, 30, 10, 30}, 1, false},
		{"odd", []float64{5, 1, 3}, Summary{3, 3, 1, 5, 1, 5}, 4.0 / 3, true},
		{"even", []float64{4, 1, 3, 2}, Summary{4, 2.5, 1, 4, 2, 3}, 0.4, true},
		{"equal", []float64{2, 2, 2, 2, 2}, Summary{5, 2, 2, 2, 2, 2}, 0, false},
		{"at the bound", []float64{7, 8, 9}, Summary{3, 8, 7, 9, 7, 9}, 0.25, false},
		{"one disturbed run of five says nothing", []float64{100, 101, 20, 99, 102}, Summary{5, 100, 20, 102, 99, 101}, 0.02, false},
		{"two disturbed runs of five do", []float64{100, 40, 20, 99, 102}, Summary{5, 99, 20, 102, 40, 100}, 60.0 / 99, true},
		{"of eight the middle four", []float64{8, 1, 7, 2, 6, 3, 5, 4}, Summary{8, 4.5, 1, 8, 3, 6}, 2.0 / 3, true},
		{"zero", []float64{0, 0, 0}, Summary{3, 0, 0, 0, 0, 0}, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.values)
			got := Summarize(tt.values)
			if got != tt.want {
				t.Errorf("Summarize = %+v, want %+v", got, tt.want)
			}
			if s := got.Spread(); math.Abs(s-tt.spread) > 1e-12 {
				t.Errorf("Spread = %v, want %v", s, tt.spread)
			}
			if n := got.Noisy(0.25); n != tt.noisy {
				t.Errorf("Noisy = %v, want %v", n, tt.noisy)
			}
			if !slices.Equal(tt.values, before) {
				t.Error("the caller's values were reordered")
			}
		})
	}
}

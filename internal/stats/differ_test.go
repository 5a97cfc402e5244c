package stats

import (
	"math"
	"testing"
)

func TestDiffer(t *testing.T) {
	for _, tt := range []struct {
		name   string
		a, b   []float64
		ratio  float64
		beyond bool
	}{
		{"the same", []float64{10, 10.1, 9.9, 10, 10.2}, []float64{10, 10.1, 9.9, 10, 10.2}, 1, false},
		{"twice", []float64{10, 10.1, 9.9, 10, 10.2}, []float64{20, 20.5, 19, 20, 21}, 2, true},
		{"half", []float64{20, 20.5, 19, 20, 21}, []float64{10, 10.1, 9.9, 10, 10.2}, 0.5, true},
		{"apart, but little", []float64{10, 10.01, 9.99}, []float64{10.5, 10.51, 10.49}, 1.05, false},
		{"apart, and enough", []float64{10, 10.01, 9.99}, []float64{11.2, 11.21, 11.19}, 1.12, true},
		{"one among the others", []float64{10, 10, 10, 10, 14}, []float64{13, 15, 15, 15, 15}, 1.5, false},
		{"apart, but noisy", []float64{10, 6, 10.5}, []float64{11, 15, 12}, 1.2, false},
		{"too few", []float64{10, 10}, []float64{20, 20}, 2, false},
		{"nothing", nil, []float64{1, 2, 3}, 0, false},
		{"from zero", []float64{0, 0, 0}, []float64{1, 1, 1}, 0, true},
	} {
		for _, swap := range []bool{false, true} {
			a, b, ratio := tt.a, tt.b, tt.ratio
			if swap {
				if a, b = b, a; ratio == 0 {
					continue
				}
				ratio = 1 / ratio
			}
			c := Differ(a, b, 0.1)
			if math.Abs(c.Ratio-ratio) > 1e-9 || c.Beyond != tt.beyond {
				t.Errorf("%s, swapped %v: %+v, want ratio %v, beyond %v", tt.name, swap, c, ratio, tt.beyond)
			}
		}
	}
}

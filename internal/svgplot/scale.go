package svgplot

import (
	"math"

	"exnet/internal/display"
)

// Axis describes an axis. The zero value is linear and begins at 0.
type Axis struct {
	Label string
	Log   bool
	Tight bool // it begins and ends at the values, not at round ones or 0
	// Format writes a value at a tick or for a mark; nil: display.Number.
	Format func(float64) string
	// Ticks are where the ticks are; nil: at round values.
	Ticks []float64
}

// labelText is what is beside the axis: a reader must see that it is logarithmic.
func (a Axis) labelText() string {
	if a.Log {
		return a.Label + ", logarithmic"
	}
	return a.Label
}

func (a Axis) formatValue(v float64) string {
	if a.Format != nil {
		return a.Format(v)
	}
	return display.Number(v)
}

// scale maps values to places.
type scale struct {
	log      bool
	from, to float64 // values
	a, b     float64 // their places
	ticks    []float64
}

// newScale makes the scale of an axis for values between low and high.
func newScale(ax Axis, low, high, a, b float64) scale {
	s := scale{log: ax.Log, a: a, b: b}
	if ax.Log {
		s.from, s.to = logBounds(low, high)
	} else {
		s.from, s.to = 0, roundUp(high)
		if low < 0 {
			s.from = -roundUp(-low)
		}
	}
	s.ticks = ax.Ticks
	if s.ticks == nil {
		s.ticks = s.roundTicks()
	}
	return s
}

// placeOf returns the place of a value.
func (s scale) placeOf(v float64) float64 {
	from, to := s.from, s.to
	if s.log {
		from, to, v = math.Log(from), math.Log(to), math.Log(max(v, s.from))
	}
	if to == from {
		return s.a
	}
	return s.a + (v-from)/(to-from)*(s.b-s.a)
}

// clipTo returns the place of a value, or the nearest one that there is.
func (s scale) clipTo(v float64) float64 { return s.placeOf(min(max(v, s.from), s.to)) }

// logBounds widens the bounds to 1, 2 or 5 times a power of ten.
func logBounds(low, high float64) (float64, float64) {
	if !(low > 0) || math.IsInf(low, 1) {
		low = 1
	}
	high = max(high, low*1.0001)
	return stepDown(low * 1.0001), stepUp(high * 0.9999)
}

var steps = []float64{1, 2, 5, 10}

// stepUp returns the least of 1, 2, 5 times a power of ten that is not below v.
func stepUp(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, s := range steps {
		if s*p >= v*(1-1e-9) {
			return s * p
		}
	}
	return 10 * p
}

// stepDown returns the largest that is not above v.
func stepDown(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	best := p
	for _, s := range steps {
		if s*p <= v*(1+1e-9) {
			best = s * p
		}
	}
	return best
}

// roundUp returns a round bound for values up to v: with four to six ticks.
func roundUp(v float64) float64 {
	if !(v > 0) {
		return 1
	}
	step := stepUp(v / 5)
	return math.Ceil(v/step-1e-9) * step
}

// roundTicks returns round ticks.
func (s scale) roundTicks() (ticks []float64) {
	if !s.log {
		step := stepUp((s.to - s.from) / 6)
		for i := math.Ceil(s.from/step - 1e-9); i*step <= s.to*(1+1e-9); i++ {
			ticks = append(ticks, i*step)
		}
		return ticks
	}
	mantissas := []float64{1, 2, 5}
	if s.to/s.from > 2000 {
		mantissas = []float64{1}
	}
	for p := math.Pow(10, math.Floor(math.Log10(s.from))); p <= s.to*1.0001; p *= 10 {
		for _, m := range mantissas {
			if v := m * p; v >= s.from*0.9999 && v <= s.to*1.0001 {
				ticks = append(ticks, v)
			}
		}
	}
	return ticks
}

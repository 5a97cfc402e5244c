package spill

import (
	"testing"
	"time"
)

// The thesis's thresholds, at their borders, by a clock of the test.
func TestWatch(t *testing.T) {
	type step struct {
		after time.Duration
		l     Load
		want  Decision
	}
	at := func(percent int64, faults uint64) Load { return Load{Used: percent, Room: 100, Faults: faults} }
	low := func(used, smallest int64) Load { return Load{Used: used, Room: 100, Smallest: smallest} }
	for name, steps := range map[string][]step{
		"79 and 80 %":               {{0, at(79, 0), Stay}, {time.Hour, at(79, 0), Stay}, {0, at(80, 0), Spill}, {0, at(80, 0), Spill}},
		"99 faults":                 {{0, at(51, 0), Stay}, {999 * time.Millisecond, at(51, 99), Stay}},
		"100 faults":                {{0, at(51, 0), Stay}, {999 * time.Millisecond, at(51, 100), Spill}, {time.Millisecond, at(51, 199), Stay}, {0, at(51, 200), Spill}},
		"100 faults in a long time": {{0, at(51, 0), Stay}, {600 * time.Millisecond, at(51, 60), Stay}, {600 * time.Millisecond, at(51, 120), Spill}, {time.Second, at(51, 219), Stay}, {time.Second, at(51, 318), Stay}},
		"never so fast":             {{0, at(51, 0), Stay}, {time.Second, at(51, 99), Stay}, {time.Second, at(51, 198), Stay}, {time.Second, at(51, 297), Stay}},
		"low":                       {{0, low(40, 20), Stay}, {9 * time.Second, low(40, 20), Stay}, {time.Second, low(40, 20), Release}, {time.Second, low(40, 20), Stay}},
		"not low enough":            {{0, low(41, 20), Stay}, {time.Hour, low(41, 20), Stay}},
		"low, with a peak":          {{0, low(40, 20), Stay}, {9 * time.Second, low(60, 20), Stay}, {time.Second, low(40, 20), Stay}, {10 * time.Second, low(40, 20), Release}},
		"faults, and room enough":   {{0, at(50, 0), Stay}, {0, at(50, 1000), Stay}},
		"nothing borrowed":          {{0, low(1, 0), Stay}, {time.Hour, low(1, 0), Stay}},
	} {
		w := Watch{Policy: DefaultPolicy()}
		now := time.Unix(1e9, 0)
		for i, s := range steps {
			now = now.Add(s.after)
			if got := w.Look(now, s.l); got != s.want {
				t.Errorf("%s: step %d, %+v: %v, want %v", name, i, s.l, got, s.want)
			}
		}
	}
}

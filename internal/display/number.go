package display

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Number writes v with up to three digits, or all before the point, for a sentence or the tick of
// an axis: "0", "0.05", "2.5", "12", "1200".
func Number(v float64) string {
	abs := math.Abs(v)
	switch {
	case v == 0:
		return "0"
	case abs < 1:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	text := Figure(v)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// Figure writes v with three digits, or all before the point, for a column: "0.050", "2.50",
// "12.0", "1200".
func Figure(v float64) string {
	digits := 3
	switch abs := math.Abs(v); {
	case abs >= 99.95:
		digits = 0
	case abs >= 9.995:
		digits = 1
	case abs >= 0.9995:
		digits = 2
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// Percent writes a share of 1: "25 %".
func Percent(share float64) string { return fmt.Sprintf("%.0f %%", share*100) }

// Count writes how many there are of something: "1 node", "2 nodes", "3 processes".
func Count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Duration writes a time as Go does, in whole seconds from ten on and with three digits below:
// "2h5m7s", "12s", "1.53s", "12.3ms", "4.57µs".
func Duration(d time.Duration) string {
	unit := time.Duration(1)
	for abs := d.Abs(); unit < 10*time.Millisecond && abs/unit >= 1000; {
		unit *= 10
	}
	if d.Abs() >= 10*time.Second {
		unit = time.Second
	}
	return d.Round(unit).String()
}

// Age writes how long ago t was, in whole seconds: "0s", "2h5m7s".
func Age(t time.Time) string { return time.Since(t).Round(time.Second).String() }

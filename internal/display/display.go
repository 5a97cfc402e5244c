// Package display writes amounts for people: bytes, sizes of messages, numbers, counts, times, and
// the colour of a load; and it breaks text into lines.
//
// # Architecture
//
// One function for each kind of amount, so that all commands and pages write it alike: what was
// carried in units of 1000, what is chosen in powers of two in units of 1024.
//
// # Concurrency
//
// The functions keep no state.
//
// # Limits
//
// What programs read has plain numbers.
package display

import (
	"fmt"
	"strconv"
)

// Bytes writes an amount of data in units of 1000: "0 B", "999 B", "1.0 kB", "12.3 MB".
func Bytes(n uint64) string {
	if n < 1000 {
		return strconv.FormatUint(n, 10) + " B"
	}
	f := float64(n)
	for _, unit := range []string{"kB", "MB", "GB", "TB", "PB"} {
		if f /= 1000; f < 999.95 {
			return fmt.Sprintf("%.1f %s", f, unit)
		}
	}
	return fmt.Sprintf("%.1f EB", f/1000)
}

// Size writes the size of a message or buffer, at the tick of an axis or in a sentence, in units of
// 1024 and bytes without a unit: "64", "4 KiB", "1.46 KiB", "1 MiB".
func Size(n float64) string {
	unit := ""
	switch {
	case n >= 1<<20:
		n, unit = n/(1<<20), " MiB"
	case n >= 1<<10:
		n, unit = n/(1<<10), " KiB"
	}
	return Number(n) + unit
}

// Colour returns the colour of a load from 0, for none, to 1, for the largest, as #rrggbb: light
// grey for 0, then from orange to dark red.
func Colour(level float64) string {
	stops := [...][3]float64{{253, 196, 134}, {252, 141, 60}, {217, 48, 31}, {115, 0, 20}}
	if level <= 0 {
		return "#d4d4d4"
	}
	at := min(level, 1) * float64(len(stops)-1)
	i := min(int(at), len(stops)-2)
	var c [3]int
	for k := range c {
		c[k] = int(stops[i][k] + (at-float64(i))*(stops[i+1][k]-stops[i][k]))
	}
	return fmt.Sprintf("#%02x%02x%02x", c[0], c[1], c[2])
}

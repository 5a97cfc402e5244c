package display

import (
	"fmt"
	"math"
	"testing"
)

func TestBytes(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 1024: "1.0 kB", 12_345_678: "12.3 MB",
		999_949: "999.9 kB", 999_950: "1.0 MB", 5e9: "5.0 GB", 7e12: "7.0 TB", 2e15: "2.0 PB", math.MaxUint64: "18.4 EB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 1: "1", 64: "64", 100: "100", 1023: "1023", 1500: "1.46 KiB", 4096: "4 KiB", 12800: "12.5 KiB",
		65536: "64 KiB", 102400: "100 KiB", 1 << 20: "1 MiB", 8 << 20: "8 MiB"} {
		if got := Size(n); got != want {
			t.Errorf("Size(%v) = %q, want %q", n, got, want)
		}
	}
}

// A larger load is darker: the sum of red, green and blue falls. What is out of bounds has the
// colour of the nearest bound.
func TestColour(t *testing.T) {
	last := 3 * 256
	for i := 1; i <= 100; i++ {
		var r, g, b int
		c := Colour(float64(i) / 100)
		if _, err := fmt.Sscanf(c, "#%02x%02x%02x", &r, &g, &b); err != nil || len(c) != 7 {
			t.Fatalf("Colour(%v) = %q, %v", float64(i)/100, c, err)
		}
		if r+g+b >= last {
			t.Errorf("Colour(%v) = %s is not darker than that of %v", float64(i)/100, c, float64(i-1)/100)
		}
		last = r + g + b
	}
	if Colour(-1) != Colour(0) || Colour(2) != Colour(1) || Colour(0) == Colour(0.01) {
		t.Errorf("-1: %s, 0: %s, 1: %s, 2: %s", Colour(-1), Colour(0), Colour(1), Colour(2))
	}
}

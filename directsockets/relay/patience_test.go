package relay

import (
	"testing"
	"time"
)

func TestPatience(t *testing.T) {
	// The sum of the times between repetitions, each twice the last, 120 s at most.
	for retries := range 256 {
		want, rto := time.Duration(0), 200*time.Millisecond
		for range retries + 1 {
			want += rto
			rto = min(2*rto, 120*time.Second)
		}
		if got := Patience(uint8(retries)); got != want {
			t.Errorf("%d retries: %v, want %v", retries, got, want)
		}
	}
	if got := Patience(DefaultRetries); got != 924600*time.Millisecond {
		t.Error(got) // of the kernel's documentation
	}
}

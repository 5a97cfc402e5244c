package result

import (
	"testing"
	"time"
)

func TestBusyTime(t *testing.T) {
	busy, stolen, err := busyTime("cpu  1 20 300 4000 50000 600000 7000000 80 9 9")
	if want := 7600321 * 10 * time.Millisecond; err != nil || busy != want || stolen != 800*time.Millisecond {
		t.Errorf("%v and %v stolen, %v; want %v and 800ms", busy, stolen, err, want)
	}
	for _, line := range []string{"", "cpu", "intr 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7", "cpu 1 2 x 4 5 6 7 8"} {
		if _, _, err := busyTime(line); err == nil {
			t.Errorf("%q is no error", line)
		}
	}
}

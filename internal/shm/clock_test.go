package shm

import (
	"testing"
	"testing/synctest"
	"time"
)

// The clock goes on while package time's does not.
func TestNanotime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, start := time.Now(), Nanotime()
		for Nanotime() == start {
		}
		if Nanotime() < start || time.Now() != fake {
			t.Errorf("%d ns, package time's clock %v", Nanotime()-start, time.Since(fake))
		}
	})
}

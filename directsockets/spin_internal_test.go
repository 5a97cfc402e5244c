package directsockets

import (
	"testing"
	"time"
)

// A yield that others had the CPU for is made up for, and a quick one is not.
func TestYielder(t *testing.T) {
	var y yielder
	const start = int64(time.Hour)
	if !y.mayYield(start) {
		t.Error("the first yield may not be")
	}
	if y.wasSlow(start, start+int64(yieldMax)) || !y.mayYield(start+int64(yieldMax)) {
		t.Error("a quick yield counts as slow")
	}
	now := start + int64(4*time.Millisecond)
	if !y.wasSlow(start, now) {
		t.Error("4 ms count as quick")
	}
	until := now + int64(yieldShare*4*time.Millisecond)
	if y.mayYield(until-1) || !y.mayYield(until) {
		t.Errorf("yields begin again neither before nor at %v", time.Duration(until-now))
	}
	now = until + int64(time.Hour)
	if !y.wasSlow(until, now) || !y.mayYield(now+int64(yieldPause)) {
		t.Error("who was stopped for an hour does not yield again soon")
	}
}

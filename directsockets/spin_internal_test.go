package directsockets

import (
	"testing"
	"time"
)

// A yield that others had the CPU for is made up for, and a quick one is not.
func TestYielder(t *testing.T) {
	var y yielder
	const start = int64(time.Hour)
	if !y.may(start) {
		t.Error("the first yield may not be")
	}
	if y.slow(start, start+int64(yieldMax)) || !y.may(start+int64(yieldMax)) {
		t.Error("a quick yield counts as slow")
	}
	now := start + int64(4*time.Millisecond)
	if !y.slow(start, now) {
		t.Error("4 ms count as quick")
	}
	until := now + int64(yieldShare*4*time.Millisecond)
	if y.may(until-1) || !y.may(until) {
		t.Errorf("yields begin again neither before nor at %v", time.Duration(until-now))
	}
	now = until + int64(time.Hour)
	if !y.slow(until, now) || !y.may(now+int64(yieldPause)) {
		t.Error("who was stopped for an hour does not yield again soon")
	}
}

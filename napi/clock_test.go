package napi

import (
	"testing"
	"testing/synctest"
	"time"
)

// The system clock's timer calls its function once for each time that it is set, when that is
// over and not before, and not if it was stopped.
func TestLazyTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := SystemClock()
		var calls []time.Duration
		timer := c.AfterFunc(10*time.Microsecond, func() { calls = append(calls, c.Now()) })
		expect := func(what string, want ...time.Duration) {
			t.Helper()
			synctest.Wait()
			if len(calls) != len(want) {
				t.Fatalf("%s: called at %v, want %v", what, calls, want)
			}
			for i := range want {
				if calls[i] != want[i] {
					t.Errorf("%s: called at %v, want %v", what, calls, want)
				}
			}
			calls = nil
		}
		const us = time.Microsecond
		at := c.Now()
		time.Sleep(100 * us)
		expect("set", at+10*us)
		if timer.Stop() || timer.Reset(10*us) {
			t.Error("a timer that has ended says that it was set")
		}
		at = c.Now()
		time.Sleep(5 * us)
		if !timer.Reset(10 * us) {
			t.Error("a timer that is set says that it was not")
		}
		time.Sleep(100 * us)
		expect("put off", at+15*us)
		at = c.Now()
		timer.Reset(50 * us)
		timer.Reset(10 * us)
		time.Sleep(100 * us)
		expect("brought forward", at+10*us)
		timer.Reset(10 * us)
		if !timer.Stop() || timer.Stop() {
			t.Error("Stop does not say whether the timer was set")
		}
		time.Sleep(100 * us)
		expect("stopped")
		at = c.Now()
		for range 10 {
			timer.Reset(10 * us)
			time.Sleep(4 * us)
			timer.Stop()
		}
		timer.Reset(10 * us)
		time.Sleep(100 * us)
		expect("stopped and set again and again", at+50*us)
	})
}

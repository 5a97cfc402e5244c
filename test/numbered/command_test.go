package numbered

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// A server waits for the connections that are open, and not for ever for those that its client has
// counted and that have never come.
func TestAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := newBook(&out)
		b.addOpen(1)
		begun := time.Now()
		go func() {
			time.Sleep(2 * absent)
			b.addEnded(1, 8, nil)
			b.addOpen(-1)
		}()
		b.printSum(3)
		if took := time.Since(begun); took != 2*absent {
			t.Errorf("it took %v", took)
		}
		if want := "fault 2 connections have never come\nsum 1 8 2\n"; out.String() != want {
			t.Errorf("it says %q, want %q", out.String(), want)
		}
	})
}

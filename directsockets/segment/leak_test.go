package segment

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Connections leave neither descriptors nor mappings behind, not those either
// whose regions were never taken.
func TestLeaks(t *testing.T) {
	before := descriptors(t)
	for range 50 {
		c, s := looseEnds(t, Config{})
		if err := s.Attach(); err != nil {
			t.Fatal(err)
		}
		if err := c.Promote(0); err != nil {
			t.Fatal(err)
		}
		r, err := NewRegion(4096)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := c.SendRegion(r, 0, 100); err != nil {
				t.Fatal(err)
			}
			if err := c.pass(r.mem.Fd()); err != nil { // one that no REGION speaks of
				t.Fatal(err)
			}
		}
		s.PromotedAt()
		if n, err := s.Recv(make([]byte, 300)); n != 300 || err != nil {
			t.Fatal(n, err)
		}
		c.Close(false)
		s.Close(true)
		r.Close()
		c.seg.Retire()
		s.seg.Retire()
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		runtime.GC()
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		left, now := strings.Count(string(maps), "memfd:exnet-ds"), descriptors(t)
		if left == 0 && now <= before {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d mappings, %d descriptors more", left, now-before)
		}
	}
}

package segment

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
			if err := c.passDescriptor(r.mem.Fd()); err != nil { // one that no REGION speaks of
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
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
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

// A connection that only chats touches few pages, however long it does.
func TestTouchedMemory(t *testing.T) {
	c, s := promoted(t, Config{})
	buf := make([]byte, 4096)
	for i := range 5000 {
		for _, ends := range [][2]*End{{c, s}, {s, c}} {
			p := buf[:1+i*37%4096]
			if n, err := ends[0].Send(p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
			if n, err := ends[1].Recv(p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(c.seg.Fd(), &st); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d KiB of %d", st.Blocks/2, c.seg.Size()>>10)
	if st.Blocks*512 > 64<<10 {
		t.Errorf("%d KiB are touched", st.Blocks/2)
	}
}

package segment

import (
	"testing"

	"exnet/internal/shm"
)

// A side whose messages ring fences by itself, says so, and ends that when they do not any more.
func TestFences(t *testing.T) {
	if !shm.Expedited() {
		t.Skip("no membarrier here")
	}
	c, s := promoted(t, Config{})
	var p [64]byte
	message := func(arm bool) {
		t.Helper()
		if arm && c.ArmRX() {
			t.Fatal("there is something")
		}
		if n, err := s.Send(p[:]); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
		if n, err := c.Recv(p[:]); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
		c.Awake()
	}
	fences := func() bool {
		t.Helper()
		told := c.peer.flags.Load()&flagFences != 0
		if told != s.fences.Load() || c.peer.flags.Load()&(flagExpedited|flagZCopy) != flagExpedited|flagZCopy {
			t.Fatalf("fences: %v, flags %b", !told, c.peer.flags.Load())
		}
		return told
	}
	for range 2 { // it begins again
		for range oftenRings - 1 {
			message(true)
		}
		for range often + 1 { // rings by themselves begin a new row
			message(false)
		}
		for range oftenRings - 1 {
			if message(true); fences() {
				t.Fatal("begun too early")
			}
		}
		if message(true); !fences() {
			t.Fatal("not begun")
		}
		for range quietAfter {
			if message(false); !fences() {
				t.Fatal("ended too early")
			}
		}
		if message(false); fences() {
			t.Fatal("not ended")
		}
	}
	if c.fences.Load() {
		t.Error("the other side fences, too")
	}
}

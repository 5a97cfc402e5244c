package relay

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/segment"
)

// However often one doorbell rings while nobody answers, the others' rings are noted, and memory is
// bounded.
func TestRingsWithoutEnd(t *testing.T) {
	var b bells
	b.mu.Lock()
	for i := range uint32(5 * maxRung) {
		id := uint32(7)
		if i%(maxRung/2) == 0 {
			id = 100 + i
		}
		b.noteLocked(id)
	}
	if n := cap(b.rung); n > 4*maxRung {
		t.Errorf("memory for %d rings", n)
	}
	b.mu.Unlock()
	got := b.takeRung()
	for i := uint32(0); i < 5*maxRung; i += maxRung / 2 {
		if !slices.Contains(got, 100+i) {
			t.Errorf("the ring of %d was lost", 100+i)
		}
	}
	if !slices.Contains(got, 7) {
		t.Error("the ring of 7 was lost")
	}
}

// The doorbell of a connection that is over is not waited for, even if its program has kept the
// node's end.
func TestKeptBell(t *testing.T) {
	hosts, client, _ := pair(t, segment.Config{}, nil)
	e := hosts[0].engine
	waits := func() int { // for how many descriptors, the eventfd apart
		b, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", e.bells.set))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(b), "tfd:") - 1
	}
	kept := make(chan int, 1)
	if err := e.doLater(func() {
		for _, c := range e.conns {
			fd, err := unix.FcntlInt(uintptr(c.relay.Bell()), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				t.Error(err)
			}
			kept <- fd
		}
	}); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(<-kept)
	if n := waits(); n != 1 {
		t.Fatalf("it waits for %d", n)
	}
	_ = client.Close(false)
	until(t, "forgotten", func() bool { return hosts[0].count() == 0 })
	if n := waits(); n != 0 {
		t.Errorf("it waits for %d", n)
	}
}

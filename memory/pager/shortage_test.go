package pager

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A Pager without a descriptor for a connection that waits does not try for it all the time, and
// takes it later. It serves by round here, and not by Run.
func TestNoDescriptors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pager")
	g, err := New(Config{Local: Smallest, Store: Memory(Smallest), Size: Smallest, Socket: path, Say: func(string) {}, Full: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.closeAll()
	events := make([]unix.EpollEvent, 8)
	round := func() {
		t.Helper()
		if err := g.handleEvents(events); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	// No number is free below that of the last descriptor.
	var fill []int
	for last := -1; last < fd; {
		if last, err = unix.Dup(fd); err != nil {
			t.Fatal(err)
		}
		fill = append(fill, last)
	}
	low := limit
	low.Cur = uint64(fill[len(fill)-1] + 1)
	for round(); ; { // the first tick
		if now, err := unix.EpollWait(g.poll, events, 0); err != nil || now == 0 {
			break
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	connected := unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	round()
	again, waited := unix.EpollWait(g.poll, events, 0)
	strangers := len(g.sources)
	for range 5 { // ticks try, and leave it again
		round()
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	for _, d := range fill {
		unix.Close(d)
	}
	if connected != nil || waited != nil {
		t.Fatal(connected, waited)
	}
	if again != 0 || strangers != 1 {
		t.Errorf("%d events at once, and %d descriptors: it is asked to accept all the time", again, strangers)
	}
	for range 100 {
		for _, s := range g.sources {
			if s.kind == ofStranger {
				return
			}
		}
		round()
	}
	t.Error("a connection that waited was never taken")
}

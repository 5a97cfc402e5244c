package shm

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// A file of huge pages, of which there may be none when one is touched, is refused.
func TestMapHugePages(t *testing.T) {
	fd, err := unix.MemfdCreate("huge", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(fd)
	const size = 1 << 30 // of whatever pages
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Skip(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, needed|unix.F_SEAL_GROW); err != nil {
		t.Fatal(err)
	}
	if s, err := Map(fd, size); !errors.Is(err, ErrSegment) {
		t.Errorf("%v, %v", s, err)
	}
}

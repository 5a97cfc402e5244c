package shm

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Strict reports whether the kernel promises no more memory than there is (vm.overcommit_memory =
// 2; Linux, Documentation/mm/overcommit-accounting.rst). Then a page of a memfd is accounted when
// it is first touched, and a touch without memory left is a SIGBUS. So all pages are touched in
// advance, by a call that returns an error instead.
var Strict = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/proc/sys/vm/overcommit_memory")
	return err == nil && len(b) > 0 && b[0] == '2'
})

// reserveMemory has the kernel set memory aside, if it is strict.
func reserveMemory(mem []byte) error {
	if !Strict() {
		return nil
	}
	if err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE); err != nil { // EFAULT: it would have been SIGBUS
		return fmt.Errorf("shm: no memory for %d bytes (vm.overcommit_memory is 2): %w", len(mem), err)
	}
	return nil
}

// reserveAll has the kernel set all of a new segment aside, or retires the segment.
func (s *Segment) reserveAll() error {
	err := reserveMemory(s.mem)
	if err != nil {
		s.Retire()
	}
	return err
}

package ports

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// counter is the first word of a port's page, which the node counts events in. It is mapped:
// pwrite(2) would wait for whoever writes to the file, and a process can have a write of its own
// last for ever. What the process writes there is its own loss.
type counter struct {
	mem []byte
}

// mapCounter maps the page of a port, which nobody can shorten.
func mapCounter(fd int) (*counter, error) {
	mem, err := unix.Mmap(fd, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("ports: page: %w", err)
	}
	return &counter{mem}, nil
}

// add adds 1, unless the page is unmapped.
func (c *counter) add() {
	if c.mem != nil {
		(*atomic.Uint64)(unsafe.Pointer(&c.mem[0])).Add(1)
	}
}

// unmap unmaps the page. It may be called again, or for no counter.
func (c *counter) unmap() {
	if c != nil && c.mem != nil {
		_ = unix.Munmap(c.mem)
		c.mem = nil
	}
}

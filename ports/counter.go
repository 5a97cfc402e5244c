package ports

import (
	"fmt"

	"golang.org/x/sys/unix"

	"exnet/fabric/link/attach/wire"
	"exnet/internal/shm"
)

// counter is the first word of a port's page, in which the node counts events. It is mapped,
// since pwrite(2) would wait for another writer of the file, and a process can make its own write
// last for ever. A process that overwrites the word harms only itself.
type counter struct {
	page *shm.Foreign
}

// mapCounter maps the page of a port, which is sealed against shrinking.
func mapCounter(fd int) (*counter, error) {
	page, err := shm.MapShared(fd, wire.PageSize, wire.PageSize, unix.F_SEAL_SHRINK, true)
	if err != nil {
		return nil, fmt.Errorf("ports: page: %w", err)
	}
	return &counter{page}, nil
}

// increment adds 1. After unmap it has no effect.
func (c *counter) increment() { c.page.Memory().Words(0, 1)[0].Add(1) }

// unmap returns the page. It may be called again, and on nil.
func (c *counter) unmap() {
	if c != nil {
		c.page.Retire()
	}
}

package ports

import (
	"fmt"

	"golang.org/x/sys/unix"

	"exnet/internal/shm"
	"exnet/ports/wire"
)

// counter is the first word of a port's page, which the node counts events in. It is mapped:
// pwrite(2) would wait for whoever writes to the file, and a process can have a write of its own
// last for ever. What the process writes there is its own loss.
type counter struct {
	page *shm.Foreign
}

// mapCounter maps the page of a port, which nobody can shorten.
func mapCounter(fd int) (*counter, error) {
	page, err := shm.MapShared(fd, wire.PageSize, wire.PageSize, unix.F_SEAL_SHRINK, true)
	if err != nil {
		return nil, fmt.Errorf("ports: page: %w", err)
	}
	return &counter{page}, nil
}

// add adds 1. After unmap that has no effect.
func (c *counter) add() { c.page.Memory().Words(0, 1)[0].Add(1) }

// unmap gives the page back. It may be called again, or for no counter.
func (c *counter) unmap() {
	if c != nil {
		c.page.Retire()
	}
}

package pager

import (
	"sync"

	"golang.org/x/sys/unix"
)

// mostClosing is how many threads may close descriptors at once.
const mostClosing = 16

// trash closes descriptors that others have sent, and sockets in whose queues such may wait. To
// close the last one of a file may take as long as its owner wants: a TCP socket with SO_LINGER. So
// the Pager's thread does not wait for it.
//
// Concurrency: all methods may be called from many goroutines.
type trash struct {
	mu      sync.Mutex
	fds     []int // +checklocks:mu
	closing int   // +checklocks:mu
}

// throw takes a descriptor; a negative one is none.
func (t *trash) throw(fd int) {
	if fd < 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fds = append(t.fds, fd)
	if t.closing < mostClosing {
		t.closing++
		go t.run()
	}
}

func (t *trash) run() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.fds) > 0 {
		fd := t.fds[0]
		t.fds = t.fds[1:]
		t.mu.Unlock()
		_ = unix.Close(fd)
		t.mu.Lock()
	}
	t.closing--
}

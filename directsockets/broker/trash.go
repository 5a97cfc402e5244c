package broker

import (
	"sync"

	"golang.org/x/sys/unix"
)

// trash closes descriptors of a client. To close the last one of a file may take as
// long as its owner wants: a TCP socket with SO_LINGER, or a Unix socket in whose
// queue one waits. So nobody else waits for it: there is a goroutine for each owner
// and peer, and what it has not closed yet counts as theirs.
//
// Concurrency: all methods may be called from many goroutines.
type trash struct {
	of levels // what they count for; nil: a peer's

	mu sync.Mutex
	// fds: the first is being closed.
	fds  []int // +checklocks:mu
	busy bool  // +checklocks:mu
}

// throw takes descriptors; negative ones are none.
func (t *trash) throw(fds ...int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, fd := range fds {
		if fd >= 0 {
			t.fds = append(t.fds, fd)
			t.of.add(descriptors, 1)
		}
	}
	if !t.busy && len(t.fds) > 0 {
		t.busy = true
		go t.run()
	}
}

func (t *trash) run() {
	for {
		t.mu.Lock()
		if len(t.fds) == 0 {
			t.busy = false
			t.mu.Unlock()
			return
		}
		fd := t.fds[0]
		t.mu.Unlock()
		_ = unix.Close(fd)
		t.mu.Lock()
		t.fds = t.fds[1:]
		t.of.add(descriptors, -1)
		t.mu.Unlock()
	}
}

// len is how many are not closed yet.
func (t *trash) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.fds)
}

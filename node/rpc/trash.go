package rpc

import (
	"sync"

	"golang.org/x/sys/unix"

	"exnet/node/rpc/caller"
)

// Bin closes what the processes of one user have sent, one after another, in a goroutine that it
// has while there is something. The zero Bin counts for nobody.
type Bin struct {
	count func(change int) // nil: nobody wants to know

	mu sync.Mutex
	// waiting: the first is being closed.
	waiting []func() // +checklocks:mu
}

// NewBin returns a Bin that tells count how many more, or fewer if negative, are not closed yet.
// count must not use the Bin.
func NewBin(count func(change int)) *Bin { return &Bin{count: count} }

// Throw takes descriptors; negative ones are none.
func (b *Bin) Throw(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			b.Do(func() { _ = unix.Close(fd) })
		}
	}
}

// Do has something closed that counts as one descriptor, by a function that may take long.
func (b *Bin) Do(end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, end)
	b.tellCount(1)
	if len(b.waiting) == 1 {
		go b.run()
	}
}

// Connection is one to a process, which may have descriptors on the way (Outbox).
type Connection interface {
	// Abort ends it, and waits for nothing.
	Abort()
	// Bare reports, after Abort, whether Close takes no time.
	Bare() bool
	Close()
}

// End ends a connection, and calls then when it is closed; nil: nothing. One in which no
// descriptors wait is closed at once, so that who fills a Bin with what takes long cannot add to
// it by mere connections.
func (b *Bin) End(c Connection, then func()) {
	if end := abortConnection(c, then); c.Bare() {
		end()
	} else {
		b.Do(end)
	}
}

// abortConnection aborts a connection and returns what closes it.
func abortConnection(c Connection, then func()) func() {
	c.Abort()
	return func() {
		c.Close()
		if then != nil {
			then()
		}
	}
}

func (b *Bin) run() {
	for more := true; more; {
		b.mu.Lock()
		end := b.waiting[0]
		b.mu.Unlock()
		end()
		b.mu.Lock()
		b.waiting[0] = nil
		b.waiting = b.waiting[1:]
		more = len(b.waiting) > 0
		b.tellCount(-1)
		b.mu.Unlock()
	}
}

func (b *Bin) tellCount(change int) {
	if b.count != nil {
		b.count(change)
	}
}

// Len is how many are not closed yet.
func (b *Bin) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// Most is how much of a user may wait in Bins before nothing more should be read from it: what a
// message can have (SCM_MAX_FD), and the connection.
const Most = 254

// Bins are a Bin for each user. The zero Bins are empty.
type Bins struct {
	mu sync.Mutex
	// users: those that have something to close.
	users map[caller.Account]*counted // +checklocks:mu
}

type counted struct {
	bin  *Bin
	open int // not closed yet; belongs to the lock of Bins
}

// Throw takes descriptors that a user's processes have sent; negative ones are none.
func (b *Bins) Throw(a caller.Account, fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			b.Do(a, func() { _ = unix.Close(fd) })
		}
	}
}

// Do has something of a user's closed, as Bin.Do.
func (b *Bins) Do(a caller.Account, end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users == nil {
		b.users = make(map[caller.Account]*counted)
	}
	u := b.users[a]
	if u == nil {
		u = &counted{bin: new(Bin)}
		b.users[a] = u
	}
	u.open++
	u.bin.Do(func() {
		end()
		b.mu.Lock()
		defer b.mu.Unlock()
		if u.open--; u.open == 0 {
			delete(b.users, a)
		}
	})
}

// End ends a connection of a user's, as Bin.End.
func (b *Bins) End(a caller.Account, c Connection, then func()) {
	if end := abortConnection(c, then); c.Bare() {
		end()
	} else {
		b.Do(a, end)
	}
}

// EndFd ends a connection of a user's, of which there is no more than a descriptor, as End.
func (b *Bins) EndFd(a caller.Account, fd int) {
	if unix.Shutdown(fd, unix.SHUT_RDWR) == nil && holdsNothing(fd) {
		_ = unix.Close(fd)
	} else {
		b.Throw(a, fd)
	}
}

// Full says whether a user has Most that are not closed yet. Root never has.
func (b *Bins) Full(a caller.Account) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.users[a]
	return u != nil && u.open >= Most && !a.Unlimited()
}

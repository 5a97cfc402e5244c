package rpc

import (
	"errors"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Outbox sends packets to a socket without ever waiting for its reader.
//
// Concurrency: all methods may be called from many goroutines.
type Outbox struct {
	conn *net.UnixConn
	raw  syscall.RawConn
	max  int // packets that may wait

	mu sync.Mutex
	// queue: what the socket had no room for.
	queue []waiting // +checklocks:mu
	// writing: flush is running.
	writing bool // +checklocks:mu
	closed  bool // +checklocks:mu
	// drained is told when writing or closed changes.
	drained *sync.Cond
	flushed sync.WaitGroup
}

// waiting is a message that waits, with descriptors of its own.
type waiting struct {
	b   []byte
	fds []int
}

func (p waiting) close() { Descriptors(p.fds).Close() }

func NewOutbox(conn *net.UnixConn, max int) (*Outbox, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	o := &Outbox{conn: conn, raw: raw, max: max}
	o.drained = sync.NewCond(&o.mu)
	return o, nil
}

// Post sends a packet, now or when there is room. It borrows b and fds. ErrSlow:
// too many wait already.
func (o *Outbox) Post(b []byte, fds ...int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return net.ErrClosed
	}
	if len(o.queue) == 0 {
		err := o.trySend(b, fds)
		if !errors.Is(err, unix.EAGAIN) {
			return err
		}
	}
	if len(o.queue) >= o.max {
		return ErrSlow
	}
	p := waiting{b: append([]byte(nil), b...)}
	for _, fd := range fds {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			p.close()
			return err
		}
		p.fds = append(p.fds, own)
	}
	o.queue = append(o.queue, p)
	if !o.writing {
		o.writing = true
		o.flushed.Go(o.flushWaiting)
	}
	return nil
}

// Offer sends a packet now or not at all: ErrBusy.
func (o *Outbox) Offer(b []byte, fds ...int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return net.ErrClosed
	}
	if len(o.queue) > 0 {
		return ErrBusy
	}
	err := o.trySend(b, fds)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ETOOMANYREFS) {
		return ErrBusy
	}
	return err
}

func (o *Outbox) trySend(b []byte, fds []int) (err error) {
	ctlErr := o.raw.Control(func(fd uintptr) { err = sendPacket(fd, b, fds) })
	if ctlErr != nil {
		return ctlErr
	}
	return err
}

func sendPacket(fd uintptr, b []byte, fds []int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		_, err := unix.SendmsgN(int(fd), b, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// flushWaiting sends what waits, until nothing does or the socket is closed.
func (o *Outbox) flushWaiting() {
	for {
		o.mu.Lock()
		if len(o.queue) == 0 || o.closed {
			o.writing = false
			o.drained.Broadcast()
			o.mu.Unlock()
			return
		}
		p := o.queue[0] // nobody else takes it
		o.mu.Unlock()
		var err error
		waitErr := o.raw.Write(func(fd uintptr) bool {
			err = sendPacket(fd, p.b, p.fds)
			return err != unix.EAGAIN
		})
		if waitErr == nil {
			waitErr = err
		}
		p.close()
		o.mu.Lock()
		o.queue[0] = waiting{}
		o.queue = o.queue[1:]
		if waitErr != nil { // the reader of this connection finds its end
			o.shutLocked()
		}
		o.mu.Unlock()
	}
}

// shutLocked ends the connection for both sides without closing the socket, which may
// take its time: descriptors may wait in its queue.
//
// +checklocks:o.mu
func (o *Outbox) shutLocked() {
	o.closed = true
	o.drained.Broadcast()
	_ = o.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) }) // or it is closed
}

// Drained waits until no packet waits any more. It reports false if the outbox is closed.
func (o *Outbox) Drained() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.writing && !o.closed {
		o.drained.Wait()
	}
	return !o.closed
}

// Abort ends the connection, and waits for nothing. close has still to be called.
func (o *Outbox) Abort() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shutLocked()
}

// Close closes the connection, and what waits is dropped.
func (o *Outbox) Close() {
	o.Abort()
	o.flushed.Wait()
	o.mu.Lock()
	queue := o.queue
	o.queue = nil
	o.mu.Unlock()
	for _, p := range queue {
		p.close()
	}
	_ = o.conn.Close()
}

package shm

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/foreign"
	"exnet/internal/shm"
)

// maxArena is the largest arena of a peer that is mapped.
const maxArena = 1 << 34

// exchangeHellos exchanges hellos and descriptors with the peer, and maps what it sent.
func (l *Link) exchangeHellos(timeout time.Duration) error {
	mine := hello{version: Version, node: l.nic.ID(), segment: segmentSize, arena: uint64(len(l.arena.Bytes()))}
	b, err := mine.AppendBinary(nil)
	if err != nil {
		return err
	}
	fd := l.arena.Fd()
	if fd < 0 {
		return fmt.Errorf("shm: connect: NIC: %w", fabric.ErrClosed)
	}
	if err := l.sock.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return fmt.Errorf("shm: connect: %w", err)
	}
	if _, _, err := l.sock.conn.WriteMsgUnix(b, unix.UnixRights(l.nearSeg.Fd(), fd), nil); err != nil {
		return fmt.Errorf("%w: send: %w", ErrHello, err)
	}
	theirs, fds, err := l.receiveHello()
	defer closeAll(fds)
	if err != nil {
		return err
	}
	switch {
	case theirs.version != Version:
		return fmt.Errorf("%w: %d, this is %d", ErrVersion, theirs.version, Version)
	case theirs.node == mine.node:
		return fmt.Errorf("%w: the peer has node ID %d as well: %w", ErrHello, mine.node, fabric.ErrInUse)
	case len(fds) != 2:
		return fmt.Errorf("%w: it carries %d descriptors instead of 2", ErrHello, len(fds))
	case theirs.segment != segmentSize || theirs.arena > maxArena:
		return fmt.Errorf("%w: segment of %d bytes, arena of %d", ErrHello, theirs.segment, theirs.arena)
	}
	far, err := shm.Map(fds[0], segmentSize)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrHello, err)
	}
	if l.farArena.seg, err = shm.Map(fds[1], int(theirs.arena)); err != nil {
		far.Retire()
		return fmt.Errorf("%w: %w", ErrHello, err)
	}
	l.peer, l.farSeg = theirs.node, far
	l.far, l.inRing = viewOf(far.Memory().Words), far.Memory().Slots(ringOff, RingSlots)
	l.ready.Store(true)
	return l.sock.conn.SetDeadline(time.Time{})
}

// receiveHello reads the peer's hello, and the descriptors that came with it, which
// are the caller's to close.
func (l *Link) receiveHello() (h hello, fds []int, err error) {
	b := make([]byte, helloLen)
	oob := make([]byte, unix.CmsgSpace(4*4)) // room for two too many
	n, oobn, flags, _, err := l.sock.conn.ReadMsgUnix(b, oob)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("no answer: %w", err)
		}
		return h, nil, fmt.Errorf("%w: %w", ErrHello, err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return h, nil, fmt.Errorf("%w: control message: %w", ErrHello, err)
	}
	for _, m := range msgs {
		if got, err := unix.ParseUnixRights(&m); err == nil { // else other ancillary data
			fds = append(fds, got...)
		}
	}
	if flags&syscall.MSG_CTRUNC != 0 {
		return h, fds, fmt.Errorf("%w: descriptors cut off", ErrHello)
	}
	return h, fds, h.UnmarshalBinary(b[:n])
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// farArena is the peer's arena. It stays mapped while somebody reads it.
type farArena struct {
	mu      sync.Mutex
	seg     *shm.Foreign
	users   int           // guarded by mu
	closed  bool          // guarded by mu
	drained chan struct{} // guarded by mu; made by close if there are users
}

// borrowBytes lends n bytes at place until giveBack.
func (a *farArena) borrowBytes(place uint64, n int) (foreign.Memory, fabric.Status) {
	mem := a.seg.Memory()
	if n < 1 || n > mem.Len() || place > uint64(mem.Len()-n) {
		return foreign.Memory{}, fabric.StatusBadResponse
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return foreign.Memory{}, fabric.StatusPeerDown
	}
	a.users++
	return mem.Part(int(place), n), fabric.StatusOK
}

func (a *farArena) giveBack() {
	a.mu.Lock()
	a.users--
	if a.users == 0 && a.drained != nil {
		close(a.drained)
	}
	a.mu.Unlock()
}

// close waits until nobody reads, and unmaps the arena.
func (a *farArena) close() {
	a.mu.Lock()
	a.closed = true
	var wait chan struct{}
	if a.users > 0 {
		wait = make(chan struct{})
		a.drained = wait
	}
	a.mu.Unlock()
	if wait != nil {
		<-wait
	}
	a.seg.Retire()
}

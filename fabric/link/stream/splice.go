package stream

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// spliceMin is the shortest chunk that is worth it: below, a copy costs less than the
	// references to its pages.
	spliceMin = 16 << 10
	// spliceHeads is how many chunks of an operation can go so; the rest of a longer one is copied.
	spliceHeads = 4
	// pipeSize is what a batch needs: a slot for each page, and two more for each chunk.
	pipeSize = 1 << 20
	headSlot = 64
)

// heads has the heads of chunks that are sent without a copy: each has its place until its
// operation ends, when the peer has read it. The memory is never used for anything else, so that a
// peer that still reads from a link that is down finds what was sent. Nil: there is none.
type heads []byte

func newHeads() heads {
	mem, err := unix.Mmap(-1, 0, maxOps*spliceHeads*headSlot, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil // all is copied
	}
	return mem
}

func (h heads) close() {
	if h != nil {
		_ = unix.Munmap(h) // it was mapped
	}
}

// of is the place for the head of a chunk.
func (h heads) of(c chunk) []byte {
	slot := (int(c.x.head.op)%maxOps*spliceHeads + c.off/chunkSize) * headSlot
	return h[slot : slot+headSlot]
}

// splicer sends chunks without a copy: by a pipe, the kernel gets references to their pages. It
// belongs to the holder of conn.wmu.
type splicer struct {
	heads   heads // the link's
	in, out int   // the pipe; -1: there is none yet
	off     bool  // there will not be one
	held    int   // bytes in the pipe, which are sent before anything else
}

// newSplicer is one with the link's heads, which are nil if nothing goes so.
func newSplicer(h heads) splicer { return splicer{heads: h, in: -1, out: -1, off: h == nil} }

// takes reports whether a chunk goes through the pipe.
func (s *splicer) takes(p *pending) bool {
	return p.x.lent && !s.off && p.off < spliceHeads*chunkSize &&
		chunkLen(len(p.x.data), p.off) >= spliceMin
}

// open makes the pipe.
func (s *splicer) open() bool {
	if s.out >= 0 || s.off {
		return !s.off
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		s.off = true
		return false
	}
	s.out, s.in = fds[0], fds[1]
	// One of the usual size takes a chunk at a time.
	_, _ = unix.FcntlInt(uintptr(s.in), unix.F_SETPIPE_SZ, pipeSize)
	return true
}

func (s *splicer) close() {
	for _, fd := range []*int{&s.in, &s.out} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
	s.off, s.held = true, 0
}

// send sends what is in the pipe, or the next chunks of b, and returns how many bytes those were
// and how many of them went. ENOSYS: not in this way.
func (s *splicer) send(c *conn, b *batch) (want, n int, errno syscall.Errno) {
	more := b.more
	if s.held == 0 {
		if !s.open() {
			return 0, 0, syscall.ENOSYS
		}
		to := b.run(s, true)
		c.iov = c.iov[:0]
		for i := b.cur; i < to; i++ {
			p := &b.chunks[i]
			head := s.heads.of(p.chunk)[:p.headLen]
			copy(head, p.head[:p.headLen])
			c.iov = p.parts(c.iov, head)
		}
		more = more || to < b.n
		s.held, errno = rawGather(s.in, c.iov)
		clear(c.iov)
		if errno != 0 {
			s.close()
			return 0, 0, syscall.ENOSYS
		}
	}
	want = s.held
	n, errno = rawSplice(s.out, c.fd, s.held, more)
	if errno == 0 {
		s.held -= n
	}
	return want, n, errno
}

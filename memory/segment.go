package memory

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"exnet/fabric"
	"exnet/foreign"
	"exnet/internal/shm"
	"exnet/memory/lease"
	"exnet/memory/wire"
	"exnet/node/rpc"
)

// errClosed is what a Segment says after Close.
var errClosed = fmt.Errorf("memory: %w", fabric.ErrClosed)

// path is the way to the memory of a lease: a mapping, or a window of the node. Offsets and lengths
// are within it.
type path interface {
	ReadAt(p []byte, off int64) error
	WriteAt(p []byte, off int64) error
	Discard(off, n int64) error // whole pages
	Close()                     // once the accesses that run have ended
}

// Segment is memory of another node, until Close, until the lender takes it back, or until it ends.
//
// Concurrency: all methods may be called from many goroutines.
type Segment struct {
	conn     *net.UnixConn
	memory   path
	size     int64
	node     fabric.NodeID
	until    time.Time
	onRevoke func(time.Time)
	watched  chan struct{} // closed when watch has ended

	mu   sync.Mutex
	life lease.Life // +checklocks:mu
	// ended is why the lease has ended, nil: it has not. It is life's end, for accesses, which
	// take no lock.
	ended atomic.Pointer[error]
	done  chan struct{} // closed when it has
}

// Len is the size in bytes: the Size that was asked for, or less if Min allowed that.
func (s *Segment) Len() int64 { return s.size }

// Lender is the node whose memory it is.
func (s *Segment) Lender() fabric.NodeID { return s.node }

// Until is when the lender wants the memory back: as after a revocation, OnRevoke is called then,
// and the lease ends when its deadline is over (5 s later, unless the lender has another time).
// Zero: no such time.
func (s *Segment) Until() time.Time { return s.until }

// Done returns a channel that is closed when the lease has ended.
func (s *Segment) Done() <-chan struct{} { return s.done }

// Err returns why the lease has ended: ErrRevoked, ErrLost, or fabric.ErrClosed after Close; nil:
// it has not.
func (s *Segment) Err() error {
	if e := s.ended.Load(); e != nil {
		return *e
	}
	return nil
}

// returnTime is how long Close waits for the node.
const returnTime = 5 * time.Second

// applyEvent brings the lease to its next state; why is its error, if that is the end.
func (s *Segment) applyEvent(ev lease.Event, why error) lease.Act {
	s.mu.Lock()
	act := s.life.On(ev)
	end := act == lease.ActEnd || act == lease.ActEndSay
	if end {
		s.ended.Store(&why)
		close(s.done)
	}
	s.mu.Unlock()
	if end {
		s.memory.Close() // once the accesses that run have ended
	}
	if end && ev == lease.OnReturned {
		_ = sendMessage(s.conn, wire.Message{Op: wire.OpReturn}) // or the node has ended
	}
	return act
}

// handleMessages handles what the node says, until the lease has ended.
func (s *Segment) handleMessages(in *rpc.Inbound) {
	defer close(s.watched)
	defer s.conn.Close()
	for {
		b, fds, err := in.Next()
		fds.Close()
		var m wire.Message
		if err == nil {
			err = m.UnmarshalBinary(b)
		}
		switch {
		case err != nil: // this node has ended, or Close was called
			s.applyEvent(lease.OnLost, ErrLost)
			return
		case m.Op == wire.OpGet || m.Op == wire.OpPut || m.Op == wire.OpZero:
			if w, ok := s.memory.(*window); ok {
				w.answerArrived(m)
			}
		case m.Op == wire.OpRevoke && s.onRevoke == nil:
			s.applyEvent(lease.OnReturned, ErrRevoked)
			return
		case m.Op == wire.OpRevoke:
			if s.applyEvent(lease.OnWanted, nil) == lease.ActWant {
				go s.onRevoke(time.Unix(0, int64(m.C)))
			}
		case m.Op == wire.OpGone:
			s.applyEvent(lease.OnTaken, ending(m.Status))
			return
		}
	}
}

// within checks an offset and a length.
func (s *Segment) within(off, n int64) error {
	if e := s.Err(); e != nil {
		return e
	}
	if off < 0 || n > s.size || off > s.size-n {
		return fmt.Errorf("%w: %d bytes at %d, of %d", ErrRange, n, off, s.size)
	}
	return nil
}

// accessError is the error of an access that found the memory gone.
func (s *Segment) accessError(err error) error {
	if err == nil {
		return nil
	}
	if e := s.Err(); e != nil {
		return e
	}
	if !errors.Is(err, shm.ErrCut) {
		return err
	}
	return ErrRevoked
}

// ReadAt reads all of p from off on, or returns an error: ErrRange, or why the lease has ended.
// After that p may have been written. It implements io.ReaderAt, but for reads past the end.
func (s *Segment) ReadAt(p []byte, off int64) (int, error) {
	if err := s.within(off, int64(len(p))); err != nil {
		return 0, err
	}
	if err := s.memory.ReadAt(p, off); err != nil {
		return 0, s.accessError(err)
	}
	return len(p), nil
}

// View calls f with n bytes from off on, where they are mapped, and reports true. It reports false
// if they are on another host, or the lease has ended. f is to hand them to a system call that
// copies them: others may write them meanwhile, and cut them, which is EFAULT there, and SIGBUS
// elsewhere.
func (s *Segment) View(off, n int64, f func(foreign.Memory)) bool {
	l, ok := s.memory.(*shm.Loan)
	return ok && n >= 0 && s.within(off, n) == nil && l.View(off, n, f) == nil
}

// WriteAt writes p to off. When it returns nil, p is where every later ReadAt finds it. Its
// errors are those of ReadAt. It implements io.WriterAt.
func (s *Segment) WriteAt(p []byte, off int64) (int, error) {
	if err := s.within(off, int64(len(p))); err != nil {
		return 0, err
	}
	if err := s.memory.WriteAt(p, off); err != nil {
		return 0, s.accessError(err)
	}
	return len(p), nil
}

// Discard makes n bytes from off on zeros, and gives the lender the whole pages among them.
func (s *Segment) Discard(off, n int64) error {
	if err := s.within(off, n); err != nil {
		return err
	}
	if n < 0 {
		return ErrRange
	}
	// The pages at both ends are written, those between given back.
	first, last := (off+PageSize-1)/PageSize*PageSize, (off+n)/PageSize*PageSize
	if first >= last {
		return s.zeroPages(off, n)
	}
	if err := s.zeroPages(off, first-off); err != nil {
		return err
	}
	if err := s.memory.Discard(first, last-first); err != nil {
		return s.accessError(err)
	}
	return s.zeroPages(last, off+n-last)
}

var zeros [2 * PageSize]byte

// zeroPages writes up to two pages of zeros.
func (s *Segment) zeroPages(off, n int64) error {
	return s.accessError(s.memory.WriteAt(zeros[:n], off))
}

// Fence returns when everything that was written before is at the lender, or an error if the lease
// has ended.
func (s *Segment) Fence() error { return s.Err() }

// Close returns the memory to the lender. It waits for the reads and writes that run; later ones
// fail with fabric.ErrClosed. The error is that of a lease that had ended before.
func (s *Segment) Close() error {
	s.applyEvent(lease.OnReturned, errClosed)
	_ = s.conn.SetReadDeadline(time.Now().Add(returnTime)) // or it is closed
	<-s.watched
	if e := s.Err(); e != errClosed {
		return e
	}
	return nil
}

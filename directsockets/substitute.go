package directsockets

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"exnet/internal/shm"

	"golang.org/x/sys/unix"
)

// substitute is one end of a socket pair, which the program has in place of the shadow. The Conn's
// own calls go there, too: they and whoever has the descriptor share what there is to read. Two
// goroutines pass on between the other end and the connection, until both directions have ended
// or nobody has the first end any more.
type substitute struct {
	conn   *net.UnixConn
	raw    syscall.RawConn
	broken atomic.Bool   // the connection has ended with an error
	ended  chan struct{} // closed when passIn has ended
}

// errAway says that a call is for the substitute.
var errAway = errors.New("directsockets: for the substitute")

// makeSubstitute makes one.
func (c *Conn) makeSubstitute() (*substitute, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	far, err := unixConn(fds[0])
	near, nearErr := unixConn(fds[1])
	if err = errors.Join(err, nearErr); err != nil {
		for _, u := range []*net.UnixConn{far, near} {
			if u != nil {
				_ = u.Close() // nobody has it
			}
		}
		return nil, err
	}
	s := &substitute{conn: far, ended: make(chan struct{})}
	if s.raw, err = far.SyscallConn(); err != nil { // not of one that is open
		return nil, err
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		_, _ = far.Close(), near.Close() // nobody has them
		return nil, net.ErrClosed
	}
	c.sub.Store(s)
	for _, h := range []*half{&c.rx.half, &c.tx.half} {
		if h.timer != nil {
			h.timer.Stop()
		}
		set, shut := far.SetReadDeadline, far.CloseRead
		if h == &c.tx.half {
			set, shut = far.SetWriteDeadline, far.CloseWrite
		}
		_ = set(h.deadline) // it is open
		if h.flags.Load()&flagShut != 0 {
			_ = shut()
		}
		h.flags.And(^uint32(flagExpired))
		h.flags.Or(flagAway)
		c.wakeLocked(h)
	}
	c.mu.Unlock()
	c.rx.sendAway()
	c.tx.sendAway()
	go c.passIn(s, near)
	go c.passOut(s, near)
	return s, nil
}

// unixConn takes a descriptor.
func unixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "substitute")
	defer f.Close() // FileConn has a duplicate
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// dupFile returns a duplicate of the descriptor.
func (s *substitute) dupFile(name string) (f *os.File, err error) {
	ctlErr := s.raw.Control(func(fd uintptr) {
		var d int
		if d, err = dup(int(fd)); err == nil {
			f = os.NewFile(uintptr(d), name)
		}
	})
	return f, errors.Join(ctlErr, err)
}

// awaySubstitute returns the substitute; an error: there is none, as the connection is closed.
func (c *Conn) awaySubstitute(op string) (*substitute, error) {
	if s := c.sub.Load(); s != nil {
		return s, nil
	}
	return nil, c.opError(op, net.ErrClosed)
}

// lockError says why a call does not get a lock.
func (c *Conn) lockError(op string) error {
	if c.sub.Load() != nil {
		return errAway
	}
	return c.opError(op, net.ErrClosed)
}

// awayError is an error of the substitute as the connection's.
func (c *Conn) awayError(op string, err error) error {
	var e *net.OpError
	if !errors.As(err, &e) {
		return err
	}
	return c.opError(op, e.Err)
}

func (c *Conn) readAway(p []byte) (int, error) {
	s, err := c.awaySubstitute("read")
	if err != nil {
		return 0, err
	}
	n, err := s.conn.Read(p)
	return n, c.awayError("read", err)
}

func (c *Conn) writeAway(p []byte) (int, error) {
	s, err := c.awaySubstitute("write")
	if err != nil {
		return 0, err
	}
	n, err := s.conn.Write(p)
	return n, c.awayError("write", err)
}

// passIn passes on what comes.
func (c *Conn) passIn(s *substitute, near *net.UnixConn) {
	defer close(s.ended)
	buf := copyBuffers.Get().(*[copyChunk]byte)
	defer copyBuffers.Put(buf)
	r := &c.rx
	for {
		if !r.takeInner() {
			return
		}
		r.passing = true
		n, err := c.readLocked(buf[:])
		r.passing = false
		c.releaseRX()
		if n > 0 {
			if _, err := near.Write(buf[:n]); err != nil {
				c.resetOnClose() // nobody has read it
				return
			}
		}
		switch {
		case err == io.EOF:
			_ = near.CloseWrite() // an error: nobody is there
			return
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			c.resetOnClose()
			s.resetCalls(near)
			return
		}
	}
}

// resetCalls has the program's calls fail with ECONNRESET: near is closed with a byte unread.
func (s *substitute) resetCalls(near *net.UnixConn) {
	s.broken.Store(true)
	_ = near.SetReadDeadline(past)
	if raw, err := near.SyscallConn(); err == nil {
		_ = raw.Read(func(uintptr) bool { return true }) // passOut does not read any more
	}
	_ = s.raw.Write(func(fd uintptr) bool { // or nobody has it
		_, _ = unix.Write(int(fd), []byte{0}) // it is full, and so has bytes unread
		return true
	})
	_ = near.Close()
}

// passOut passes on what the program sends, and closes the connection when it has ended.
func (c *Conn) passOut(s *substitute, near *net.UnixConn) {
	buf := copyBuffers.Get().(*[copyChunk]byte)
	defer copyBuffers.Put(buf)
	t := &c.tx
	for {
		n, err := near.Read(buf[:])
		if n > 0 {
			if !t.takeInner() {
				break
			}
			t.passing = true
			_, werr := c.writeLocked(buf[:n], 0)
			t.passing = false
			c.releaseTX()
			if werr != nil {
				_ = near.CloseRead() // the program's next write fails
				break
			}
		}
		if err == nil {
			continue
		}
		if err != io.EOF { // it was closed with bytes that nobody has read
			c.resetOnClose()
		}
		break
	}
	t.flags.Or(flagShut)
	c.askTX(wantShutdown, true)
	if raw, err := near.SyscallConn(); err == nil {
		_ = raw.Read(func(fd uintptr) bool { return shm.Over(int(fd)) }) // an error: passIn has closed it
	}
	if s.broken.Load() {
		<-s.ended // it closes near
	}
	_ = near.Close()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	_ = c.finalize() // whoever has closed it was told
}

// resetOnClose has the connection be reset when it is closed.
func (c *Conn) resetOnClose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.linger = 0
}

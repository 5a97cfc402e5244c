// Package sealed has TLS run in the thread that serves a socket.
//
// # Architecture
//
//	link ── *tls.Conn ── Conn ── socket
//
// Package tls reads and writes a net.Conn that may keep it waiting. A Conn is one that waits until
// it is taken, so that hands can be shaken, and never afterwards: Read has what has come, or says
// ErrAgain, which package tls passes on and is ready for the next call; Write gathers records until
// Flush. Many records go by one system call, and many come by one.
//
// # Concurrency
//
// After Take, Read may be called by one goroutine at a time, as package tls does; Write, Flush and
// Pending by many.
package sealed

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

const (
	inSize  = 128 << 10 // read at a time, beside what package tls has room for
	maxOut  = 256 << 10 // the largest buffer of records that is kept
	mostOut = 1 << 20   // records that wait for Flush
)

// ErrAgain: nothing has come. It is temporary, as package tls understands it.
var ErrAgain net.Error = again{}

type again struct{}

func (again) Error() string   { return "sealed: nothing has come yet" }
func (again) Timeout() bool   { return true }
func (again) Temporary() bool { return true }

// errUnread: the peer has package tls answer (KeyUpdate) and does not read the answers.
var errUnread = errors.New("the peer does not read what it asks for")

// Socket sends and receives without waiting: EAGAIN says that it would have to. Receive fills p,
// then more; 0 without an error: the peer has hung up.
type Socket interface {
	Send(p []byte) (int, syscall.Errno)
	Receive(p, more []byte) (int, syscall.Errno)
}

// Conn is what package tls reads and writes.
type Conn struct {
	*net.TCPConn        // until Take
	socket       Socket // since

	in   []byte // Read's
	r, w int    // of in: received and not read

	mu   sync.Mutex // taken last
	out  []byte     // guarded by mu: records
	sent int        // guarded by mu: of these
}

// Under returns what package tls is to use in place of c: a Conn, or c if it is no TCP connection.
func Under(c net.Conn) net.Conn {
	if t, ok := c.(*net.TCPConn); ok {
		return &Conn{TCPConn: t}
	}
	return c
}

// Of returns the TLS connection that c is and the Conn below it, or nil if there is none.
func Of(c net.Conn) (*tls.Conn, *Conn) {
	if t, ok := c.(*tls.Conn); ok {
		if u, ok := t.NetConn().(*Conn); ok {
			return t, u
		}
	}
	return nil, nil
}

// Take has s be read and written from now on. No other method is being called.
func (c *Conn) Take(s Socket) { c.socket, c.in = s, make([]byte, inSize) }

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if c.socket == nil {
		return c.TCPConn.Read(p)
	}
	if c.r < c.w {
		n := copy(p, c.in[c.r:c.w])
		c.r += n
		return n, nil
	}
	n, errno := c.socket.Receive(p, c.in)
	switch {
	case errno == syscall.EAGAIN:
		return 0, ErrAgain
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.EOF
	}
	c.r, c.w = 0, max(n-len(p), 0)
	return min(n, len(p)), nil
}

// Write implements net.Conn. Once taken it fails if a MiB waits for Flush: a link flushes before
// it writes more, so only answers that package tls gives itself can come to that.
func (c *Conn) Write(p []byte) (int, error) {
	if c.socket == nil {
		return c.TCPConn.Write(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out)-c.sent+len(p) > mostOut {
		return 0, errUnread
	}
	c.out = append(c.out, p...)
	return len(p), nil
}

// Pending is how many bytes Flush has to send.
func (c *Conn) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.out) - c.sent
}

// Flush sends what was written, as far as it goes. EAGAIN: not all of it.
func (c *Conn) Flush() syscall.Errno {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out) == c.sent {
		return 0
	}
	n, errno := c.socket.Send(c.out[c.sent:])
	if errno != 0 {
		return errno
	}
	if c.sent += n; c.sent < len(c.out) {
		return syscall.EAGAIN
	}
	c.out, c.sent = c.out[:0], 0
	if cap(c.out) > maxOut {
		c.out = nil
	}
	return 0
}

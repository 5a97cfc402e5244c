package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Errors of Over and OverStream.
var (
	// ErrHello says that the other end is no such medium. Have both nodes run the
	// same version, which tells them what kind of link they have.
	ErrHello = errors.New("wire: the peer uses another kind of link: update it")
	// ErrVersion says that the other end has another version of this link. Update
	// one.
	ErrVersion = errors.New("wire: the peer has another version of the link: update one of them")
)

// The first message of each side on a socket, little endian: magic 4, version 2,
// zero 2. Nothing happens to it.
const (
	helloMagic   = "EXNW"
	helloVersion = 2
	helloLen     = 8
	helloTime    = 2 * time.Second
)

// Conn is a medium over a connected Unix socket of type SOCK_SEQPACKET: a message
// for each packet. What does not fit into the socket's buffer is lost.
//
// Concurrency: all methods may be called from many goroutines.
type Conn struct {
	conn *net.UnixConn
	raw  syscall.RawConn
	way  *way

	// Of out, which the way calls one at a time.
	packet []byte
	err    error
	write  func(fd uintptr) bool // made once
	once   sync.Once
}

// Over returns the medium that c is, after an exchange of hellos with the other end's
// Over. It takes c, even if it fails. Packets to the other end meet the faults f.
// ErrFaults, ErrHello, ErrVersion: see there.
func Over(c *net.UnixConn, f Faults) (*Conn, error) {
	m := &Conn{conn: c}
	var err error
	if m.way, err = newWay(f, m.sendPacket, true); err == nil {
		if m.raw, err = c.SyscallConn(); err == nil {
			err = exchangeHellos(c, c.Read)
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	m.write = func(fd uintptr) bool {
		_, m.err = syscall.Write(int(fd), m.packet) // the socket does not block
		return true                                 // whatever came of it: nobody waits
	}
	return m, nil
}

// exchangeHellos exchanges hellos. read reads that of the other end, and what is longer as such.
func exchangeHellos(c net.Conn, read func([]byte) (int, error)) error {
	if err := c.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return fmt.Errorf("wire: hello: %w", err)
	}
	mine := binary.LittleEndian.AppendUint16([]byte(helloMagic), helloVersion)
	if _, err := c.Write(append(mine, 0, 0)); err != nil {
		return fmt.Errorf("wire: hello: %w", err)
	}
	b := make([]byte, helloLen+1)
	n, err := read(b)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("wire: no hello of the peer within %v: %w", helloTime, err)
	case err != nil:
		return fmt.Errorf("wire: hello: %w", err)
	case n != helloLen || string(b[:len(helloMagic)]) != helloMagic:
		return ErrHello
	}
	if v := binary.LittleEndian.Uint16(b[len(helloMagic):]); v != helloVersion {
		return fmt.Errorf("%w (%d, here %d)", ErrVersion, v, helloVersion)
	}
	return c.SetDeadline(time.Time{})
}

// sendPacket sends a packet, or loses it. An empty message would be read as the end.
func (m *Conn) sendPacket(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	m.packet = p
	err := m.raw.Write(m.write)
	m.packet = nil
	switch {
	case err != nil:
		return err // closed
	case m.err == syscall.EPIPE, m.err == syscall.ECONNRESET:
		return m.err
	}
	return nil // no room (EAGAIN), no memory, a signal: lost
}

// Send implements Medium.
func (m *Conn) Send(p []byte) error { return m.way.send(p) }

// Receive implements Medium.
func (m *Conn) Receive(p []byte) (int, error) {
	n, err := m.conn.Read(p)
	if errors.Is(err, net.ErrClosed) {
		err = io.EOF
	}
	return n, err
}

// SetFaults changes what happens to the packets that this end sends. ErrFaults: it
// cannot be.
func (m *Conn) SetFaults(f Faults) error { return m.way.setFaults(f) }

// Close implements Medium.
func (m *Conn) Close() error {
	var err error
	m.once.Do(func() {
		m.way.stop()
		err = m.conn.Close()
	})
	return err
}

var _ Medium = (*Conn)(nil)

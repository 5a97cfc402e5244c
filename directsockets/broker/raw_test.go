package broker

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rawClient speaks to a broker as anybody may.
type rawClient struct {
	t    testing.TB
	conn *net.UnixConn
	in   *inbound
}

// dialRaw connects without a greeting.
func dialRaw(t testing.TB, path string) *rawClient {
	t.Helper()
	conn, err := net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	in, err := newInbound(conn, maxLen)
	if err != nil {
		t.Fatal(err)
	}
	return &rawClient{t, conn, in}
}

// greetRaw connects and has its WELCOME.
func greetRaw(t testing.TB, path string) *rawClient {
	t.Helper()
	c := dialRaw(t, path)
	stats := statsFD(t, 4)
	c.send(Message{Type: Hello, Program: "raw"}, stats)
	unix.Close(stats)
	m, fds := c.next()
	fds.close()
	if m.Type != Welcome {
		t.Fatalf("%+v", m)
	}
	return c
}

// statsFD makes a table of statistics.
func statsFD(t testing.TB, entries int) int {
	t.Helper()
	s, err := newStats(entries)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := dup(s.seg.Fd())
	if err != nil {
		t.Fatal(err)
	}
	s.seg.Retire()
	return fd
}

func (c *rawClient) send(m Message, fds ...int) {
	c.t.Helper()
	b, err := m.AppendBinary(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.write(b, fds...); err != nil {
		c.t.Fatal(err)
	}
}

// show sends a message about a socket, with the proof of it before other descriptors.
func (c *rawClient) show(m Message, fd int, fds ...int) {
	c.t.Helper()
	_ = m.show(fd) // it may be no socket
	p, err := openProof(fd)
	if err != nil {
		c.t.Fatal(err)
	}
	defer unix.Close(p)
	c.send(m, append([]int{p}, fds...)...)
}

// write sends bytes, and waits for room.
func (c *rawClient) write(b []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, err := c.conn.WriteMsgUnix(b, oob, nil)
	return err
}

// next waits for a message.
func (c *rawClient) next() (m Message, fds descriptors) {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	b, fds, err := c.in.next()
	if err == nil {
		err = m.UnmarshalBinary(b)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if len(fds) != m.Type.Descriptors() {
		c.t.Fatalf("%v with %d descriptors", m, len(fds))
	}
	return m, fds
}

// disconnected waits for the end of the connection.
func (c *rawClient) disconnected() {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	for {
		_, fds, err := c.in.next()
		fds.close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.t.Fatal("still connected")
		}
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
			return
		}
	}
}

// refused waits for REFUSED with a reason.
func (c *rawClient) refused(id uint32, why Reason) {
	c.t.Helper()
	if m, fds := c.next(); m.Type != Refused || m.ID != id || m.Reason != why {
		fds.close()
		c.t.Errorf("got %+v, want a refusal of %d: %v", m, id, why)
	}
}

// tracer is a descriptor whose closing everywhere can be seen.
type tracer struct {
	t    testing.TB
	r, w int
}

func newTracer(t testing.TB) *tracer {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	return &tracer{t, p[0], p[1]}
}

// closedEverywhere closes the own descriptor and waits for all others to be closed.
func (tr *tracer) closedEverywhere() {
	tr.t.Helper()
	unix.Close(tr.w)
	defer unix.Close(tr.r)
	var b [1]byte
	eventually(tr.t, "the descriptor is closed", func() bool {
		n, err := unix.Read(tr.r, b[:])
		return n == 0 && err == nil
	})
}

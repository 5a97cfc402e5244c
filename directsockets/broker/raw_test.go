package broker

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"
)

// rawClient speaks to a broker as anybody may.
type rawClient struct {
	t    testing.TB
	conn *net.UnixConn
	in   *rpc.Inbound
}

// dialRaw connects without a greeting.
func dialRaw(t testing.TB, path string) *rawClient {
	t.Helper()
	conn, err := net.DialUnix(client.Network, nil, &net.UnixAddr{Name: path, Net: client.Network})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	in, err := rpc.NewInbound(conn, wire.MaxLen, wire.MaxDescriptors)
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
	c.send(wire.Message{Type: wire.Hello, Program: "raw"}, stats)
	unix.Close(stats)
	m, fds := c.next()
	fds.Close()
	if m.Type != wire.Welcome {
		t.Fatalf("%+v", m)
	}
	return c
}

// statsFD makes a table of statistics.
func statsFD(t testing.TB, entries int) int {
	t.Helper()
	s, err := connstats.New(entries, false)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := rpc.Dup(s.Fd())
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	return fd
}

func (c *rawClient) send(m wire.Message, fds ...int) {
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
func (c *rawClient) show(m wire.Message, fd int, fds ...int) {
	c.t.Helper()
	_ = wire.Identify(&m, fd) // it may be no socket
	p, err := wire.OpenProof(fd)
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
func (c *rawClient) next() (m wire.Message, fds rpc.Descriptors) {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(3 * time.Minute))
	b, fds, err := c.in.Next()
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
	c.conn.SetReadDeadline(time.Now().Add(3 * time.Minute))
	for {
		_, fds, err := c.in.Next()
		fds.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.t.Fatal("still connected")
		}
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
			return
		}
	}
}

// refused waits for REFUSED with a reason.
func (c *rawClient) refused(id uint32, why wire.Reason) {
	c.t.Helper()
	if m, fds := c.next(); m.Type != wire.Refused || m.ID != id || m.Reason != why {
		fds.Close()
		c.t.Errorf("got %+v, want a refusal of %d: %v", m, id, why)
	}
}

package tcpbench

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is a blocking TCP socket. The net package is not used: its sockets are
// non-blocking, and its poller would be measured too.
type socket int

var (
	_ conn     = socket(-1)
	_ listener = socket(-1)
)

// sockOptions are what all sockets of a job have.
type sockOptions struct {
	congestion string
	buffers    int // bytes; 0: the kernel's choice
}

// setBuffers sets the sizes of a socket's buffers, beyond the system's bound
// (net.core.wmem_max, rmem_max) if it may.
func (o sockOptions) setBuffers(fd int) error {
	if o.buffers == 0 {
		return nil
	}
	for _, opt := range [][2]int{{unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}, {unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}} {
		err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt[0], o.buffers)
		if errors.Is(err, unix.EPERM) {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt[1], o.buffers)
		}
		if err != nil {
			return fmt.Errorf("socket buffers of %d bytes: %w", o.buffers, err)
		}
	}
	return nil
}

// setOptions sets the options of a socket of package net's making.
func (o sockOptions) setOptions(_, _ string, c syscall.RawConn) error {
	var err error
	ctlErr := c.Control(func(fd uintptr) { err = o.setOn(int(fd)) })
	return errors.Join(ctlErr, err)
}

// setOn sets the options of a new socket.
func (o sockOptions) setOn(fd int) error {
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, o.congestion); err != nil {
		return congestionError(o.congestion, err)
	}
	return o.setBuffers(fd)
}

func (j job) socketOptions() sockOptions { return sockOptions{j.Congestion, j.Buffers} }

// newSocket makes a socket for addr's family with the options, which accepted connections take from
// their listener.
func newSocket(addr netip.AddrPort, o sockOptions) (socket, error) {
	if !addr.IsValid() {
		return -1, errors.New("no address")
	}
	family := unix.AF_INET6
	if addr.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("making a socket: %w", err)
	}
	if err := o.setOn(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return socket(fd), nil
}

// congestionError says what to do when a congestion control was refused.
func congestionError(name string, err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("congestion control %s: %w: run as root, or choose with --congestion from sysctl net.ipv4.tcp_allowed_congestion_control", name, err)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("congestion control %s is unknown here: choose with --congestion from sysctl net.ipv4.tcp_available_congestion_control", name)
	}
	return fmt.Errorf("congestion control %s: %w", name, err)
}

// listenAt makes a listening socket on addr for n connections and returns the
// address that it got.
func listenAt(addr netip.AddrPort, n int, o sockOptions) (socket, netip.AddrPort, error) {
	s, err := newSocket(addr, o)
	if err != nil {
		return -1, netip.AddrPort{}, err
	}
	err = unix.Bind(int(s), sockaddrOf(addr))
	if err == nil {
		err = unix.Listen(int(s), n)
	}
	var sa unix.Sockaddr
	if err == nil {
		sa, err = unix.Getsockname(int(s))
	}
	if err != nil {
		s.Close()
		return -1, netip.AddrPort{}, fmt.Errorf("listening on %v: %w", addr, err)
	}
	return s, netip.AddrPortFrom(addr.Addr(), portOf(sa)), nil
}

// accept waits for the next connection.
func (s socket) accept() (conn, error) {
	for {
		fd, _, err := unix.Accept4(int(s), unix.SOCK_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("accepting a connection: %w", err)
		}
		return socket(fd), nil
	}
}

// connectTo makes a connection to addr.
func connectTo(addr netip.AddrPort, o sockOptions) (socket, error) {
	s, err := newSocket(addr, o)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(int(s), sockaddrOf(addr)); err != nil {
		s.Close()
		return -1, fmt.Errorf("connecting to %v: %w", addr, err)
	}
	return s, nil
}

// noDelay turns Nagle's algorithm off.
func (s socket) noDelay() error {
	if err := unix.SetsockoptInt(int(s), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("TCP_NODELAY: %w", err)
	}
	return nil
}

// resetOnClose makes close end the connection at once (RST): what is under way
// is not wanted, and nothing lingers into the next measurement.
func (s socket) resetOnClose() error {
	err := unix.SetsockoptLinger(int(s), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	if err != nil {
		return fmt.Errorf("SO_LINGER: %w", err)
	}
	return nil
}

// Read reads what there is, at least a byte; io.EOF at the end.
func (s socket) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(s), b)
		if err == unix.EINTR {
			continue
		}
		if n == 0 && err == nil {
			err = io.EOF
		}
		return max(n, 0), err
	}
}

// Write writes all of b, in one system call unless a signal comes.
func (s socket) Write(b []byte) (done int, err error) {
	for done < len(b) {
		n, err := unix.Write(int(s), b[done:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// Close closes the socket. It is not idempotent.
func (s socket) Close() error { return unix.Close(int(s)) }

func sockaddrOf(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// portOf returns the port of an address of IPv4 or IPv6; 0 of any other.
func portOf(a unix.Sockaddr) uint16 {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return uint16(a.Port)
	case *unix.SockaddrInet6:
		return uint16(a.Port)
	}
	return 0
}

package tcpbench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Unix is stream sockets of the Unix domain (unix(7)): the kernel's connections within a host,
// without TCP and IP. A job's address becomes a name in the abstract namespace.
const Unix Transport = "unix"

func init() {
	transports[Unix] = transport{
		listen: func(j job) (listener, netip.AddrPort, error) { return listenUnix(j, uint16(rand.Uint32())) },
		dial: func(j job) (conn, error) {
			s, err := newUnix(j.socketOptions())
			if err != nil {
				return nil, err
			}
			if err := unix.Connect(int(s.socket), unixName(j.Address)); err != nil {
				s.Close()
				return nil, fmt.Errorf("connecting to Unix socket %v: %w", j.Address, err)
			}
			return s, nil
		},
	}
}

// unixName is the abstract name for an address.
func unixName(a netip.AddrPort) unix.Sockaddr {
	return &unix.SockaddrUnix{Name: "@dsbench " + a.String()}
}

// listenUnix listens at the first free name from the port's on.
func listenUnix(j job, port uint16) (listener, netip.AddrPort, error) {
	s, err := newUnix(j.socketOptions())
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	addr := netip.AddrPortFrom(j.Address.Addr(), port)
	for range 1 << 16 {
		if err = unix.Bind(int(s.socket), unixName(addr)); !errors.Is(err, unix.EADDRINUSE) {
			break
		}
		addr = netip.AddrPortFrom(addr.Addr(), addr.Port()+1)
	}
	if err == nil {
		err = unix.Listen(int(s.socket), backlogOf(j.Spec))
	}
	if err != nil {
		s.Close()
		return nil, netip.AddrPort{}, fmt.Errorf("listening on Unix socket %v: %w", addr, err)
	}
	return s, addr, nil
}

// unixSocket is a blocking stream socket of the Unix domain.
type unixSocket struct{ socket }

func newUnix(o sockOptions) (unixSocket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return unixSocket{-1}, fmt.Errorf("making a Unix socket: %w", err)
	}
	s := unixSocket{socket(fd)}
	if err := o.setBuffers(fd); err != nil {
		s.Close()
		return unixSocket{-1}, err
	}
	return s, nil
}

func (s unixSocket) accept() (conn, error) {
	c, err := s.socket.accept()
	if err != nil {
		return nil, err
	}
	return unixSocket{c.(socket)}, nil
}

func (unixSocket) noDelay() error      { return nil } // nothing waits in it
func (unixSocket) resetOnClose() error { return nil } // close drops what is not read

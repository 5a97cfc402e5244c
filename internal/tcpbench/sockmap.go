package tcpbench

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Sockmap is TCP whose sockets are in a BPF map of sockets (Spec.SocketMap), so that a program
// hands what one sends to the other, past TCP.
const Sockmap Transport = "sockmap"

// SocketKey is a socket's key in the map: its ports, in the host's byte order. The other end's key
// has them the other way round.
type SocketKey struct{ Local, Remote uint32 }

// IntoSocketMap puts a connected socket into the BPF map with the ID by its key, and waits for the
// other end's. Package paths sets it when it begins: a program that does not measure sockmap does
// not link a library for BPF.
var IntoSocketMap func(fd int, id uint32, own, other SocketKey) error

func init() {
	transports[Sockmap] = transport{
		listen: func(j job) (listener, netip.AddrPort, error) {
			s, addr, err := listen(j.Address, backlog(j.Spec), j.options())
			return sockmapListener{s, j.SocketMap}, addr, err
		},
		dial: func(j job) (conn, error) {
			s, err := connect(j.Address, j.options())
			if err != nil {
				return nil, err
			}
			return intoMap(s, j.SocketMap)
		},
	}
}

// sockmapSocket is a blocking socket in the map.
type sockmapSocket struct{ socket }

// Read is that of a socket, and reads again after EAGAIN: the kernel returns it from blocking
// sockets of a map, too, when it wakes them and finds no message (tcp_bpf_recvmsg).
func (s sockmapSocket) Read(b []byte) (int, error) {
	for {
		n, err := s.socket.Read(b)
		if !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
	}
}

type sockmapListener struct {
	socket
	id uint32
}

func (l sockmapListener) accept() (conn, error) {
	c, err := l.socket.accept()
	if err != nil {
		return nil, err
	}
	return intoMap(c.(socket), l.id)
}

// intoMap puts a connected socket into the map with the ID, and closes it if that fails.
func intoMap(s socket, id uint32) (c conn, err error) {
	defer func() {
		if err != nil {
			s.Close()
			c, err = nil, fmt.Errorf("putting a socket into the BPF map: %w", err)
		}
	}()
	local, err := unix.Getsockname(int(s))
	if err != nil {
		return nil, err
	}
	remote, err := unix.Getpeername(int(s))
	if err != nil {
		return nil, err
	}
	own, other := SocketKey{portOf(local), portOf(remote)}, SocketKey{portOf(remote), portOf(local)}
	return sockmapSocket{s}, IntoSocketMap(int(s), id, own, other)
}

// portOf returns the port of an address of IPv4 or IPv6; 0 of any other.
func portOf(a unix.Sockaddr) uint32 {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return uint32(a.Port)
	case *unix.SockaddrInet6:
		return uint32(a.Port)
	}
	return 0
}

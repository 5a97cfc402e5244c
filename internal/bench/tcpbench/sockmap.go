package tcpbench

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Sockmap is TCP whose sockets are in a BPF map of sockets (Spec.SocketMap), so that a program
// hands what one sends to the other, past TCP.
const Sockmap Transport = "sockmap"

// SocketKey is a socket's key in the map: its ports, in the host's byte order. The other end's key
// has them the other way round.
type SocketKey struct{ Local, Remote uint32 }

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

// joinTime bounds how long an end waits until the other is in the map, too.
const joinTime = 30 * time.Second

// intoMap puts a connected socket into the map with the ID, and waits for the other end, so that
// nothing is sent before the program can hand it over. If that fails it closes the socket.
func intoMap(s socket, id uint32) (c conn, err error) {
	defer func() {
		if err != nil {
			s.Close()
			c, err = nil, fmt.Errorf("putting a socket into the BPF map: %w", err)
		}
	}()
	m, err := ebpf.NewMapFromID(ebpf.MapID(id))
	if err != nil {
		return nil, err
	}
	defer m.Close()
	local, err := unix.Getsockname(int(s))
	if err != nil {
		return nil, err
	}
	remote, err := unix.Getpeername(int(s))
	if err != nil {
		return nil, err
	}
	if err := m.Put(SocketKey{portOf(local), portOf(remote)}, uint64(s)); err != nil {
		return nil, err
	}
	other, cookie := SocketKey{portOf(remote), portOf(local)}, uint64(0)
	for end := time.Now().Add(joinTime); ; time.Sleep(100 * time.Microsecond) { // a map has no wait
		err := m.Lookup(other, &cookie)
		if err == nil || !errors.Is(err, ebpf.ErrKeyNotExist) {
			return sockmapSocket{s}, err
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("the other end is not there after %v", joinTime)
		}
	}
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

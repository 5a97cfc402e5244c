package wire

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// errNoSocket says that a descriptor is no socket with addresses of the Internet.
var errNoSocket = errors.New("broker: not a TCP or UDP socket")

// Identify completes a message with what identifies the socket fd.
func Identify(m *Message, fd int) error {
	local, remote, ifindex, err := socketEnds(fd)
	if err != nil {
		return err
	}
	m.Interface = ifindex
	m.Client, m.Server = remote, local
	if m.Type == Offer {
		m.Client, m.Server = local, remote
	}
	return nil
}

// socketEnds returns the ends of the TCP or UDP socket fd, and the interface that it is bound
// to. There is no remote one if it is not connected.
func socketEnds(fd int) (local, remote netip.AddrPort, ifindex uint32, err error) {
	here, err := unix.Getsockname(fd)
	if err != nil {
		return local, remote, 0, fmt.Errorf("%w: %v", errNoSocket, err)
	}
	local, ok := addrOf(here)
	if there, peerErr := unix.Getpeername(fd); peerErr == nil {
		remote, _ = addrOf(there)
	}
	if !ok {
		return local, remote, 0, fmt.Errorf("%w: the socket has another address family", errNoSocket)
	}
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX)
	if err != nil {
		return local, remote, 0, fmt.Errorf("%w: %v", errNoSocket, err)
	}
	return local, remote, uint32(n), nil
}

// OpenProof opens a descriptor that stands for the socket fd and does not keep it open.
func OpenProof(fd int) (int, error) {
	proof, err := unix.Open(fmt.Sprintf("/proc/thread-self/fd/%d", fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) { // there is no /proc
		proof, err = unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLOEXEC)
	}
	if err != nil {
		return -1, fmt.Errorf("broker: cannot open a proof of the socket: %w", err)
	}
	return proof, nil
}

// addrOf returns the address, with IPv4 as such.
func addrOf(sa unix.Sockaddr) (a netip.AddrPort, ok bool) {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), true
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)), true
	}
	return a, false
}

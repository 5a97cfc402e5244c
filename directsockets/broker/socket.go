package broker

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// errSocket says that a descriptor is not the socket that is due.
var errSocket = errors.New("broker: not such a socket of this namespace")

// netnsCookie returns the number of the network namespace that a socket is of,
// which no other namespace has until the next boot.
func netnsCookie(fd int) (uint64, error) {
	c, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("broker: SO_NETNS_COOKIE, which takes Linux 5.14: %w", err)
	}
	return c, nil
}

// bound is where a listening socket listens.
type bound struct {
	addr   netip.Addr // unspecified: at all addresses of its family
	port   uint16
	v6only bool // :: is not for IPv4, too
}

// takes reports whether a connection to an address comes to the socket.
func (b bound) takes(a netip.Addr) bool {
	switch {
	case !b.addr.IsUnspecified():
		return b.addr == a
	case b.addr.Is4():
		return a.Is4()
	}
	return a.Is6() || !b.v6only
}

// socketEnds returns the ends of the TCP socket fd, and the interface that it is bound
// to. There is no remote one if it listens.
func socketEnds(fd int) (local, remote netip.AddrPort, ifindex uint32, err error) {
	here, err := unix.Getsockname(fd)
	if err != nil {
		return local, remote, 0, fmt.Errorf("%w: %v", errSocket, err)
	}
	local, ok := addrOf(here)
	if there, peerErr := unix.Getpeername(fd); peerErr == nil {
		remote, _ = addrOf(there)
	}
	if !ok {
		return local, remote, 0, fmt.Errorf("%w: it is of another family", errSocket)
	}
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX)
	if err != nil {
		return local, remote, 0, fmt.Errorf("%w: %v", errSocket, err)
	}
	return local, remote, uint32(n), nil
}

// openProof opens a descriptor that stands for the socket fd and does not keep it open.
func openProof(fd int) (int, error) {
	proof, err := unix.Open(fmt.Sprintf("/proc/thread-self/fd/%d", fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) { // there is no /proc
		proof, err = unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLOEXEC)
	}
	if err != nil {
		return -1, fmt.Errorf("broker: a descriptor to show the socket by: %w", err)
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

// Seals that memory of a client has to have, so that nobody resizes it.
const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// Where a segment's header has what the broker looks at (SPEC.md, 2.1).
const (
	segMagic    = "EXT-DS\x00\x01"
	segNonceOff = 32
	segEndsOff  = 48
	segHeadLen  = segEndsOff + endsLen
	segMinSize  = 4096
)

// checkSegment checks that fd is a segment for the connection. Whoever maps it
// checks it again: its owner can write what is looked at here.
func checkSegment(fd int, key Key, nonce Nonce) error {
	size, err := sealedSize(fd)
	if err != nil {
		return err
	}
	if size < segMinSize {
		return fmt.Errorf("%w: a segment of %d bytes", ErrRule, size)
	}
	var head [segHeadLen]byte
	if n, err := unix.Pread(fd, head[:], 0); err != nil || n != len(head) {
		return fmt.Errorf("%w: a segment that cannot be read", ErrRule)
	}
	client, server := parseEnds(head[segEndsOff:])
	if string(head[:len(segMagic)]) != segMagic || Nonce(head[segNonceOff:]) != nonce || client != key.Client || server != key.Server {
		return fmt.Errorf("%w: a segment of another connection", ErrRule)
	}
	return nil
}

// sealedSize returns the size of a memfd that nobody can resize.
func sealedSize(fd int) (int64, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&sealed != sealed {
		return 0, fmt.Errorf("%w: no sealed memfd", ErrRule)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return st.Size, nil
}

// checkBell checks that fd is an end of a pair of Unix stream sockets.
func checkBell(fd int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_UNIX {
		return fmt.Errorf("%w: a doorbell that is no Unix socket", ErrRule)
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return fmt.Errorf("%w: a doorbell that is no stream socket", ErrRule)
	}
	return nil
}

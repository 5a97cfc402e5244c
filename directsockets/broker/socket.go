package broker

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"
)

// errSocket says that a descriptor is not the socket that is due.
var errSocket = errors.New("broker: not the socket of this namespace that is due")

// netnsCookie returns the number of the network namespace that a socket is of,
// which no other namespace has until the next boot.
func netnsCookie(fd int) (uint64, error) {
	c, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("broker: SO_NETNS_COOKIE (needs Linux 5.14): %w", err)
	}
	return c, nil
}

// bound is where a listening socket listens.
type bound struct {
	addr   netip.Addr // unspecified: at all addresses of its family
	port   uint16
	v6only bool // :: is not for IPv4, too
}

// isAccepting reports whether a connection to an address comes to the socket.
func (b bound) isAccepting(a netip.Addr) bool {
	switch {
	case !b.addr.IsUnspecified():
		return b.addr == a
	case b.addr.Is4():
		return a.Is4()
	}
	return a.Is6() || !b.v6only
}

// Where a segment's header has what the broker looks at (SPEC.md, 2.1).
const (
	segMagic    = "EXT-DS\x00\x01"
	flowMagic   = "EXT-DG\x00\x01" // of a flow of datagrams (10.1)
	segNonceOff = 32
	segEndsOff  = 48
	segHeadLen  = segEndsOff + wire.EndsLen
	segMinSize  = 4096
)

// checkSegment checks that fd is a segment for the connection, or the flow. Both ends check it
// again when they map it, as its owner can write what is checked here.
func checkSegment(fd int, magic string, key wire.Key, nonce wire.Nonce) error {
	size, err := rpc.SealedSize(fd)
	if err != nil {
		return err
	}
	if size < segMinSize {
		return fmt.Errorf("%w: the segment has only %d bytes", wire.ErrRule, size)
	}
	var head [segHeadLen]byte
	if n, err := unix.Pread(fd, head[:], 0); err != nil || n != len(head) {
		return fmt.Errorf("%w: the segment cannot be read", wire.ErrRule)
	}
	client, server := wire.ParseEnds(head[segEndsOff:])
	if string(head[:len(magic)]) != magic || wire.Nonce(head[segNonceOff:]) != nonce || client != key.Client || server != key.Server {
		return fmt.Errorf("%w: the segment belongs to another connection", wire.ErrRule)
	}
	return nil
}

// checkBell checks that fd is an end of a pair of Unix stream sockets.
func checkBell(fd int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_UNIX {
		return fmt.Errorf("%w: the doorbell is not a Unix socket", wire.ErrRule)
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return fmt.Errorf("%w: the doorbell is not a stream socket", wire.ErrRule)
	}
	return nil
}

// isEmpty reports whether nothing is in the queue of a stream socket.
func isEmpty(fd int) bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == unix.EAGAIN || err == nil && n == 0
}

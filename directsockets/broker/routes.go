package broker

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// routes asks the kernel whether an address is one of the namespace's own.
//
// Concurrency: all methods may be called from many goroutines.
type routes struct {
	mu sync.Mutex
	// fd: a netlink socket of the namespace; -1: closed.
	fd  int    // +checklocks:mu
	seq uint32 // +checklocks:mu
}

// openRoutes opens them for the calling thread's namespace.
func openRoutes() (*routes, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("broker: netlink: %w", err)
	}
	// The kernel answers while it is asked: this is for the case that it does not.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("broker: netlink: %w", err)
	}
	return &routes{fd: fd}, nil
}

func (r *routes) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd >= 0 {
		_ = unix.Close(r.fd)
		r.fd = -1
	}
}

// Offsets in the answer, a struct nlmsghdr and a struct rtmsg (rtnetlink(7)).
const (
	nlTypeOff   = 4
	nlSeqOff    = 8
	rtmTypeOff  = unix.SizeofNlMsghdr + 7
	routeReqLen = unix.SizeofNlMsghdr + unix.SizeofRtMsg
)

// isLocal reports whether packets to an address are delivered in the namespace
// itself (RTM_GETROUTE: type local).
func (r *routes) isLocal(a netip.Addr, zone uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd < 0 {
		return false
	}
	r.seq++
	if unix.Sendto(r.fd, routeRequest(a, zone, r.seq), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
		return false
	}
	buf := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(r.fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n < unix.SizeofNlMsghdr {
			return false
		}
		if binary.NativeEndian.Uint32(buf[nlSeqOff:]) != r.seq {
			continue // the answer to one that was given up
		}
		return n > rtmTypeOff && binary.NativeEndian.Uint16(buf[nlTypeOff:]) == unix.RTM_NEWROUTE &&
			buf[rtmTypeOff] == unix.RTN_LOCAL
	}
}

// routeRequest asks for the route to an address.
func routeRequest(a netip.Addr, zone, seq uint32) []byte {
	dst := a.AsSlice()
	attr := func(b []byte, typ uint16, v []byte) []byte {
		b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(v)))
		return append(binary.NativeEndian.AppendUint16(b, typ), v...)
	}
	b := make([]byte, routeReqLen, 64)
	binary.NativeEndian.PutUint16(b[nlTypeOff:], unix.RTM_GETROUTE)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(b[nlSeqOff:], seq)
	b[unix.SizeofNlMsghdr] = unix.AF_INET
	if a.Is6() {
		b[unix.SizeofNlMsghdr] = unix.AF_INET6
	}
	b[unix.SizeofNlMsghdr+1] = uint8(8 * len(dst))
	b = attr(b, unix.RTA_DST, dst)
	if zone != 0 {
		b = attr(b, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, zone))
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

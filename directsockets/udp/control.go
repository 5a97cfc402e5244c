package udp

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"exnet/directsockets/datagram"
)

// Control is what the control messages of a send ask for.
type Control struct {
	source netip.Addr // unmapped; the zero Addr: none is asked for
	tos    int        // -1: as the socket has it
	// kernelOnly: the send has a control message that only the kernel carries, such as
	// UDP_SEGMENT or IP_TTL.
	kernelOnly bool
}

// Offsets in a struct cmsghdr.
const (
	cmsgLevelOff = 8
	cmsgTypeOff  = 12
	cmsgHead     = 16
)

func cmsgAlign(n int) int { return (n + 7) &^ 7 }

// ParseControl reads control messages. Those that a flow cannot carry make a datagram the
// kernel's. It is short enough to be inlined, so that what it returns is on the caller's stack.
func ParseControl(oob []byte) *Control {
	if len(oob) == 0 {
		return nil
	}
	c := &Control{tos: -1}
	c.readMessages(oob)
	return c
}

// forKernel reports whether no flow carries them; nil: there are none.
func (c *Control) forKernel() bool { return c != nil && c.kernelOnly }

func (c *Control) readMessages(oob []byte) {
	for len(oob) >= cmsgHead {
		n := int(binary.NativeEndian.Uint64(oob))
		if n < cmsgHead || n > len(oob) {
			c.kernelOnly = true
			break
		}
		c.parseMessage(int(int32(binary.NativeEndian.Uint32(oob[cmsgLevelOff:]))), int(int32(binary.NativeEndian.Uint32(oob[cmsgTypeOff:]))), oob[cmsgHead:n])
		oob = oob[min(cmsgAlign(n), len(oob)):]
	}
}

func (c *Control) parseMessage(level, typ int, b []byte) {
	number := func() int {
		switch {
		case len(b) >= 4:
			return int(int32(binary.NativeEndian.Uint32(b)))
		case len(b) == 2:
			return int(binary.NativeEndian.Uint16(b))
		case len(b) == 1:
			return int(b[0])
		}
		c.kernelOnly = true
		return 0
	}
	source := func(a netip.Addr, ifindex []byte) { // the interface is the loopback's
		c.kernelOnly = c.kernelOnly || binary.NativeEndian.Uint32(ifindex) != 0
		if !a.IsUnspecified() {
			c.source = a.Unmap()
		}
	}
	switch {
	case level == unix.IPPROTO_IP && typ == unix.IP_TOS, level == unix.IPPROTO_IPV6 && typ == unix.IPV6_TCLASS:
		c.tos = number() & 0xff
	case level == unix.IPPROTO_IP && typ == unix.IP_PKTINFO && len(b) >= 12: // ifindex, spec_dst, addr
		source(netip.AddrFrom4([4]byte(b[4:])), b)
	case level == unix.IPPROTO_IPV6 && typ == unix.IPV6_PKTINFO && len(b) >= 20:
		source(netip.AddrFrom16([16]byte(b)), b[16:])
	default:
		c.kernelOnly = true
	}
}

// metaOf returns TOS and TTL of a datagram: those of the control messages, or else of the
// socket.
func (c *Control) metaOf(o *options) datagram.Meta {
	m := datagram.Meta{TOS: o.tos, TTL: o.ttl}
	if c != nil && c.tos >= 0 {
		m.TOS = uint8(c.tos)
	}
	return m
}

// hasOtherSource reports whether a datagram comes from another address than from.
func (c *Control) hasOtherSource(from netip.Addr) bool {
	return c != nil && c.source.IsValid() && c.source != from
}

// appendControl appends the control messages that the kernel's socket would give with a
// datagram.
func (s *Socket) appendControl(oob []byte, d Datagram) []byte {
	if d.control != nil {
		return append(oob, d.control...)
	}
	o := s.currentOptions()
	put := func(wanted bool, level, typ int, body ...byte) {
		if !wanted {
			return
		}
		at := len(oob)
		oob = append(oob, make([]byte, cmsgAlign(cmsgHead+len(body)))...)
		binary.NativeEndian.PutUint64(oob[at:], uint64(cmsgHead+len(body)))
		binary.NativeEndian.PutUint32(oob[at+cmsgLevelOff:], uint32(level))
		binary.NativeEndian.PutUint32(oob[at+cmsgTypeOff:], uint32(typ))
		copy(oob[at+cmsgHead:], body)
	}
	number := func(n uint8) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }
	a, four := d.To.Addr().As16(), d.To.Addr().Is4()
	if four {
		ip := a[12:]
		put(o.pktinfo, unix.IPPROTO_IP, unix.IP_PKTINFO, slices.Concat(number(loopback), ip, ip)...)
		put(o.recvTOS, unix.IPPROTO_IP, unix.IP_TOS, d.TOS)
	}
	put(o.pktinfo6, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, append(a[:], number(loopback)...)...)
	put(o.recvTClass && !four, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, number(d.TOS)...)
	return oob
}

// loopback is the index of the interface by which all datagrams of a namespace to itself come.
const loopback = 1

// PutControl puts them into oob, and returns how much, and the flag that says that it was too
// short.
func (s *Socket) PutControl(oob []byte, d Datagram) (n, flags int) {
	var buf [256]byte
	all := s.appendControl(buf[:0], d)
	if n = copy(oob, all); n < len(all) {
		flags = unix.MSG_CTRUNC
	}
	return n, flags
}

// Own is an address as this socket has it: one of IPv6 has IPv4's mapped.
func (s *Socket) Own(a netip.AddrPort) netip.AddrPort {
	if s.six && a.Addr().Is4() {
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
	}
	return a
}

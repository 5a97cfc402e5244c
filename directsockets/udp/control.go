package udp

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"exnet/directsockets/datagram"
)

// Control is what the control messages of a send ask for.
type Control struct {
	source   [16]byte // mapped, if IPv4; zero: none is asked for
	sourced  bool
	tos, ttl int // -1: as the socket has it
	// kernelOnly: the send has a control message that only the kernel can carry, such as
	// UDP_SEGMENT.
	kernelOnly bool
}

// Offsets in a struct cmsghdr.
const (
	cmsgLevelOff = 8
	cmsgTypeOff  = 12
	cmsgHead     = 16
)

func cmsgAlign(n int) int { return (n + 7) &^ 7 }

// ParseControl reads control messages. Those that a flow cannot carry make a datagram the kernel's.
// It is short enough to be inlined, so that what it returns is on the caller's stack.
func ParseControl(oob []byte) *Control {
	if len(oob) == 0 {
		return nil
	}
	c := &Control{tos: -1, ttl: -1}
	c.read(oob)
	return c
}

// forKernel reports whether no flow carries them; nil: there are none.
func (c *Control) forKernel() bool { return c != nil && c.kernelOnly }

func (c *Control) read(oob []byte) {
	for len(oob) >= cmsgHead {
		n := int(binary.NativeEndian.Uint64(oob))
		if n < cmsgHead || n > len(oob) {
			c.kernelOnly = true
			break
		}
		c.parse(int(int32(binary.NativeEndian.Uint32(oob[cmsgLevelOff:]))), int(int32(binary.NativeEndian.Uint32(oob[cmsgTypeOff:]))), oob[cmsgHead:n])
		oob = oob[min(cmsgAlign(n), len(oob)):]
	}
}

func (c *Control) parse(level, typ int, b []byte) {
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
	switch {
	case level == unix.IPPROTO_IP && typ == unix.IP_TOS, level == unix.IPPROTO_IPV6 && typ == unix.IPV6_TCLASS:
		c.tos = number() & 0xff
	case level == unix.IPPROTO_IP && typ == unix.IP_TTL, level == unix.IPPROTO_IPV6 && typ == unix.IPV6_HOPLIMIT:
		c.ttl = number()
		c.kernelOnly = c.kernelOnly || c.ttl < 1 || c.ttl > 255
	case level == unix.IPPROTO_IP && typ == unix.IP_PKTINFO && len(b) >= 12:
		// ifindex, spec_dst, addr: the source is spec_dst.
		c.kernelOnly = c.kernelOnly || binary.NativeEndian.Uint32(b) != 0
		if [4]byte(b[4:]) != [4]byte{} {
			c.sourced = true
			c.source = [16]byte{10: 0xff, 11: 0xff, 12: b[4], 13: b[5], 14: b[6], 15: b[7]}
		}
	case level == unix.IPPROTO_IPV6 && typ == unix.IPV6_PKTINFO && len(b) >= 20:
		c.kernelOnly = c.kernelOnly || binary.NativeEndian.Uint32(b[16:]) != 0
		if [16]byte(b) != [16]byte{} {
			c.sourced = true
			c.source = [16]byte(b)
		}
	default:
		c.kernelOnly = true
	}
}

// meta is what a datagram of a flow has. ok false: it has another source, and so is the kernel's.
func (c *Control) meta(o *options, f *outflow) (m datagram.Meta, ok bool) {
	m = datagram.Meta{TOS: o.tos, TTL: o.ttl}
	if c == nil {
		return m, true
	}
	if c.tos >= 0 {
		m.TOS = uint8(c.tos)
	}
	if c.ttl >= 0 {
		m.TTL = uint8(c.ttl)
	}
	return m, !c.elsewhere(f)
}

// elsewhere reports whether a datagram comes from another address than those of a flow: its
// receiver does not count it.
func (c *Control) elsewhere(f *outflow) bool {
	return c != nil && c.sourced && f.tx != nil && c.source != f.tx.Info().From.Addr().As16()
}

// AppendControl appends the control messages that the kernel's socket would give with a datagram.
func (s *Socket) AppendControl(oob []byte, d Datagram) []byte {
	o := s.look()
	four := d.To.Addr().Is4()
	put := func(level, typ int, body []byte) {
		at := len(oob)
		oob = append(oob, make([]byte, cmsgAlign(cmsgHead+len(body)))...)
		binary.NativeEndian.PutUint64(oob[at:], uint64(cmsgHead+len(body)))
		binary.NativeEndian.PutUint32(oob[at+cmsgLevelOff:], uint32(level))
		binary.NativeEndian.PutUint32(oob[at+cmsgTypeOff:], uint32(typ))
		copy(oob[at+cmsgHead:], body)
	}
	number := func(n uint8) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }
	if four {
		if o.pktinfo && !s.six || o.pktinfo {
			a := d.To.Addr().As4()
			body := binary.NativeEndian.AppendUint32(nil, loopback)
			put(unix.IPPROTO_IP, unix.IP_PKTINFO, append(append(body, a[:]...), a[:]...))
		}
		if o.recvTTL {
			put(unix.IPPROTO_IP, unix.IP_TTL, number(d.TTL))
		}
		if o.recvTOS {
			put(unix.IPPROTO_IP, unix.IP_TOS, []byte{d.TOS})
		}
	}
	if s.six && o.pktinfo6 {
		a := d.To.Addr().As16()
		put(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, binary.NativeEndian.AppendUint32(a[:], loopback))
	}
	if s.six && !four {
		if o.recvHopLimit {
			put(unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT, number(d.TTL))
		}
		if o.recvTClass {
			put(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, number(d.TOS))
		}
	}
	return oob
}

// loopback is the index of the interface by which all datagrams of a namespace to itself come.
const loopback = 1

// PutControl puts them into oob, and returns how much, and the flag that says that it was too
// short.
func (s *Socket) PutControl(oob []byte, d Datagram) (n, flags int) {
	var buf [256]byte
	all := s.AppendControl(buf[:0], d)
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

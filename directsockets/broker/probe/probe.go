package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	_ "exnet/internal/linux"

	"golang.org/x/sys/unix"
)

// Prober sends from one network namespace.
type Prober struct{ v4, v6 int }

// Ask is what one packet asks for.
type Ask struct {
	Local, Remote netip.AddrPort // of the socket that shall have the answer; IPv4 is not mapped
	Interface     uint32         // to which it is bound; 0: none
	// Unacknowledged is the first sequence number that the peer has not acknowledged, and Expected
	// the one that the socket expects next.
	Unacknowledged, Expected uint32
}

// New makes a Prober of the calling thread's namespace.
func New() (*Prober, error) {
	v4, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	v6, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if err != nil {
		v6 = -1 // a kernel without IPv6
	}
	return &Prober{v4, v6}, nil
}

// Close closes it.
func (p *Prober) Close() {
	for _, fd := range []int{p.v4, p.v6} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	p.v4, p.v6 = -1, -1
}

// Ask sends the packet. An error: it did not leave, as a connection's own would not.
func (p *Prober) Ask(a Ask) error {
	b, err := a.packet()
	if err != nil {
		return err
	}
	var control []byte
	if a.Interface != 0 {
		if control = unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: int32(a.Interface)}); a.Remote.Addr().Is6() {
			control = unix.PktInfo6(&unix.Inet6Pktinfo{Addr: a.Local.Addr().As16(), Ifindex: a.Interface})
		}
	}
	fd, to := p.v4, unix.Sockaddr(nil)
	if a.Remote.Addr().Is4() {
		to = &unix.SockaddrInet4{Addr: a.Remote.Addr().As4()}
	} else {
		fd, to = p.v6, &unix.SockaddrInet6{Addr: a.Remote.Addr().As16(), ZoneId: a.Interface}
	}
	if fd < 0 {
		return fmt.Errorf("probe: %w", unix.EAFNOSUPPORT)
	}
	for {
		err := unix.Sendmsg(fd, b, control, to, 0)
		if err == nil || !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Sizes and offsets of the headers.
const (
	ip4Len = 20
	ip6Len = 40
	tcpLen = 20

	ttl    = 64
	ack    = 0x10
	window = 512 // the answer does not depend on it
)

// packet is the whole packet.
func (a Ask) packet() ([]byte, error) {
	from, to := a.Local.Addr(), a.Remote.Addr()
	if !from.IsValid() || from.Is4() != to.Is4() || from.Is4In6() || to.Is4In6() {
		return nil, errors.New("probe: addresses of different families")
	}
	var b []byte
	if from.Is4() {
		b = make([]byte, ip4Len+tcpLen)
		b[0] = 4<<4 | ip4Len/4
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		binary.BigEndian.PutUint16(b[6:], 1<<14) // is not taken apart
		b[8], b[9] = ttl, unix.IPPROTO_TCP
		copy(b[12:], from.AsSlice())
		copy(b[16:], to.AsSlice())
	} else {
		b = make([]byte, ip6Len+tcpLen)
		b[0] = 6 << 4
		binary.BigEndian.PutUint16(b[4:], tcpLen)
		b[6], b[7] = unix.IPPROTO_TCP, ttl
		copy(b[8:], from.AsSlice())
		copy(b[24:], to.AsSlice())
	}
	t := b[len(b)-tcpLen:]
	binary.BigEndian.PutUint16(t, a.Local.Port())
	binary.BigEndian.PutUint16(t[2:], a.Remote.Port())
	binary.BigEndian.PutUint32(t[4:], a.Unacknowledged-1)
	binary.BigEndian.PutUint32(t[8:], a.Expected)
	t[12], t[13] = tcpLen/4<<4, ack
	binary.BigEndian.PutUint16(t[14:], window)
	binary.BigEndian.PutUint16(t[16:], checksum(from, to, t))
	return b, nil
}

// checksum is TCP's, of the segment t whose own is 0. The kernel fills in that of an IPv4 header.
func checksum(from, to netip.Addr, t []byte) uint16 {
	sum := uint32(unix.IPPROTO_TCP + len(t))
	for _, b := range [][]byte{from.AsSlice(), to.AsSlice(), t} {
		for i := 0; i+1 < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

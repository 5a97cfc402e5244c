package udp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/datagram"
)

// message makes a control message.
func message(level, typ int, body ...byte) []byte {
	b := make([]byte, cmsgAlign(cmsgHead+len(body)))
	binary.NativeEndian.PutUint64(b, uint64(cmsgHead+len(body)))
	binary.NativeEndian.PutUint32(b[cmsgLevelOff:], uint32(level))
	binary.NativeEndian.PutUint32(b[cmsgTypeOff:], uint32(typ))
	copy(b[cmsgHead:], body)
	return b
}

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// What a flow can carry is understood, and what it cannot is the kernel's.
func TestParseControl(t *testing.T) {
	info := append(number(0), 127, 0, 0, 2, 0, 0, 0, 0)
	plain := Control{tos: -1}
	with := func(f func(*Control)) Control {
		c := plain
		f(&c)
		return c
	}
	kernelOnly := with(func(c *Control) { c.kernelOnly = true })
	for _, tt := range []struct {
		name string
		oob  []byte
		want Control
	}{
		{"TOS", message(unix.IPPROTO_IP, unix.IP_TOS, 2), with(func(c *Control) { c.tos = 2 })},
		{"TOS of 4 bytes", message(unix.IPPROTO_IP, unix.IP_TOS, number(3)...), with(func(c *Control) { c.tos = 3 })},
		{"traffic class", message(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, number(1)...), with(func(c *Control) { c.tos = 1 })},
		{"hop limit", message(unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT, number(9)...), kernelOnly},
		{"a train", message(unix.IPPROTO_UDP, unix.UDP_SEGMENT, 0xb0, 4), kernelOnly},
		{"a source", message(unix.IPPROTO_IP, unix.IP_PKTINFO, info...),
			with(func(c *Control) { c.source = netip.MustParseAddr("127.0.0.2") })},
		{"no source", message(unix.IPPROTO_IP, unix.IP_PKTINFO, make([]byte, 12)...), plain},
		{"an interface", message(unix.IPPROTO_IP, unix.IP_PKTINFO, append(number(1), make([]byte, 8)...)...), kernelOnly},
		{"TTL", message(unix.IPPROTO_IP, unix.IP_TTL, number(9)...), kernelOnly},
		{"unknown", message(unix.SOL_SOCKET, unix.SCM_RIGHTS, number(0)...), kernelOnly},
		{"a length beyond the end", number(100), plain}, // shorter than a head: the kernel ignores it
		{"a length beyond the end", append(binary.NativeEndian.AppendUint64(nil, 100), make([]byte, 8)...), kernelOnly},
		{"a length of 0", make([]byte, cmsgHead), kernelOnly},
	} {
		if got := ParseControl(tt.oob); *got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, *got, tt.want)
		}
	}
	if ParseControl(nil) != nil {
		t.Error("no control messages, and something was understood")
	}
}

// The control messages of a datagram through memory are those that the kernel's socket gives.
func TestAppendControlIsTheKernels(t *testing.T) {
	for _, tt := range []struct {
		name, at string
		options  [][2]int
	}{
		{"IPv4", "127.0.0.1:0", [][2]int{{unix.IPPROTO_IP, unix.IP_PKTINFO}, {unix.IPPROTO_IP, unix.IP_RECVTOS}}},
		{"IPv4, TOS", "127.0.0.1:0", [][2]int{{unix.IPPROTO_IP, unix.IP_RECVTOS}}},
		{"IPv6", "[::1]:0", [][2]int{{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO}, {unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS}}},
		{"nothing", "127.0.0.1:0", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr, _ := net.ResolveUDPAddr("udp", tt.at)
			c, err := net.ListenUDP("udp", addr)
			if err != nil {
				t.Skipf("no %s here: %v", tt.at, err)
			}
			defer c.Close()
			raw, err := c.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			local := c.LocalAddr().(*net.UDPAddr).AddrPort()
			s := &Socket{cfg: Config{Raw: raw, Local: local}, six: local.Addr().Is6()}
			const tos = 0x2a
			if err := raw.Control(func(fd uintptr) {
				for _, o := range tt.options {
					if err := unix.SetsockoptInt(int(fd), o[0], o[1], 1); err != nil {
						t.Error(err)
					}
				}
				level, name := unix.IPPROTO_IP, unix.IP_TOS
				if s.six {
					level, name = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
				}
				if err := unix.SetsockoptInt(int(fd), level, name, tos); err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.WriteToUDPAddrPort([]byte("x"), local); err != nil {
				t.Fatal(err)
			}
			oob := make([]byte, 256)
			_, n, _, from, err := c.ReadMsgUDPAddrPort(make([]byte, 8), oob)
			if err != nil {
				t.Fatal(err)
			}
			got := s.appendControl(nil, Datagram{From: plainAddr(from), To: plainAddr(local), Meta: datagram.Meta{TOS: tos, TTL: 64}})
			if !slices.Equal(got, oob[:n]) {
				t.Errorf("%x, the kernel says %x", got, oob[:n])
			}
			if want := len(got); want > 0 {
				if n, flags := s.PutControl(make([]byte, want-1), Datagram{To: plainAddr(local), Meta: datagram.Meta{TOS: tos, TTL: 64}}); n != want-1 || flags != unix.MSG_CTRUNC {
					t.Errorf("%d bytes and flags %#x where %d do not fit", n, flags, want)
				}
			}
		})
	}
}

// TestControlAllocates has a datagram with control messages be sent by
// the kernel, and makes nothing for it.
func TestControlAllocates(t *testing.T) {
	oob := message(unix.IPPROTO_UDP, unix.UDP_SEGMENT, 100, 0)
	s, to, b := new(Socket), netip.MustParseAddrPort("127.0.0.1:1"), make([]byte, 100)
	s.left.Store(true)
	n := testing.AllocsPerRun(100, func() {
		k, sent := s.Send(b, to, ParseControl(oob))
		if sent {
			t.Fatal("it is sent")
		}
		k.Ended(len(b), nil)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

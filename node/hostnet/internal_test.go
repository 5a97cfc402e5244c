package hostnet

import (
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// message makes a netlink message of ours from 32-bit words.
func message(kind uint16, words ...uint32) syscall.NetlinkMessage {
	var data []byte
	for _, w := range words {
		data = binary.NativeEndian.AppendUint32(data, w)
	}
	return syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: data}
}

// attr is the first word of a route attribute: its length and type.
func attr(kind, length uint16) uint32 {
	b := binary.NativeEndian.AppendUint16(nil, length)
	return binary.NativeEndian.Uint32(binary.NativeEndian.AppendUint16(b, kind))
}

func TestConcerns(t *testing.T) {
	w := &Watcher{index: 7}
	route := func(index uint32) []uint32 {
		return []uint32{0, 0, 0, attr(unix.RTA_PRIORITY, 8), 7, attr(unix.RTA_OIF, 8), index}
	}
	for _, tt := range []struct {
		name string
		msg  syscall.NetlinkMessage
		want bool
		cut  int // from this length on it concerns
	}{
		{"link", message(unix.RTM_NEWLINK, 0, 7, 0, 0), true, 8},
		{"link gone", message(unix.RTM_DELLINK, 0, 7, 0, 0), true, 8},
		{"other link", message(unix.RTM_NEWLINK, 7, 6, 7, 7), false, 0},
		{"address", message(unix.RTM_NEWADDR, 0, 7), true, 8},
		{"address gone", message(unix.RTM_DELADDR, 0, 7), true, 8},
		{"other address", message(unix.RTM_DELADDR, 7, 8), false, 0},
		{"route", message(unix.RTM_NEWROUTE, route(7)...), true, 28},
		{"route gone", message(unix.RTM_DELROUTE, route(7)...), true, 28},
		{"other route", message(unix.RTM_NEWROUTE, route(8)...), false, 0},
		{"route without interface", message(unix.RTM_NEWROUTE, route(7)[:5]...), false, 0},
		{"neighbour", message(unix.RTM_NEWNEIGH, 7, 7, 7), false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := w.concerns(tt.msg); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
			for n := range tt.msg.Data {
				short := tt.msg
				short.Data = tt.msg.Data[:n]
				if got := w.concerns(short); got != (tt.want && n >= tt.cut) {
					t.Errorf("cut at %d: got %t", n, got)
				}
			}
		})
	}
}

func FuzzRouteIndex(f *testing.F) {
	f.Add(message(0, 0, 0, 0, attr(unix.RTA_OIF, 8), 7).Data)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		routeIndex(data) // must not panic
	})
}

func TestPrefixOf(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   *net.IPNet
		want string
	}{
		{"nil", nil, "invalid Prefix"},
		{"v4", &net.IPNet{IP: net.IP{10, 0, 0, 1}, Mask: net.CIDRMask(24, 32)}, "10.0.0.1/24"},
		{"v4 in 16 bytes", &net.IPNet{IP: net.IPv4(10, 0, 0, 1), Mask: net.CIDRMask(24, 32)}, "10.0.0.1/24"},
		{"v6", &net.IPNet{IP: net.ParseIP("fd00::1"), Mask: net.CIDRMask(64, 128)}, "fd00::1/64"},
		{"mapped v6", &net.IPNet{IP: net.ParseIP("::ffff:10.0.0.1"), Mask: net.CIDRMask(128, 128)}, "::ffff:10.0.0.1/128"},
		{"default", &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, "0.0.0.0/0"},
		{"no mask", &net.IPNet{IP: net.IP{10, 0, 0, 1}}, "invalid Prefix"},
		{"bad mask", &net.IPNet{IP: net.IP{10, 0, 0, 1}, Mask: net.IPMask{255, 0, 255, 0}}, "invalid Prefix"},
		{"no address", &net.IPNet{Mask: net.CIDRMask(24, 32)}, "invalid Prefix"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := prefixOf(tt.in).String(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestCongestionError(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
		is   bool
	}{
		{unix.ENOENT, "modprobe tcp_cubic", true},
		{unix.EINVAL, "tcp_available_congestion_control", true},
		{unix.EPERM, "tcp_allowed_congestion_control", true},
		{unix.ENOTSUP, "cubic", false},
	} {
		err := congestionError("cubic", tt.err)
		if !errors.Is(err, tt.err) || errors.Is(err, ErrCongestion) != tt.is || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v", tt.err, err)
		}
	}
}

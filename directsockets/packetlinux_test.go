package directsockets_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
)

// setControls has a socket give control messages.
func setControls(t *testing.T, c *directsockets.UDPConn, six bool) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		level, names := unix.IPPROTO_IP, []int{unix.IP_PKTINFO, unix.IP_RECVTOS, unix.IP_RECVTTL}
		if six {
			level, names = unix.IPPROTO_IPV6, []int{unix.IPV6_RECVPKTINFO, unix.IPV6_RECVTCLASS, unix.IPV6_RECVHOPLIMIT}
		}
		for _, name := range names {
			if err := unix.SetsockoptInt(int(fd), level, name, 1); err != nil {
				t.Fatal(err)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
}

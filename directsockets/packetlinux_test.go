package directsockets_test

import (
	"net"
	"os"
	"testing"
	"time"

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

// replace closes a socket behind its owner's back, as a hostile program would, and returns another
// one at its address.
func replace(t *testing.T, c *directsockets.UDPConn) net.PacketConn {
	t.Helper()
	at := c.LocalAddr().String()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.Dup3(int(null.Fd()), int(fd), unix.O_CLOEXEC) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	next, err := net.ListenPacket("udp4", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { next.Close() })
	return next
}

// TestUDPReplaced has a socket that was closed keep its flows: it gets nothing of what is for the
// next one at its address, and is not taken for that.
func TestUDPReplaced(t *testing.T) {
	const while = 300 * time.Millisecond
	cfg := directsockets.Config{Broker: startBroker(t)}
	a, b := listenUDP(t, cfg, "udp4", "127.0.0.1:0"), listenUDP(t, cfg, "udp4", "127.0.0.1:0")
	flowBetween(t, a, b)
	to := b.LocalAddr()
	next := replace(t, b)
	for end := time.Now().Add(while); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := a.WriteTo([]byte("for either"), to); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.WriteTo([]byte("for the next"), to); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 20)
	_ = next.SetReadDeadline(time.Now().Add(testWait))
	for text := ""; text != "for the next"; {
		n, _, err := next.ReadFrom(buf)
		if err != nil {
			t.Fatal("what is for the next one goes to the one before: ", err)
		}
		text = string(buf[:n])
	}

	a, b = listenUDP(t, cfg, "udp4", "127.0.0.1:0"), listenUDP(t, cfg, "udp4", "127.0.0.1:0")
	flowBetween(t, a, b)
	from := a.LocalAddr().String()
	next = replace(t, a)
	forge := func() (heard bool) {
		_, _ = a.WriteTo([]byte("forged"), b.LocalAddr())
		_ = b.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, _, err := b.ReadFrom(buf)
		return err == nil
	}
	for end := time.Now().Add(while); time.Now().Before(end); {
		forge()
	}
	for range 20 {
		if forge() {
			t.Fatal("the one before is taken for the next one at its address")
		}
	}
	if _, err := next.WriteTo([]byte("by the next"), b.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	_ = b.SetReadDeadline(time.Now().Add(testWait))
	if n, addr, err := b.ReadFrom(buf); err != nil || string(buf[:n]) != "by the next" || addr.String() != from {
		t.Errorf("%q from %v, %v", buf[:n], addr, err)
	}
}

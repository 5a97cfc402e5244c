package directsockets_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
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
		level, names := unix.IPPROTO_IP, []int{unix.IP_PKTINFO, unix.IP_RECVTOS}
		if six {
			level, names = unix.IPPROTO_IPV6, []int{unix.IPV6_RECVPKTINFO, unix.IPV6_RECVTCLASS}
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

// TestUDPOtherSource sends from another address than a flow's: the kernel carries that, and it does
// not count as the flow's, whose receiver would wait for it.
func TestUDPOtherSource(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t)}
	a, b := listenUDP(t, cfg, "udp4", "127.0.0.1:0"), listenUDP(t, cfg, "udp4", "127.0.0.1:0")
	flowBetween(t, a, b)
	before := a.Stats()
	var oob []byte
	oob = binary.NativeEndian.AppendUint64(oob, 16+12)
	oob = binary.NativeEndian.AppendUint32(oob, unix.IPPROTO_IP)
	oob = binary.NativeEndian.AppendUint32(oob, unix.IP_PKTINFO)
	oob = append(oob, 0, 0, 0, 0, 127, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0)
	if _, _, err := a.WriteMsgUDP([]byte("elsewhere"), oob, b.LocalAddr().(*net.UDPAddr)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, from, err := b.ReadFrom(buf)
	if err != nil || string(buf[:n]) != "elsewhere" || !from.(*net.UDPAddr).IP.Equal(net.IPv4(127, 0, 0, 2)) {
		t.Fatalf("%q from %v, %v", buf[:n], from, err)
	}
	if after := a.Stats(); after != before {
		t.Errorf("%+v, and then %+v", before, after)
	}
}

// replace closes a socket behind its owner's back, as a hostile program would, whose number another
// one has from then on, and returns a third one at its address.
func replace(t *testing.T, c *directsockets.UDPConn) net.PacketConn {
	t.Helper()
	at := c.LocalAddr().String()
	other, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.Dup3(other, int(fd), unix.O_CLOEXEC) }); err != nil {
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
		_, at, err := b.ReadFrom(buf)
		return err == nil && at.String() == from
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
	for {
		n, addr, err := b.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		if addr.String() != from { // what the one before sends by the kernel, without its address
			continue
		}
		if string(buf[:n]) != "by the next" {
			t.Errorf("%q", buf[:n])
		}
		break
	}
}

// TestUDPGranted has a sender close its socket between the moment at which the broker grants the
// flow and that at which the receiver's program next receives, whichever of these that is: it is
// not taken for the next one at its address.
func TestUDPGranted(t *testing.T) {
	t.Parallel()
	cfg := directsockets.Config{Broker: startBroker(t)}
	buf := make([]byte, 20)
	for twice := 6; twice < 20; twice++ {
		a, b := listenUDP(t, cfg, "udp4", "127.0.0.1:0"), listenUDP(t, cfg, "udp4", "127.0.0.1:0")
		for range twice / 2 {
			_ = b.SetReadDeadline(time.Now().Add(testWait))
			if _, err := a.WriteTo([]byte("mine"), b.LocalAddr()); err != nil {
				t.Fatal(err)
			}
			if _, _, err := b.ReadFrom(buf); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		from := a.LocalAddr().String()
		next := replace(t, a)
		forged := func() bool {
			if _, err := next.WriteTo([]byte("by the next"), b.LocalAddr()); err != nil {
				t.Fatal(err)
			}
			_ = b.SetReadDeadline(time.Now().Add(testWait))
			_, _ = a.WriteTo([]byte("forged"), b.LocalAddr())
			for n := 0; n != len("by the next"); {
				var err error
				if n, _, err = b.ReadFrom(buf); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * time.Millisecond)
			_, _ = a.WriteTo([]byte("forged"), b.LocalAddr())
			for heard := false; ; {
				_ = b.SetReadDeadline(time.Now().Add(time.Millisecond))
				_, at, err := b.ReadFrom(buf)
				if err != nil {
					return heard
				}
				heard = heard || at.String() == from
			}
		}
		for silent, end := 0, time.Now().Add(testWait); silent < 20; silent++ {
			if forged() {
				silent = 0
			}
			if time.Now().After(end) {
				t.Fatal("one that closed its socket while its flow was granted is taken for the next one at its address")
			}
		}
	}
}

// TestUDPGone has one end of a flow close, and the other one neither send nor receive any more: it
// gives up the memory of the flow.
func TestUDPGone(t *testing.T) {
	rings := func() int {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(maps, []byte("memfd:exnet-dg"))
	}
	for _, gone := range []string{"sender", "receiver"} {
		cfg := directsockets.Config{Broker: startBroker(t)}
		a, b := listenUDP(t, cfg, "udp4", "127.0.0.1:0"), listenUDP(t, cfg, "udp4", "127.0.0.1:0")
		before := rings()
		flowBetween(t, a, b)
		if n := rings(); n == before {
			t.Fatalf("%d rings: the test knows them by another name", n)
		}
		if gone == "sender" {
			a.Close()
		} else {
			b.Close()
		}
		for end := time.Now().Add(testWait); rings() != before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("without its %s, a flow keeps its memory", gone)
			}
		}
	}
}

// TestUDPHandedOn has a receiver hand its socket on while datagrams are in its ring: it still gets
// them, and what the kernel has.
func TestUDPHandedOn(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t)}
	a, b := listenUDP(t, cfg, "udp4", "127.0.0.1:0"), listenUDP(t, cfg, "udp4", "127.0.0.1:0")
	flowBetween(t, a, b)
	const count = 20
	before := a.Stats().SentDirect
	send := func(i int) {
		if _, err := a.WriteTo([]byte{byte(i)}, b.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range count {
		send(i)
	}
	if n := a.Stats().SentDirect - before; n != count {
		t.Fatalf("%d of %d are in memory", n, count)
	}
	file, err := b.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	send(count)
	_ = b.SetReadDeadline(time.Now().Add(testWait / 3))
	buf := make([]byte, 10)
	for i := range count + 1 {
		n, from, err := b.ReadFrom(buf)
		if err != nil {
			t.Fatalf("datagram %d is lost: %v", i, err)
		}
		if n != 1 || int(buf[0]) != i || from.String() != a.LocalAddr().String() {
			t.Fatalf("%v of %v in place of %d", buf[:n], from, i)
		}
	}
}

// segmented is the control message by which the kernel makes datagrams of 2 bytes of one send.
func segmented() []byte {
	oob := binary.NativeEndian.AppendUint64(nil, uint64(unix.CmsgLen(2)))
	oob = binary.NativeEndian.AppendUint32(oob, unix.IPPROTO_UDP)
	oob = binary.NativeEndian.AppendUint32(oob, unix.UDP_SEGMENT)
	return binary.NativeEndian.AppendUint64(oob, 2)
}

// TestUDPTrain sends trains by control messages between single datagrams, while these go through
// memory. The trains are the kernel's, and all come in their order.
func TestUDPTrain(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t), UpgradeSends: 1}
	a, b := listenUDP(t, cfg, "udp4", "127.0.0.1:0"), listenUDP(t, cfg, "udp4", "127.0.0.1:0")
	to := b.LocalAddr().(*net.UDPAddr).AddrPort()
	buf := make([]byte, 10)
	send := func(text string, oob []byte) {
		t.Helper()
		if _, _, err := a.WriteMsgUDPAddrPort([]byte(text), oob, to); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(want ...string) {
		t.Helper()
		_ = b.SetReadDeadline(time.Now().Add(testWait))
		for _, w := range want {
			if n, _, err := b.ReadFrom(buf); err != nil || string(buf[:n]) != w {
				t.Fatalf("%q, %v: want %q", buf[:n], err, w)
			}
		}
	}
	for range 3 {
		for end, direct := time.Now().Add(testWait), b.Stats().ReceivedDirect; b.Stats().ReceivedDirect == direct; {
			send("x", nil)
			receive("x")
			if time.Now().After(end) {
				t.Fatalf("not direct: %+v, %+v", a.Stats(), b.Stats())
			}
		}
		direct := a.Stats().SentDirect
		send("aabbc", segmented())
		send("d", nil)
		send("eeff", segmented())
		send("g", nil)
		receive("aa", "bb", "c", "d", "ee", "ff", "g")
		if n := a.Stats().SentDirect; n != direct {
			t.Errorf("%d went through memory behind a train", n-direct)
		}
	}
}

// TestUDPLeft has a socket whose descriptor the program uses send as package net's does: with
// nothing made for each datagram.
func TestUDPLeft(t *testing.T) {
	c := listenUDP(t, directsockets.Config{Broker: startBroker(t)}, "udp4", "127.0.0.1:0")
	to := listenUDP(t, directsockets.Config{}, "udp4", "127.0.0.1:0").LocalAddr().(*net.UDPAddr).AddrPort()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	oob := segmented()
	send := func(c interface {
		WriteMsgUDPAddrPort(b, oob []byte, addr netip.AddrPort) (n, oobn int, err error)
	}) float64 {
		b := make([]byte, 100)
		return testing.AllocsPerRun(100, func() {
			if _, _, err := c.WriteMsgUDPAddrPort(b, oob, to); err != nil {
				t.Fatal(err)
			}
		})
	}
	if err := raw.Read(func(uintptr) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if plain, left := send(c.UDPConn), send(c); left != plain {
		t.Errorf("%v allocations a datagram, %v in package net", left, plain)
	}
}

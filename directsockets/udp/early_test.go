package udp

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/datagram"
)

// TestLost has a receiver take what is not there for lost soon if its socket has dropped
// something, and late if not: it may be with ksoftirqd.
func TestLost(t *testing.T) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	in := &inbound{s: &Socket{cfg: Config{Raw: raw}}}
	f := &inflow{early: 1}
	missing := uint64(1)
	lost := func(after time.Duration) bool { return in.isLost(f, missing, f.early+int64(after), false) }
	const soon = datagram.SoftirqTime
	if lost(soon/2) || lost(soon) || lost(lateTime-1) || !lost(lateTime) {
		t.Error("without a drop: lost before its time, or not in time")
	}
	if err := c.SetReadBuffer(1); err != nil { // the kernel's least
		t.Fatal(err)
	}
	to, err := net.Dial("udp4", c.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	b := make([]byte, 1000)
	for end := time.Now().Add(time.Minute); ; {
		if _, err := to.Write(b); err != nil {
			t.Fatal(err)
		}
		if in.uncountedDrops() >= 3 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the kernel has dropped nothing")
		}
	}
	if lost(soon/2) || !lost(soon) {
		t.Error("with drops: lost before its time, or not in time")
	}
	n := in.uncountedDrops()
	missing = uint64(n) + 1
	if lost(soon) || lost(lateTime-1) || !lost(lateTime) {
		t.Error("with fewer drops than are missing: lost before its time, or not in time")
	}
	missing = 1
	in.gone += n // as many are counted as lost
	if lost(soon) {
		t.Error("a drop counts for two losses")
	}
}

// TestInterruptedLook has a signal interrupt a look at the kernel's socket, which is empty.
func TestInterruptedLook(t *testing.T) {
	s, _ := receiver(t)
	t.Cleanup(func() { poll = unix.Poll })
	looks := 0
	poll = func(p []unix.PollFd, timeout int) (int, error) {
		if looks++; looks == 1 {
			return -1, unix.EINTR
		}
		return unix.Poll(p, timeout)
	}
	if s.in.kernelReadable() {
		t.Error("an interrupted look finds a datagram")
	}
	if looks != 2 {
		t.Errorf("%d looks", looks)
	}
}

package udp

import (
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/datagram"
)

// Records may wait for datagrams that their sender has sent by the kernel before (SPEC 10.3).
const (
	// earlyPause is how long a receiver waits between looks for such a datagram.
	earlyPause = 50 * time.Microsecond
	// lateTime is how long it waits for one that the socket has not dropped: on a busy machine the
	// kernel may leave it to ksoftirqd.
	lateTime = 20 * time.Millisecond
)

// peek reports whether the kernel's socket has something, and from whose flow's sender: nil, if
// there is no such flow.
func (in *inbound) peek() (f *inflow, some bool) {
	_ = in.s.cfg.Raw.Control(func(fd uintptr) {
		var one [1]byte
		events := pollIn(int(fd))
		if some = events&unix.POLLIN != 0; !some || events&unix.POLLERR != 0 {
			return // a receive here would take the error, which is the program's
		}
		_, sa, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		some = err == nil
		f = in.bySrc[addrOf(sa)]
	})
	return f, some
}

// early returns a flow whose first record waits for what is to come by the kernel.
func (in *inbound) early() *inflow {
	for _, f := range in.active {
		if f.early != 0 && f.rx.Ready() && !f.rx.Due() {
			return f
		}
	}
	return nil
}

// lost reports whether what the first record of f waits for will not come: the socket has nothing
// (readable false, after now), or as many have come from it since as it has room for, and the
// kernel has dropped as many as are missing, or has had much time to give them to the socket: with
// fewer drops ksoftirqd may have one of them.
func (in *inbound) lost(f *inflow, missing uint64, now int64, readable bool) bool {
	since := time.Duration(now - f.early)
	if since < datagram.SoftirqTime || readable && in.byKernel-f.earlyAt <= in.s.look().queue {
		return false
	}
	n, ok := in.drops()
	return !ok || uint64(n) >= missing || since >= lateTime
}

// drops returns how many datagrams the socket has dropped that no flow has counted as lost.
func (in *inbound) drops() (n uint32, ok bool) {
	_ = in.s.cfg.Raw.Control(func(fd uintptr) { n, ok = drops(int(fd)) })
	return n - in.gone, ok
}

// giveUp takes what the first record of f waits for for lost.
func (in *inbound) giveUp(f *inflow) {
	missing := f.rx.GiveUp()
	n, _ := in.drops()
	if len(in.flows) > 1 { // else that flow has lost them all, or nobody's has
		n = uint32(min(missing, uint64(n)))
	}
	in.gone += n
}

// readable reports whether something is in the queue of the kernel's socket.
func (in *inbound) readable() bool {
	some := true
	_ = in.s.cfg.Raw.Control(func(fd uintptr) { some = pollIn(int(fd))&unix.POLLIN != 0 })
	return some
}

// poll is the kernel's, but in a test.
var poll = unix.Poll

// pollIn is what poll says of a descriptor; POLLIN, if it does not say. Even one that does not wait
// is interrupted by a signal, which says nothing of the descriptor.
func pollIn(fd int) int16 {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	_, err := poll(p, 0)
	for err == unix.EINTR {
		_, err = poll(p, 0)
	}
	if err != nil {
		return unix.POLLIN
	}
	return p[0].Revents
}

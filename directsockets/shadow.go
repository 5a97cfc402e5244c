package directsockets

import "golang.org/x/sys/unix"

// A reader that sleeps on the segment does not see its shadow. If that is reset, by a filter or by
// SOCK_DESTROY, or has timed out, the reader is to hear of it, as it would on TCP. So the watcher
// has the shadows of all whose reader has slept.

// watchShadow has the watcher watch the shadow. The caller holds rx. If that fails, for lack of
// descriptors, the reader hears with the next write.
func (c *Conn) watchShadow() {
	c.rx.shadowWatched = true
	if c.tcp == nil {
		return
	}
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		if watching.ctl(unix.EPOLL_CTL_ADD, int(fd), unix.EPOLLONESHOT, watchedFD{conn: c, shadow: true}) == nil {
			c.rx.shadowFD.Store(int32(fd) + 1)
		}
	})
}

// unwatchShadow ends watchShadow. Close calls it before it closes the shadow.
func (c *Conn) unwatchShadow() {
	if fd := c.rx.shadowFD.Swap(0); fd > 0 {
		watching.remove(c, int(fd)-1)
	}
}

// shadowTells is called by the watcher when something has come of the shadow. If it has ended with
// an error, both directions go back to it, and its calls say which. An orderly end is no error, and
// the peer tells of it through the segment.
func (c *Conn) shadowTells(events uint32) {
	const failed = unix.EPOLLERR | unix.EPOLLHUP
	if events&failed == failed {
		c.setReason(ReasonNetwork)
		c.askRX(wantFallBack)
		c.askTX(wantFallBack, true)
	}
}

package directsockets

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watch is one connection's part in the watcher.
type watch struct {
	armed atomic.Bool // the doorbell is armed, and the watcher tells of it
	added int         // the descriptor that the watcher has, plus 1; of the holder of rx
}

// watcher sleeps on the doorbells of all connections of the process whose reader sleeps on the
// shadow, or not at all, while something may come through the segment: those that wait for the peer
// to attach or to promote, and those that have fallen back. It sleeps on the shadows of those whose
// reader sleeps on the segment, too (shadow.go). It is one goroutine for all of them, and it is
// there only while there are any.
type watcher struct {
	mu    sync.Mutex
	conns map[int32]watchedFD // guarded by mu; by descriptor
	poll  int                 // guarded by mu; an epoll instance
	file  *os.File            // guarded by mu; owns poll; nil: nobody runs
	raw   syscall.RawConn
}

// watchedFD is a descriptor that the watcher has.
type watchedFD struct {
	conn   *Conn
	shadow bool // else it is a doorbell
}

var watching = watcher{conns: make(map[int32]watchedFD)}

// watcherLinger is how long the watcher stays when there is nothing to watch.
const watcherLinger = 50 * time.Millisecond

// unwatchedPause is how often a reader that cannot be watched, for lack of
// descriptors, looks at the segment.
const unwatchedPause = 5 * time.Millisecond

// watchRX arms for the segment and has the watcher wait. False: there is something already. The
// caller holds rx.
func (c *Conn) watchRX() bool {
	w := &c.rx.watch
	w.armed.Store(true)
	if c.rx.end.ArmRX() {
		w.armed.Store(false)
		return false
	}
	added, err := watching.add(c, w.added)
	if err != nil {
		w.armed.Store(false)
		time.AfterFunc(unwatchedPause, func() { c.wakeHalf(&c.rx.half) })
		return true
	}
	w.added = added
	return true
}

// unwatchRX ends watchRX. The caller holds rx.
func (c *Conn) unwatchRX() {
	w := &c.rx.watch
	w.armed.Store(false)
	if w.added > 0 {
		watching.remove(c, w.added-1)
		w.added = 0
	}
}

// onBell is called by the watcher when a doorbell has rung.
func (c *Conn) onBell() {
	if e := c.end.Load(); e != nil {
		e.Awake()
		if c.tx.bell.sleeping.Load() {
			c.wakeHalf(&c.tx.half)
		}
	}
	// Not before Awake: a reader that looks in between would arm, Awake would take that back,
	// and the reader would believe that it is armed.
	c.rx.watch.armed.Store(false)
	c.askTX(wantInstall, false)
	c.askRX(wantLook)
}

// add watches the doorbell of c once. added is what add returned before, or 0.
func (w *watcher) add(c *Conn, added int) (int, error) {
	fd := added - 1
	op := unix.EPOLL_CTL_MOD
	if added == 0 {
		op = unix.EPOLL_CTL_ADD
		raw, err := c.rx.end.Bell().SyscallConn()
		if err != nil {
			return 0, err
		}
		if err := raw.Control(func(d uintptr) { fd = int(d) }); err != nil {
			return 0, err
		}
	}
	return fd + 1, w.ctl(op, fd, unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLONESHOT, watchedFD{conn: c})
}

// ctl adds or changes what a descriptor is watched for.
func (w *watcher) ctl(op, fd int, events uint32, is watchedFD) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		if err := w.startLocked(); err != nil {
			return err
		}
	}
	if err := unix.EpollCtl(w.poll, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return err
	}
	w.conns[int32(fd)] = is
	return nil
}

func (w *watcher) remove(c *Conn, fd int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns[int32(fd)].conn != c { // the descriptor has been closed, and is another's now
		return
	}
	delete(w.conns, int32(fd))
	if w.file == nil {
		return
	}
	_ = unix.EpollCtl(w.poll, unix.EPOLL_CTL_DEL, fd, nil) // or it is closed already
	if len(w.conns) == 0 {
		_ = w.file.SetReadDeadline(time.Now().Add(watcherLinger))
	}
}

func (w *watcher) startLocked() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return err
	}
	file := os.NewFile(uintptr(fd), "doorbells")
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return err
	}
	w.poll, w.file, w.raw = fd, file, raw
	go w.watchLoop(fd, file, raw)
	return nil
}

func (w *watcher) watchLoop(poll int, file *os.File, raw syscall.RawConn) {
	events := make([]unix.EpollEvent, 64)
	var n int
	wait := func(uintptr) bool {
		n, _ = unix.EpollWait(poll, events, 0)
		return n > 0
	}
	for {
		n = 0
		if err := raw.Read(wait); err != nil && w.stopIfIdle(file) {
			return
		}
		for _, ev := range events[:max(n, 0)] {
			w.mu.Lock()
			d := w.conns[ev.Fd]
			w.mu.Unlock()
			switch {
			case d.conn == nil:
			case d.shadow:
				d.conn.shadowTells(ev.Events)
			default:
				d.conn.onBell()
			}
		}
	}
}

// stopIfIdle ends run if there is nothing to watch.
func (w *watcher) stopIfIdle(file *os.File) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = file.SetReadDeadline(time.Time{})
	if len(w.conns) > 0 {
		return false
	}
	w.file = nil
	_ = file.Close() // an epoll instance has nothing to lose
	return true
}

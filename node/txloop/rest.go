package txloop

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// rest is the long wait: the goroutine waits in the Go runtime's poller, not its thread
// in poll(2). The thread that the runtime has in epoll_wait(2) is woken and continues
// with the goroutine. Back from poll(2) it would wake the runtime's monitor first,
// which would take it for a thread that has run for long and stop it, and since it is
// locked to its goroutine, it took two more threads to continue: eight wake-ups for the
// first packet after a rest, and dozens of looks by the monitor.
//
//	descriptors ──▶ epoll instance ──▶ the runtime's poller
//	               (only at rest)
//
// While the loop works, its descriptors are in no poller: each packet would wake a
// thread of the runtime for nothing.
type rest struct {
	fd     int
	file   *os.File // owns fd
	raw    syscall.RawConn
	added  []int32 // descriptors among fd's
	events []unix.EpollEvent
}

func (r *rest) createPoller() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("txloop: epoll: %w", err)
	}
	err = unix.SetNonblock(fd, true) // so that NewFile gives it to the poller
	r.fd, r.file = fd, os.NewFile(uintptr(fd), "epoll")
	if err == nil {
		r.raw, err = r.file.SyscallConn()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("txloop: epoll: %w", err), r.file.Close())
	}
	return nil
}

// waitReadable waits until one of fds is readable. If that was so before, it sets its Revents
// and reports true; after a wait it does not ask which one it is. A negative descriptor counts
// for nothing.
func (r *rest) waitReadable(fds []unix.PollFd) (known bool, err error) {
	for i := range fds {
		fds[i].Revents = 0
		if fds[i].Fd < 0 {
			continue
		}
		e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(i)}
		if err := unix.EpollCtl(r.fd, unix.EPOLL_CTL_ADD, int(fds[i].Fd), &e); err != nil {
			return false, fmt.Errorf("txloop: epoll_ctl: %w", err)
		}
		r.added = append(r.added, fds[i].Fd)
	}
	if n := len(fds) - len(r.events); n > 0 {
		r.events = append(r.events, make([]unix.EpollEvent, n)...)
	}
	n, errno, asked := 0, syscall.Errno(0), false
	err = r.raw.Read(func(uintptr) bool {
		if asked {
			return true
		}
		asked = true
		n, errno = rawEpoll(r.fd, r.events)
		return n > 0 || errno != 0
	})
	if err == nil && errno != 0 {
		err = errno
	}
	if err != nil {
		return false, fmt.Errorf("txloop: epoll_wait: %w", err)
	}
	for _, e := range r.events[:n] {
		fds[e.Fd].Revents = unix.POLLIN
	}
	return n > 0, nil
}

// removeAll takes the descriptors out again. It comes before one of them is closed.
func (r *rest) removeAll() {
	for _, fd := range r.added {
		_ = unix.EpollCtl(r.fd, unix.EPOLL_CTL_DEL, int(fd), nil) // it was added
	}
	r.added = r.added[:0]
}

func (r *rest) close() error { return r.file.Close() }

package exn

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// event carries the interrupts of ModeInterrupt to Run's goroutine through an eventfd,
// which one thread writes and another sleeps on. UIO and VFIO signal a device's
// interrupts to a driver in user space in the same way.
type event struct{ file *os.File }

func newEvent() (event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return event{}, fmt.Errorf("exn: eventfd: %w", err)
	}
	return event{os.NewFile(uintptr(fd), "eventfd")}, nil // blocking, so not in Go's poller
}

// Signal implements napi.Event. It fails only when the file is closed.
func (e event) Signal() {
	one := [8]byte{1}
	_, _ = e.file.Write(one[:])
}

// Wait implements napi.Event.
func (e event) Wait() {
	var count [8]byte
	_, _ = e.file.Read(count[:])
}

func (e event) close() error { return e.file.Close() }

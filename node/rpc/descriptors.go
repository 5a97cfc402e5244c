package rpc

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Descriptors are those of a message that were not taken yet.
type Descriptors []int

// Take moves the i-th descriptor to the caller, who closes it.
func (d Descriptors) Take(i int) int {
	fd := d[i]
	d[i] = -1
	return fd
}

// Drop closes the i-th descriptor.
func (d Descriptors) Drop(i int) { _ = unix.Close(d.Take(i)) }

// Close closes those that nobody took.
func (d Descriptors) Close() {
	for i, fd := range d {
		if fd >= 0 {
			_ = unix.Close(fd)
			d[i] = -1
		}
	}
}

// Dup makes another descriptor of the same file, which no child inherits.
func Dup(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }

// DupAll makes Descriptors of the same files as fds, which it borrows. The caller closes them.
// An error leaves none open.
func DupAll(fds ...int) (Descriptors, error) {
	own := make(Descriptors, 0, len(fds))
	for _, fd := range fds {
		d, err := Dup(fd)
		if err != nil {
			own.Close()
			return nil, err
		}
		own = append(own, d)
	}
	return own, nil
}

// Seals that memory of a client has to have, so that nobody resizes it.
const Seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// SealedSize returns the size of a memfd that nobody can resize.
func SealedSize(fd int) (int64, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&Seals != Seals {
		return 0, fmt.Errorf("%w: not a sealed memfd", ErrRule)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return st.Size, nil
}

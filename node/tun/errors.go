package tun

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

var (
	// ErrAgain says that no packet waits, or that the device's send buffer is
	// full. Wait for the descriptor to become ready and try again.
	ErrAgain = errors.New("tun: try again")

	// ErrDown says that the interface is down. Packets written to it are lost
	// until it is up again.
	ErrDown = errors.New("tun: interface is down")

	// ErrMalformed says that the kernel refused a packet: a header that contradicts
	// it, or neither IPv4 nor IPv6. Count it and continue.
	ErrMalformed = errors.New("tun: malformed packet")

	// ErrGone says that the interface was removed from outside (ip link del).
	// Close the device.
	ErrGone = errors.New("tun: interface was removed")

	// ErrClosed says that the device was closed.
	ErrClosed = errors.New("tun: device is closed")

	// ErrConfig says that a value of Config is out of range.
	ErrConfig = errors.New("bad configuration")

	// ErrNameTaken says that an interface of that name exists.
	ErrNameTaken = errors.New("there is one of that name already")

	// ErrUnavailable says that this process cannot have a TUN device. The
	// error's text says why and what to do; netstack's own TCP/IP over exn needs
	// no TUN device.
	ErrUnavailable = errors.New("no TUN device")
)

// readError maps the errors of read(2) on a TUN device (drivers/net/tun.c).
func readError(errno syscall.Errno) error {
	switch errno {
	case unix.EAGAIN:
		return ErrAgain
	case unix.EBADFD, unix.EIO: // detached; being removed
		return ErrGone
	}
	return errno
}

// writeError maps the errors of writev(2). After others (ENOMEM, ENOBUFS) the packet is lost:
// count it and continue.
func writeError(errno syscall.Errno) error {
	switch errno {
	case unix.EAGAIN:
		return ErrAgain
	case unix.EIO:
		return ErrDown
	case unix.EINVAL, unix.EMSGSIZE:
		return ErrMalformed
	case unix.EBADFD:
		return ErrGone
	}
	return errno
}

// openError explains why the clone device cannot be opened.
func openError(err error) error {
	hint := ""
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		hint = ": load the driver (modprobe tun) or pass the device into the container"
	case errors.Is(err, fs.ErrPermission):
		// EACCES is the file's mode, EPERM a device cgroup's.
		hint = ": run as root or allow the device to all (chmod 666 " + clonePath + ")"
	}
	return fmt.Errorf("tun: %w: %w%s", ErrUnavailable, err, hint)
}

// attachError explains why the interface cannot be made.
func attachError(name string, err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("tun: interface %s: %w: remove it (ip link del %[1]s) or choose another name", name, ErrNameTaken)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("tun: %w: interface %s: %w: run as root (CAP_NET_ADMIN)", ErrUnavailable, name, err)
	}
	return fmt.Errorf("tun: interface %s: %w", name, err)
}

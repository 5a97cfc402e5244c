package hostnet

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrCongestion says that a TCP congestion control cannot be used. The error's text says what
// to do.
var ErrCongestion = errors.New("no such congestion control")

// ControlCongestion returns a function for net.Dialer.Control and net.ListenConfig.Control that
// gives TCP sockets the named congestion control; accepted connections have their listener's.
// Unlike the sysctl net.ipv4.tcp_congestion_control, root can give a socket any algorithm that
// the kernel has, also in a namespace of its own.
func ControlCongestion(name string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var setErr error
		if err := c.Control(func(fd uintptr) {
			setErr = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
		}); err != nil {
			return err
		}
		if setErr != nil {
			return fmt.Errorf("hostnet: %w", congestionError(name, setErr))
		}
		return nil
	}
}

// CongestionOf returns the congestion control of a TCP connection.
func CongestionOf(conn syscall.Conn) (name string, err error) {
	c, err := conn.SyscallConn()
	if err != nil {
		return "", err
	}
	if controlErr := c.Control(func(fd uintptr) {
		name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	}); controlErr != nil {
		return "", controlErr
	}
	if err != nil {
		return "", fmt.Errorf("hostnet: congestion control of a connection: %w", err)
	}
	return name, nil
}

// congestionError explains why a congestion control was refused.
func congestionError(name string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w: %s: %w: sysctl net.ipv4.tcp_available_congestion_control lists them (or modprobe tcp_%[2]s)", ErrCongestion, name, err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %s: %w: run as root, or add it to the sysctl net.ipv4.tcp_allowed_congestion_control", ErrCongestion, name, err)
	}
	return fmt.Errorf("congestion control %s: %w", name, err)
}

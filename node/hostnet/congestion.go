package hostnet

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

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
			setErr = setCongestion(fd, name)
		}); err != nil {
			return err
		}
		if setErr != nil {
			return fmt.Errorf("hostnet: %w", congestionError(name, setErr))
		}
		return nil
	}
}

// unpaced is what connections over a short way have in place of bbr.
const unpaced = "cubic"

// pacesItself reports whether a congestion control sends at a pace of its own, which takes a timer
// for each 64 KiB.
func pacesItself(name string) bool { return strings.HasPrefix(name, "bbr") }

// ControlNear is for net.Dialer.Control and net.ListenConfig.Control, and SettleNear follows when a
// connection is there: over a short way, it has cubic where the system's congestion control is bbr,
// and this process may use cubic. Bbr needs twice the CPU time for a byte or more, which is what
// limits a transfer over a fast network. It has to be chosen before: the kernel goes on to pace a
// connection that has begun with bbr, whatever it has later.
func ControlNear(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		if name, err := congestionOf(fd); err == nil && pacesItself(name) {
			_ = setCongestion(fd, unpaced) // or else it has the system's, as ever
		}
	})
}

// SettleNear gives a connection the system's congestion control if ControlNear has chosen another
// one and the way is long: if its shortest round trip so far is near or more.
func SettleNear(conn syscall.Conn, near time.Duration) error {
	c, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var settleErr error
	if err := c.Control(func(fd uintptr) { settleErr = settleNear(fd, near) }); err != nil {
		return err
	}
	return settleErr
}

func settleNear(fd uintptr, near time.Duration) error {
	name, err := congestionOf(fd)
	if err != nil || name != unpaced {
		return err
	}
	info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || time.Duration(info.Min_rtt)*time.Microsecond < near {
		return err
	}
	fresh, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fresh)
	if name, err = congestionOf(uintptr(fresh)); err != nil || !pacesItself(name) {
		return err
	}
	return setCongestion(fd, name)
}

func congestionOf(fd uintptr) (string, error) {
	return unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
}

func setCongestion(fd uintptr, name string) error {
	return unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}

// CongestionOf returns the congestion control of a TCP connection.
func CongestionOf(conn syscall.Conn) (name string, err error) {
	c, err := conn.SyscallConn()
	if err != nil {
		return "", err
	}
	if controlErr := c.Control(func(fd uintptr) {
		name, err = congestionOf(fd)
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

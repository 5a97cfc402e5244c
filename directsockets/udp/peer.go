package udp

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
)

// cookieOff is where the answer has SO_COOKIE: in the id of struct inet_diag_msg.
const cookieOff = unix.SizeofNlMsghdr + 4 + 40

// mayPass reports whether an error of peerOf is one that passes.
func mayPass(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOBUFS)
}

// whyNot is why there is no flow after an error of peerOf: WhyNoDiag, if this process may not
// ask the kernel.
func whyNot(err error) connstats.Why {
	switch {
	case err == nil:
		return connstats.WhyNothing
	case mayPass(err):
		return connstats.WhyNoMemory
	case errors.Is(err, unix.ENOENT):
		return connstats.WhyNoListener
	}
	return connstats.WhyNoDiag
}

// hasMoved reports whether the kernel would give a datagram to another socket than the one with
// the number, or to none. Where it cannot be asked now, nobody has moved as far as this process
// knows.
func hasMoved(from, to netip.AddrPort, cookie uint64) bool {
	now, err := peerOf(from, to)
	return !mayPass(err) && (err != nil || now != cookie)
}

// peerOf asks the kernel (sock_diag(7)) for the number (SO_COOKIE) of the socket to which it
// would give a datagram; ENOENT: to none. A socket that was kept would save half of the 10 µs
// that this takes, ten times a second for each flow, and be in the way of a program that counts
// its descriptors, or closes all.
func peerOf(from, to netip.AddrPort) (cookie uint64, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	b := wire.DiagRequest(unix.IPPROTO_UDP, from, to, 0, ^uint32(0))
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	var buf [4096]byte
	n, _, err := unix.Recvfrom(fd, buf[:], unix.MSG_DONTWAIT) // the kernel answers while it is asked
	switch {
	case err != nil:
		return 0, err
	case n < cookieOff+8 || binary.NativeEndian.Uint16(buf[4:]) != unix.SOCK_DIAG_BY_FAMILY:
		return 0, unix.ENOENT
	}
	return binary.NativeEndian.Uint64(buf[cookieOff:]), nil
}

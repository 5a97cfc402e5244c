package rules

import (
	"net/netip"
	"syscall"

	_ "exnet/internal/linux"

	"golang.org/x/sys/unix"
)

// ecnBits are those of the TOS or traffic class byte below the DSCP.
const ecnBits = 2

// Classify gives a TCP connection of this process its class, the DSCP of its packets, unless
// the program has given it one already.
func (p *Policy) Classify(conn syscall.RawConn, role Role, server netip.AddrPort) {
	class := p.ClassOf(role, server)
	if class == 0 || DSCP(conn, server.Addr()) != 0 {
		return
	}
	_ = conn.Control(func(fd uintptr) { // or it is closed already
		level, name := dscpOption(server.Addr())
		_ = unix.SetsockoptInt(int(fd), level, name, int(class)<<ecnBits) // or it is no TCP that has one
	})
}

// DSCP returns the class that the packets of a TCP connection have, one of whose ends has
// this address.
func DSCP(conn syscall.RawConn, end netip.Addr) (c Class) {
	_ = conn.Control(func(fd uintptr) { // or it is closed already
		level, name := dscpOption(end)
		if v, err := unix.GetsockoptInt(int(fd), level, name); err == nil {
			c = Class(v >> ecnBits & int(MaxClass))
		}
	})
	return c
}

// dscpOption is the option with the DSCP of packets between such addresses.
func dscpOption(a netip.Addr) (level, name int) {
	if a.Unmap().Is4() {
		return unix.IPPROTO_IP, unix.IP_TOS
	}
	return unix.IPPROTO_IPV6, unix.IPV6_TCLASS
}

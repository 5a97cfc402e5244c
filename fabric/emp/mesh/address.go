package mesh

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"exnet/fabric/emp"
)

// CheckListen returns a listening address with a host, which may be empty, and a port.
func CheckListen(s string) (string, error) { return withPort(s, true) }

// CheckJoin returns the address of a member with a host and a port. After "dns:" it is a name of
// all members, which is asked for again as they change.
func CheckJoin(s string) (string, error) {
	name, all := strings.CutPrefix(s, allOf)
	at, err := withPort(name, false)
	switch {
	case err != nil || !all:
		return at, err
	case isAddr(at):
		return "", fmt.Errorf("mesh: %w: address %q: leave out %s before an address", emp.ErrConfig, s, allOf)
	}
	return allOf + at, nil
}

// withPort adds the usual port to an address without one, and says what is wrong with others.
func withPort(s string, anyHost bool) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil { // no port
		host, port = s, strconv.Itoa(DefaultPort)
		if a, err := netip.ParseAddr(s); err == nil {
			host = a.String()
		} else if h, _, err := net.SplitHostPort(s + ":" + port); err == nil {
			host = h // [fd00::1]
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	_, notIP := netip.ParseAddr(host)
	colons := strings.Contains(host, ":") && notIP != nil // a:b:c
	if err != nil || n == 0 || colons || host == "" && !anyHost {
		return "", fmt.Errorf("mesh: %w: address %q: use HOST or HOST:PORT, such as 192.0.2.7:%d", emp.ErrConfig, s, DefaultPort)
	}
	return net.JoinHostPort(host, port), nil
}

// addrPort returns the address of a TCP connection's end, without a zone for IPv4.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := t.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

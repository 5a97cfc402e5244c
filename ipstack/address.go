package ipstack

import (
	"fmt"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// addrOf converts an address of netstack.
func addrOf(a tcpip.Address) (netip.Addr, bool) { return netip.AddrFromSlice(a.AsSlice()) }

// tcpipAddr converts an address for netstack, which keeps zones elsewhere.
func tcpipAddr(a netip.Addr) tcpip.Address {
	if !a.IsValid() {
		return tcpip.Address{}
	}
	return tcpip.AddrFromSlice(a.AsSlice())
}

// protocolOf returns netstack's number for the family of a.
func protocolOf(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return header.IPv4ProtocolNumber
	}
	return header.IPv6ProtocolNumber
}

// subnetOf converts a prefix for netstack.
func subnetOf(p netip.Prefix) tcpip.Subnet {
	p = p.Masked()
	return tcpip.AddressWithPrefix{Address: tcpipAddr(p.Addr()), PrefixLen: p.Bits()}.Subnet()
}

// AddAddress adds an address to the interface, with the route to its subnet, and
// announces it on the link. With a Host, the address is one of the kernel's.
// Adding an address a second time does nothing.
func (s *Stack) AddAddress(p netip.Prefix) error {
	p, err := checkPrefix("address", p)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	terr := s.net.AddProtocolAddress(NIC, tcpip.ProtocolAddress{
		Protocol:          protocolOf(p.Addr()),
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpipAddr(p.Addr()), PrefixLen: p.Bits()},
	}, stack.AddressProperties{})
	if _, dup := terr.(*tcpip.ErrDuplicateAddress); dup {
		return nil
	}
	if terr != nil {
		return netstackError("add address "+p.String(), terr)
	}
	s.addRouteLocked(p.Masked(), netip.Addr{})
	s.hops.forgetAll()
	s.announceAddr(p.Addr())
	return nil
}

// RemoveAddress removes an address, and the route to its subnet if no other
// address is in it.
func (s *Stack) RemoveAddress(p netip.Prefix) error {
	p, err := checkPrefix("address", p)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if terr := s.net.RemoveAddress(NIC, tcpipAddr(p.Addr())); terr != nil {
		return netstackError("remove address "+p.String(), terr)
	}
	subnet := subnetOf(p)
	shared := false
	for _, a := range s.net.AllAddresses()[NIC] {
		shared = shared || a.AddressWithPrefix.Subnet() == subnet
	}
	if !shared {
		s.removeRouteLocked(p.Masked(), netip.Addr{})
	}
	s.hops.forgetAll()
	return nil
}

// AddRoute adds the route to a prefix via gateway, or on the link if gateway is the
// zero Addr. Adding a route a second time does nothing.
func (s *Stack) AddRoute(p netip.Prefix, gateway netip.Addr) error {
	p, gateway, err := checkRoute(p, gateway)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addRouteLocked(p, gateway)
	s.hops.forgetAll()
	return nil
}

// RemoveRoute removes a route that AddRoute added. It is not an error if there
// is none.
func (s *Stack) RemoveRoute(p netip.Prefix, gateway netip.Addr) error {
	p, gateway, err := checkRoute(p, gateway)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeRouteLocked(p, gateway)
	s.hops.forgetAll()
	return nil
}

// +checklocks:s.mu
func (s *Stack) addRouteLocked(p netip.Prefix, gateway netip.Addr) {
	dst, gw := subnetOf(p), tcpipAddr(gateway)
	for _, r := range s.net.GetRouteTable() {
		if r.Destination == dst && r.Gateway == gw {
			return
		}
	}
	s.net.AddRoute(tcpip.Route{Destination: dst, Gateway: gw, NIC: NIC})
}

// +checklocks:s.mu
func (s *Stack) removeRouteLocked(p netip.Prefix, gateway netip.Addr) {
	dst, gw := subnetOf(p), tcpipAddr(gateway)
	s.net.RemoveRoutes(func(r tcpip.Route) bool { return r.Destination == dst && r.Gateway == gw })
}

// checkPrefix returns p without its zone, and an IPv4-mapped prefix as IPv4.
func checkPrefix(what string, p netip.Prefix) (netip.Prefix, error) {
	if !p.IsValid() {
		return p, fmt.Errorf("ipstack: %w: %s %v", ErrConfig, what, p)
	}
	addr, bits := p.Addr().WithZone(""), p.Bits()
	if addr.Is4In6() {
		if bits < mappedBits {
			return p, fmt.Errorf("ipstack: %w: %s %v", ErrConfig, what, p)
		}
		addr, bits = addr.Unmap(), bits-mappedBits
	}
	return netip.PrefixFrom(addr, bits), nil
}

// mappedBits is the length of the prefix of IPv4-mapped IPv6 addresses.
const mappedBits = 96

func checkRoute(p netip.Prefix, gateway netip.Addr) (netip.Prefix, netip.Addr, error) {
	p, err := checkPrefix("route", p)
	if err != nil {
		return p, gateway, err
	}
	gateway = gateway.WithZone("").Unmap()
	if gateway.IsValid() && gateway.Is4() != p.Addr().Is4() {
		return p, gateway, fmt.Errorf("ipstack: %w: route %v via %v", ErrConfig, p, gateway)
	}
	return p.Masked(), gateway, nil
}

// netstackError converts an error of netstack.
func netstackError(op string, err tcpip.Error) error {
	return fmt.Errorf("ipstack: %s: %s", op, err)
}

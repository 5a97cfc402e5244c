package ipstack

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// DialContext connects to an address of the form "host:port", with an IP
// address as host, over netstack's TCP or UDP. network is "tcp", "tcp4",
// "tcp6", "udp", "udp4" or "udp6". It is for netstack mode and fits
// http.Transport.
func (s *Stack) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	transport, addr, proto, err := s.parseEndpoint(network, address)
	if err != nil {
		return nil, err
	}
	if !addr.Addr().IsValid() {
		return nil, fmt.Errorf("ipstack: dial %s %s: %w: no host", network, address, ErrConfig)
	}
	full := fullAddr(addr)
	if transport == "udp" {
		conn, err := gonet.DialUDP(s.net, nil, &full, proto)
		if err != nil {
			return nil, err // not a nil *UDPConn in a non-nil net.Conn
		}
		return conn, nil
	}
	conn, err := gonet.DialContextTCP(ctx, s.net, full, proto)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// Listen listens on an address of the form "host:port" over netstack's TCP. An
// empty host stands for all addresses, of both families if network is "tcp".
func (s *Stack) Listen(network, address string) (net.Listener, error) {
	transport, addr, proto, err := s.parseEndpoint(network, address)
	if err != nil {
		return nil, err
	}
	if transport != "tcp" {
		return nil, fmt.Errorf("ipstack: listen: %w", net.UnknownNetworkError(network))
	}
	l, err := gonet.ListenTCP(s.net, fullAddr(addr), proto)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// ListenPacket is Listen for netstack's UDP.
func (s *Stack) ListenPacket(network, address string) (net.PacketConn, error) {
	transport, addr, proto, err := s.parseEndpoint(network, address)
	if err != nil {
		return nil, err
	}
	if transport != "udp" {
		return nil, fmt.Errorf("ipstack: listen: %w", net.UnknownNetworkError(network))
	}
	full := fullAddr(addr)
	conn, err := gonet.DialUDP(s.net, &full, nil, proto)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// parseEndpoint takes network and address apart. The address is invalid if the
// host is empty; proto then says which family was asked for.
func (s *Stack) parseEndpoint(network, address string) (transport string, addr netip.AddrPort, proto tcpip.NetworkProtocolNumber, err error) {
	fail := func(err error) (string, netip.AddrPort, tcpip.NetworkProtocolNumber, error) {
		return "", netip.AddrPort{}, 0, fmt.Errorf("ipstack: %s %s: %w", network, address, err)
	}
	// Bound to all addresses, an IPv6 endpoint of netstack takes IPv4 as well.
	proto = header.IPv6ProtocolNumber
	switch network {
	case "tcp", "udp":
		if !s.ipv6 {
			proto = header.IPv4ProtocolNumber
		}
	case "tcp4", "udp4":
		proto = header.IPv4ProtocolNumber
	case "tcp6", "udp6":
	default:
		return fail(net.UnknownNetworkError(network))
	}
	transport, family := network[:3], network[3:]
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return fail(err)
	}
	port, err := net.LookupPort(transport, portText)
	if err != nil {
		return fail(err)
	}
	var ip netip.Addr
	if host != "" {
		if ip, err = netip.ParseAddr(host); err != nil {
			return fail(err)
		}
		ip = ip.WithZone("").Unmap()
		if family != "" && proto != protocolOf(ip) {
			return fail(fmt.Errorf("%w: not an address of that family", ErrConfig))
		}
		proto = protocolOf(ip)
	}
	return transport, netip.AddrPortFrom(ip, uint16(port)), proto, nil
}

// fullAddr converts an address for netstack. A link-local address belongs to
// the one interface.
func fullAddr(a netip.AddrPort) tcpip.FullAddress {
	full := tcpip.FullAddress{Addr: tcpipAddr(a.Addr()), Port: a.Port()}
	if a.Addr().IsLinkLocalUnicast() {
		full.NIC = NIC
	}
	return full
}

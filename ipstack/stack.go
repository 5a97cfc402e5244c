package ipstack

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/mtu"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	nsarp "gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// NIC is the ID of the interface in netstack.
const NIC tcpip.NICID = 1

// Neighbour unreachability detection (RFC 4861 6.3.2, 10), tuned to a fabric
// with a round trip of microseconds: a peer that comes back as another node is
// found within two to three seconds even if nothing reports the old one gone
// (1.5 s reachable + 0.1 s delay + 3 probes), at the cost of one probe per second
// and peer. The interval between probes is long because a busy machine may answer
// late.
const (
	nudReachableTime   = time.Second // times a random factor of 0.5 to 1.5
	nudDelayFirstProbe = 100 * time.Millisecond
	nudRetransmit      = 250 * time.Millisecond
	nudUnicastProbes   = 3
	nudMulticastProbes = 12 // an unknown neighbour is given up after three seconds, as by Linux
)

// Stack is the IP layer of a node.
//
// Concurrency: all methods may be called from many goroutines; see the package
// documentation for Close.
type Stack struct {
	link Link
	host Host // nil in netstack mode
	fast bool
	mac  arp.MAC
	mtu  int
	ipv6 bool
	// prefix begins the MAC addresses of all nodes.
	prefix arp.Prefix

	net      *stack.Stack
	nic      stack.NetworkInterface
	endpoint *endpoint
	table    *arp.Table
	hops     *hops
	members  *members // nil without Config.Groups
	count    counters
	closed   atomic.Bool
	// pending counts packets that wait for a neighbour and will be answered by
	// an ICMP error if it does not appear.
	pending atomic.Int32

	// mu serializes changes of addresses and routes.
	mu sync.Mutex
}

var _ exteth.Receiver = (*Stack)(nil)

// New starts the IP layer of a node. The caller makes the link deliver to the
// Stack's ReceiveFrame, and closes the Stack.
func New(cfg Config) (*Stack, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Stack{
		link:  cfg.Link,
		host:  cfg.Host,
		fast:  !cfg.NoFastPath,
		mac:   cfg.Link.MAC(),
		mtu:   cfg.Link.MTU(),
		table: arp.NewTable(maxDestinations),
	}
	// A link below IPv6's minimum MTU has no IPv6, as in Linux. netstack's MLD
	// would loop forever, looking for a record that fits.
	s.ipv6 = s.mtu >= int(mtu.MinIPv6)
	s.prefix = arp.Prefix(s.mac[:len(s.prefix)])
	s.hops = newHops(s.table, s.prefix)
	s.endpoint = newEndpoint(s)
	s.net = stack.New(s.stackOptions(cfg))
	if s.host != nil {
		s.net.SetNFTablesConfigured(true)
	} else if err := setTCP(s.net, cfg); err != nil {
		s.net.Destroy()
		return nil, err
	}
	if terr := s.net.CreateNICWithOptions(NIC, s.endpoint, stack.NICOptions{Name: "exn0"}); terr != nil {
		s.net.Destroy()
		return nil, netstackError("create interface", terr)
	}
	nic, terr := s.net.GetNICByID(NIC)
	if terr != nil {
		s.net.Destroy()
		return nil, netstackError("find interface", terr)
	}
	s.nic = nic
	if cfg.Groups != nil {
		if s.members, err = newMembers(s, cfg.Groups, cfg.Clock); err != nil {
			s.net.Destroy()
			return nil, err
		}
	}
	return s, nil
}

// stackOptions returns netstack's configuration.
func (s *Stack) stackOptions(cfg Config) stack.Options {
	opts := stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{
			nsarp.NewProtocol,
			ipv4.NewProtocolWithOptions(ipv4.Options{IGMP: ipv4.IGMPOptions{Enabled: true}}),
		},
		Clock: cfg.Clock,
		NUDConfigs: stack.NUDConfigurations{
			BaseReachableTime:   nudReachableTime,
			RetransmitTimer:     nudRetransmit,
			DelayFirstProbeTime: nudDelayFirstProbe,
			MaxUnicastProbes:    nudUnicastProbes,
			MaxMulticastProbes:  nudMulticastProbes,
		},
	}
	if s.ipv6 {
		opts.NetworkProtocols = append(opts.NetworkProtocols, ipv6.NewProtocolWithOptions(ipv6.Options{
			// With a host, the kernel makes the link-local address.
			AutoGenLinkLocal: s.host == nil,
			NDPConfigs:       ipv6.NDPConfigurations{HandleRAs: ipv6.HandlingRAsDisabled},
			MLD:              ipv6.MLDOptions{Enabled: true},
		}))
	}
	if s.host != nil {
		opts.NUDDisp = s.hops
		opts.NFTables = &hook{s}
		return opts
	}
	opts.HandleLocal = true
	opts.TransportProtocols = []stack.TransportProtocolFactory{
		tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6,
	}
	return opts
}

// setTCP sets what netstack's TCP needs on a fast link.
func setTCP(net *stack.Stack, cfg Config) error {
	start := min(cfg.TCPBuffer, tcp.DefaultSendBufferSize)
	sack := tcpip.TCPSACKEnabled(true)
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	cc := tcpip.CongestionControlOption(cfg.CongestionControl)
	for _, opt := range []tcpip.SettableTransportProtocolOption{
		&tcpip.TCPSendBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: start, Max: cfg.TCPBuffer},
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: start, Max: cfg.TCPBuffer},
		&sack, &moderate, &cc,
	} {
		if terr := net.SetTransportProtocolOption(tcp.ProtocolNumber, opt); terr != nil {
			return netstackError(fmt.Sprintf("set %T", opt), terr)
		}
	}
	return nil
}

// Netstack returns the netstack instance, for what this package does not provide.
func (s *Stack) Netstack() *stack.Stack { return s.net }

// Stats returns the counters.
func (s *Stack) Stats() Stats { return s.count.snapshot(s.net) }

// Close leaves all multicast groups, ends all connections of netstack and
// returns when its goroutines and timers have stopped. It may be called more than once.
func (s *Stack) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.net.Destroy()
	if s.members != nil {
		return s.members.close()
	}
	return nil
}

// forgetMAC drops the neighbours with a MAC address whose node is gone, as the link says.
// The next packet resolves them again, so a peer that came back as another node is
// found at once.
func (s *Stack) forgetMAC(mac arp.MAC) {
	for _, proto := range []tcpip.NetworkProtocolNumber{header.IPv4ProtocolNumber, header.IPv6ProtocolNumber} {
		neighbors, terr := s.net.Neighbors(NIC, proto)
		if terr != nil {
			continue // the interface is gone
		}
		for _, n := range neighbors {
			if n.LinkAddr != tcpip.LinkAddress(mac[:]) || n.State == stack.Static {
				continue
			}
			if terr := s.net.RemoveNeighbor(NIC, proto, n.Addr); terr == nil {
				s.count.inc(NeighborsForgotten)
			}
		}
	}
}

package node

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"

	"exnet/arp"
	"exnet/exn"
	"exnet/exteth"
	"exnet/fabric/nic"
	"exnet/foreign"
	"exnet/internal/netns"
	"exnet/ipstack"
	"exnet/mtu"
	"exnet/multicast"
	"exnet/node/etherhost"
	"exnet/node/tun"
	"exnet/node/txloop"
)

// Config configures a Node. The zero value of a field means its default.
type Config struct {
	// NS is the namespace of the host. Default: the calling thread's.
	NS *netns.NS
	// NIC is the node's NIC, which the Node uses and does not close. Required.
	NIC *nic.NIC
	// Name is the interface's name. Default exn0.
	Name string
	// Left is the descriptor of the interface that the node before has left (tun.Config.Left). New
	// takes it. Default: none.
	Left *os.File
	// Addrs are the addresses of the interface, with the length of their
	// networks. The link-local address is added.
	Addrs []netip.Prefix
	// MTU is the largest IP packet. Default mtu.Default; with TAP tun.MaxFrameMTU.
	MTU mtu.Network
	// MACPrefix begins all MAC addresses of the fabric. Default arp.DefaultPrefix.
	MACPrefix arp.Prefix
	// EagerThreshold is the length of the longest frame sent over VELO.
	// Default exteth.DefaultEagerThreshold.
	EagerThreshold int
	// VELOBudget and RMABudget are the NAPI budgets. Default 64.
	VELOBudget, RMABudget int
	// NoFastPath sends every packet through netstack.
	NoFastPath bool
	// TAP makes the interface an Ethernet device: the kernel does netstack's work, and the node
	// also carries frames of other MAC addresses, such as those of a bridge or macvlan.
	TAP bool
	// Groups is the fabric's directory of IP multicast groups. The node leaves its groups when
	// it is closed. Default: multicast goes to all nodes.
	Groups multicast.Registry
	// CongestionControl is the congestion control of TCP connections over the interface, for
	// programs that do not choose one. Default: the system's.
	CongestionControl string
	// OnReady is called when a stopped interface takes packets again.
	OnReady func()
}

// linkLocalBits is the length of the link-local network, fe80::/64 (RFC 4291,
// section 2.5.6).
const linkLocalBits = 64

// Node is one node with its exn0.
type Node struct {
	Interface *exn.Interface
	Stack     *ipstack.Stack  // nil with Config.TAP
	Ether     *etherhost.Host // nil without Config.TAP
	Device    *tun.Device

	senders *tun.Senders // nil: the kernel does not count them
	place   place
	watch   atomic.Pointer[func(packet []byte)] // nil unless Watch was called
}

// New makes a node's interface and configures it in the kernel. Frames are
// received when Interface.Run is called, and the kernel's packets are sent
// when Port is served by a txloop.Loop.
func New(cfg Config) (n *Node, err error) {
	n = new(Node)
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
			n = nil
		}
	}()
	if cfg.TAP && cfg.MTU == 0 {
		cfg.MTU = tun.MaxFrameMTU
	}
	var groups exn.Groups
	if cfg.Groups != nil {
		groups = cfg.Groups
	}
	if n.Interface, err = exn.New(exn.Config{
		NIC:            cfg.NIC,
		MTU:            cfg.MTU,
		MACPrefix:      cfg.MACPrefix,
		EagerThreshold: cfg.EagerThreshold,
		VELOBudget:     cfg.VELOBudget,
		RMABudget:      cfg.RMABudget,
		OnReady:        cfg.OnReady,
		Groups:         groups,
		Ethernet:       cfg.TAP,
	}); err != nil {
		return n, err
	}
	open := func() (err error) {
		n.Device, err = tun.Open(tun.Config{Name: cfg.Name, MTU: n.Interface.MTU(), TAP: cfg.TAP, OwnPoller: true, Left: cfg.Left})
		return err
	}
	if cfg.NS != nil {
		err = cfg.NS.Do(open)
	} else {
		err = open()
	}
	if err != nil {
		return n, err
	}
	// Without WatchSenders packets take a little longer.
	n.senders, _ = n.Device.WatchSenders()
	if cfg.TAP {
		n.Ether, err = etherhost.New(etherhost.Config{Link: n.Interface, Device: n.Device, Groups: cfg.Groups})
		if err != nil {
			return n, err
		}
		n.Interface.SetReceiver(n.Ether)
		return n, n.place.configure(n, cfg)
	}
	if n.Stack, err = ipstack.New(ipstack.Config{
		Link:       n.Interface,
		Host:       host{n.Device},
		NoFastPath: cfg.NoFastPath,
		Groups:     cfg.Groups,
	}); err != nil {
		return n, err
	}
	n.Interface.SetReceiver(n.Stack)
	return n, n.place.configure(n, cfg)
}

// Watch has f called with each packet that the host sends from now on, before it goes anywhere. f
// borrows packet until return, and must not block.
func (n *Node) Watch(f func(packet []byte)) { n.watch.Store(&f) }

// watched is the IP layer of a node whose packets may be watched.
type watched struct {
	n *Node
	txloop.Stack
}

// FromHost implements txloop.Stack.
func (w watched) FromHost(b *exteth.TxBuffer) {
	if f := w.n.watch.Load(); f != nil {
		(*f)(b.Packet())
	}
	w.Stack.FromHost(b)
}

// Port returns the port of the node, for a txloop.Loop to serve.
func (n *Node) Port() txloop.Port {
	p := txloop.Port{Device: n.Device, Interface: n.Interface}
	if n.Ether != nil {
		p.Stack, p.Header = watched{n, n.Ether}, tun.EthernetHeaderLen
	} else {
		p.Stack, p.Idle = watched{n, n.Stack}, n.Stack.Probe
	}
	if n.senders != nil {
		p.Senders = n.senders
	}
	return p
}

// Close removes the interface. Interface.Run must have returned, and no Loop
// may serve the Port any more.
func (n *Node) Close() error {
	var errs []error
	errs = append(errs, n.place.close())
	if n.Device != nil {
		errs = append(errs, n.Device.Close())
	}
	if n.senders != nil {
		errs = append(errs, n.senders.Close())
	}
	if n.Stack != nil {
		errs = append(errs, n.Stack.Close())
	}
	if n.Ether != nil {
		errs = append(errs, n.Ether.Close())
	}
	if n.Interface != nil {
		errs = append(errs, n.Interface.Close())
	}
	return errors.Join(errs...)
}

// host is the kernel's IP layer, behind a TUN device.
type host struct{ dev *tun.Device }

// WritePacket implements ipstack.Host.
func (h host) WritePacket(off exteth.Offload, packet foreign.Frame) error {
	var hdr [exteth.OffloadLen]byte
	return h.dev.Write(off.AppendHost(hdr[:0]), packet)
}

// String names the node for messages.
func (n *Node) String() string {
	return fmt.Sprintf("node %d (%s)", n.Interface.NodeID(), n.Device.Name())
}

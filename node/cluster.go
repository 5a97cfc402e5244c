package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"exnet/directsockets/broker"
	"exnet/fabric"
	"exnet/fabric/link/mem"
	"exnet/fabric/link/wire"
	"exnet/fabric/nic"
	"exnet/internal/counter"
	"exnet/internal/netns"
	"exnet/multicast"
	"exnet/node/txloop"

	"golang.org/x/sync/errgroup"
)

// MaxNodes is the largest number of nodes in a Cluster. Its addresses have room for no more.
const MaxNodes = 254

// MaxFaultyNodes is the largest number of nodes in a Cluster with Faults: every pair has a link
// with goroutines and buffers.
const MaxFaultyNodes = 32

// ClusterConfig configures a Cluster.
type ClusterConfig struct {
	// Nodes is the number of nodes. Default 2.
	Nodes int
	// Node is the configuration that all nodes have in common; the Cluster sets NS, NIC, Addrs,
	// Groups and OnReady.
	Node Config
	// Faults are the faults of every link, in both directions. If it is set, even to no faults,
	// the links are of fabric/link/wire. Default: memory joins the nodes.
	Faults *wire.Faults
}

// Cluster is several nodes on one fabric in one process, each in a network namespace of its
// own.
type Cluster struct {
	Nodes []*Node
	Loop  *txloop.Loop
	// Brokers are the brokers of direct sockets, one in each namespace. It is empty if their
	// sockets could not be made.
	Brokers []*broker.Server

	spaces []*netns.NS
	nics   []*nic.NIC
	joined []*nic.NIC   // the nics that are on the fabric
	wires  *wire.Fabric // nil: memory joins the nodes
	cancel context.CancelFunc
	group  *errgroup.Group
}

// Addr4 returns the IPv4 address of the i-th node of a Cluster, from 0:
// 10.2.0.1, 10.2.0.2, and so on, in a network of 24 bits.
func Addr4(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 2, 0, byte(1 + i)}), 24)
}

// Addr6 returns the node's IPv6 address: fd00:10:2::1, and so on, in a network of 64 bits.
func Addr6(i int) netip.Prefix {
	a := netip.MustParseAddr("fd00:10:2::").As16()
	a[15] = byte(1 + i)
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// StartCluster brings up a Cluster, which runs until Close.
func StartCluster(cfg ClusterConfig) (c *Cluster, err error) {
	if cfg.Nodes == 0 {
		cfg.Nodes = 2
	}
	if cfg.Nodes < 1 || cfg.Nodes > MaxNodes {
		return nil, fmt.Errorf("node: %d nodes; use 1 to %d", cfg.Nodes, MaxNodes)
	}
	if cfg.Faults != nil && cfg.Nodes > MaxFaultyNodes {
		return nil, fmt.Errorf("node: %d nodes with faults; use up to %d", cfg.Nodes, MaxFaultyNodes)
	}
	c = new(Cluster)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
			c = nil
		}
	}()
	groups := multicast.NewLocal()
	memory := mem.NewFabric()
	join := func(n *nic.NIC) error { return memory.Attach(n) }
	if cfg.Faults != nil {
		if c.wires, err = wire.NewFabric(wire.FabricConfig{Faults: *cfg.Faults}); err != nil {
			return c, err
		}
		join = func(n *nic.NIC) error { return c.wires.Attach(n) }
	}
	// The loop is made after the nodes that wake it.
	var loop atomic.Pointer[txloop.Loop]
	ready := func() {
		if l := loop.Load(); l != nil {
			l.Wake()
		}
	}
	var ports []txloop.Port
	for i := range cfg.Nodes {
		n, err := c.addNode(i, cfg.Node, join, groups, ready)
		if err != nil {
			return c, err
		}
		ports = append(ports, n.Port())
	}
	c.Loop, err = txloop.New(txloop.Config{Ports: ports})
	if err != nil {
		return c, err
	}
	loop.Store(c.Loop)
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.group, ctx = errgroup.WithContext(ctx)
	for _, n := range c.Nodes {
		c.group.Go(func() error { return n.Interface.Run(ctx) })
	}
	if err := c.startBrokers(ctx); err != nil {
		return c, err
	}
	c.group.Go(func() error { return c.Loop.Run(ctx) })
	return c, nil
}

func (c *Cluster) addNode(i int, cfg Config, join func(*nic.NIC) error, groups *multicast.Local, ready func()) (*Node, error) {
	ns, err := netns.New()
	if err != nil {
		return nil, err
	}
	c.spaces = append(c.spaces, ns)
	card, err := nic.New(nic.Config{Node: fabric.NodeID(1 + i)})
	if err != nil {
		return nil, err
	}
	c.nics = append(c.nics, card)
	if err := join(card); err != nil {
		return nil, err
	}
	c.joined = append(c.joined, card)
	if cfg.Groups, err = groups.Node(card.ID(), card.Routes()); err != nil {
		return nil, err
	}
	cfg.NS, cfg.NIC, cfg.OnReady = ns, card, ready
	cfg.Addrs = []netip.Prefix{Addr4(i), Addr6(i)}
	n, err := New(cfg)
	if err != nil {
		return nil, err
	}
	c.Nodes = append(c.Nodes, n)
	return n, nil
}

// Counters returns all counters of the i-th node: Node.Counters, and with Faults those of its
// links.
func (c *Cluster) Counters(i int) counter.List {
	all := c.Nodes[i].Counters()
	if c.wires == nil {
		return all
	}
	for j := range c.Nodes {
		if l := c.wires.Link(c.nics[i].ID(), c.nics[j].ID()); l != nil {
			AddWire(&all, l.Peer(), l.Stats())
		}
	}
	return all
}

// Namespace returns the namespace of the i-th node.
func (c *Cluster) Namespace(i int) *netns.NS { return c.spaces[i] }

// Wait waits until the data path has ended. It returns the error that ended it, nil after
// Close.
func (c *Cluster) Wait() error { return c.group.Wait() }

// Close stops the data path and removes the interfaces and namespaces.
// Programs that still run in a namespace keep it, without exn0.
func (c *Cluster) Close() error {
	var errs []error
	if c.cancel != nil {
		c.cancel()
		errs = append(errs, c.group.Wait())
		c.cancel = nil
	}
	errs = append(errs, c.closeBrokers())
	if c.wires != nil {
		for _, n := range c.joined {
			errs = append(errs, c.wires.Detach(n))
		}
	}
	for _, n := range c.Nodes {
		errs = append(errs, n.Close())
	}
	if c.Loop != nil {
		errs = append(errs, c.Loop.Close())
	}
	for _, n := range c.nics {
		errs = append(errs, n.Close())
	}
	for _, ns := range c.spaces {
		errs = append(errs, ns.Close())
	}
	c.Nodes, c.Loop, c.nics, c.joined, c.spaces = nil, nil, nil, nil, nil
	return errors.Join(errs...)
}

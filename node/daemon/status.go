package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"exnet/arp"
	"exnet/fabric/emp"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/internal/counter"
	"exnet/internal/netns"
	"exnet/node"
	"exnet/node/control"
	"exnet/node/hostnet"
)

// netnsPath returns a path of the interface's namespace for other processes: that of its
// name, if it has one.
func (d *Daemon) netnsPath() string {
	path := fmt.Sprintf("/proc/%d/ns/net", os.Getpid())
	if d.ns != nil {
		path = d.ns.Path()
	}
	if named := netns.NamedPath(path); named != "" {
		return named
	}
	if given := d.cfg.NetNS; strings.HasPrefix(given, "/proc/") && sameFile(given, path) {
		return given
	}
	return path
}

// sameFile reports whether two paths lead to the same file.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// Status returns the status.
func (d *Daemon) Status() (*control.Status, error) {
	s := &control.Status{
		Fabric:   d.cfg.Fabric,
		Dir:      d.cfg.Dir,
		Node:     int(d.member.ID()),
		PID:      os.Getpid(),
		NetNS:    d.netnsPath(),
		Since:    d.started.Truncate(time.Millisecond),
		RealTime: d.realtime.Load(),
		FastPath: !d.cfg.NoFastPath,
		Peers:    d.peerStatus(),
		Shared:   d.sharedTraffic(),
		Groups:   []control.Group{},
		Receive:  d.receiveStatus(),
		Waits:    d.loop.WaitTimes(),
		Counters: d.node.Counters(),
	}
	if d.mesh != nil {
		s.Listen, s.Plaintext = d.mesh.Addr().String(), d.store == nil
	}
	if d.cfg.Topology != nil {
		s.Topology = d.cfg.Topology.String()
	}
	s.Counters.Add("txloop.", d.loop.Stats().All())
	d.addLinks(&s.Counters)
	d.addHosts(&s.Counters)
	d.addSockets(&s.Counters)
	for _, o := range d.services {
		s.Counters.Add(o.about().what+".", counter.All(o.counters()))
		o.addStatus(s)
	}
	d.addCarrier(&s.Counters)
	addShared(&s.Counters, s.Shared)
	if d.exporter != nil {
		s.Metrics = d.exporter.URL()
	}
	if d.cfg.Faults != nil {
		s.Faults = new(d.cfg.Faults.String())
	}
	s.Threshold.Eager, s.Threshold.MTU = d.node.Interface.EagerThreshold(), int(d.cfg.MTU)
	s.Threshold.VELO, s.Threshold.RMA = velo.MaxPayload, rma.MTU
	for _, g := range d.groups.listGroups() {
		group := control.Group{Addr: g.Addr, Group: int(g.ID)}
		for _, n := range g.Members {
			group.Members = append(group.Members, int(n))
		}
		s.Groups = append(s.Groups, group)
	}
	s.Neighbors = []control.Neighbor{}
	if d.cfg.TAP {
		s.Ethernet = &control.Ethernet{Stations: d.listStations()}
		return s, d.addKernel(s)
	}
	for _, n := range d.node.Stack.Neighbors() {
		entry := control.Neighbor{Addr: n.Addr, State: n.State}
		if n.Known {
			entry.MAC, entry.Node = n.MAC.String(), new(int(n.Node))
		}
		s.Neighbors = append(s.Neighbors, entry)
	}
	return s, d.addKernel(s)
}

// listStations returns the MAC addresses that were learned, in ascending order.
func (d *Daemon) listStations() []control.Station {
	list := []control.Station{}
	for s := range d.node.Interface.Stations() {
		list = append(list, control.Station{MAC: s.MAC.String(), Node: int(s.Node), Seen: s.Seen.Truncate(time.Millisecond)})
	}
	slices.SortFunc(list, func(a, b control.Station) int { return strings.Compare(a.MAC, b.MAC) })
	return list
}

// addNeighbors adds the neighbours that the kernel has found.
func (d *Daemon) addNeighbors(s *control.Status, conn *hostnet.Conn, index int) error {
	if !d.cfg.TAP {
		return nil // netstack has them
	}
	list, err := conn.Neighbors(index)
	for _, n := range list {
		entry := control.Neighbor{Addr: n.Addr, State: n.State}
		if n.Known {
			mac := arp.MAC(n.MAC)
			entry.MAC = mac.String()
			if id, err := d.cfg.MACPrefix.Node(mac); err == nil {
				entry.Node = new(int(id))
			}
		}
		s.Neighbors = append(s.Neighbors, entry)
	}
	slices.SortFunc(s.Neighbors, func(a, b control.Neighbor) int { return a.Addr.Compare(b.Addr) })
	return err
}

// addKernel adds what the kernel knows. An interface that is in another network namespace is no
// failure of the node: the status says where it is.
func (d *Daemon) addKernel(s *control.Status) error {
	s.Interface = control.Interface{
		Name: d.node.Device.Name(), MTU: int(d.cfg.MTU), Addrs: []netip.Prefix{},
		MAC: d.cfg.MACPrefix.MAC(d.member.ID()).String(),
	}
	s.Routes = []control.Route{}
	err := d.node.Kernel(func(conn *hostnet.Conn, index int, visiting string) error {
		if visiting != "" {
			s.Interface.Elsewhere = cmp.Or(netns.NamedPath(visiting), visiting)
		}
		return errors.Join(addInterface(s, conn, index), d.addNeighbors(s, conn, index))
	})
	// ErrNoLink: it is on its way.
	if errors.Is(err, node.ErrElsewhere) || errors.Is(err, hostnet.ErrNoLink) {
		s.Interface.Elsewhere = control.Unknown
		return nil
	}
	return err
}

// addInterface adds the kernel's interface with its addresses and routes.
func addInterface(s *control.Status, conn *hostnet.Conn, index int) error {
	link, err := conn.LinkByIndex(index)
	if err != nil {
		return err
	}
	s.Interface.Name, s.Interface.Up, s.Interface.MTU, s.Interface.TxQueueLen = link.Name, link.Up, link.MTU, link.TxQueueLen
	if s.Interface.Addrs, err = conn.Addrs(index); err != nil {
		return err
	}
	if s.Interface.Stats, err = conn.Stats(index); err != nil {
		return err
	}
	routes, err := conn.Routes(index)
	for _, r := range routes {
		route := control.Route{Dst: r.Dst, Metric: r.Metric}
		if r.Gateway.IsValid() {
			route.Gateway = &r.Gateway
		}
		if r.Src.IsValid() {
			route.Src = &r.Src
		}
		s.Routes = append(s.Routes, route)
	}
	return err
}

func (d *Daemon) peerStatus() []control.Peer {
	peers := []control.Peer{}
	known := d.knownPeers()
	trips := probePeers(known)
	for i, p := range known {
		peer := control.Peer{
			Node: int(p.Node), Addrs: p.Addrs, MTU: p.MTU, PID: p.PID,
			State: p.State.String(), Since: p.Since.Truncate(time.Millisecond), Links: p.Links,
		}
		if p.State == emp.Up {
			peer.Hops = d.hopsTo(p.Node)
		}
		if p.Err != nil {
			peer.Error = p.Err.Error()
		}
		d.addLink(&peer, p)
		peer.RTTMicros = max(peer.RTTMicros, trips[i])
		peers = append(peers, peer)
	}
	return peers
}

func (d *Daemon) receiveStatus() control.ReceiveStatus {
	i := d.node.Interface
	stats, coalesce := i.Stats().NAPI, i.Coalesce()
	r := control.ReceiveStatus{
		Mode:           stats.Mode,
		CoalesceUsecs:  coalesce.Delay.Microseconds(),
		CoalesceFrames: coalesce.Frames,
		Adaptive:       coalesce.Adaptive,
	}
	for n, src := range stats.Sources {
		budget := d.cfg.Receive.VELOBudget
		if n > 0 {
			budget = d.cfg.Receive.RMABudget
		}
		r.Units = append(r.Units, control.Unit{
			Name: src.Name, Budget: budget, Interrupts: src.Interrupts, Coalesced: src.Coalesced,
			Polls: src.Polls, Frames: src.Frames, Exhausted: src.Exhausted,
			ITR: src.ITR.String(), WorkPerPoll: src.WorkPerPoll,
		})
	}
	return r
}

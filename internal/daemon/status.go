package daemon

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"exnet/fabric/emp"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/internal/hostnet"
	"exnet/internal/node"
	"exnet/napi"
)

// Status is what there is to know about a node. Its JSON form is what
// "exn-tun status --json" prints.
type Status struct {
	Fabric    string    `json:"fabric"`
	Dir       string    `json:"dir"`
	Node      int       `json:"node"`
	PID       int       `json:"pid"`
	NetNS     string    `json:"netns"` // path of the interface's network namespace
	Since     time.Time `json:"since"`
	Topology  string    `json:"topology,omitempty"` // in a few words; see OpTopology
	Metrics   string    `json:"metrics,omitempty"`  // URL of the metrics
	Faults    *string   `json:"faults,omitempty"`   // of the packets that leave; left out: its links are not asked to have any
	RealTime  bool      `json:"real_time"`
	FastPath  bool      `json:"fast_path"`
	Threshold struct {
		Eager int `json:"eager"`    // longest frame over VELO, bytes
		MTU   int `json:"mtu"`      // largest IP packet
		VELO  int `json:"velo_max"` // payload of a VELO message
		RMA   int `json:"rma_mtu"`  // payload of a network packet of the RMA unit
	} `json:"thresholds"`
	Interface Interface     `json:"interface"`
	Neighbors []Neighbor    `json:"neighbors"`
	Routes    []Route       `json:"routes"`
	Peers     []Peer        `json:"peers"`
	Groups    []Group       `json:"groups"`
	Receive   ReceiveStatus `json:"receive"`
	Counters  node.Counters `json:"counters"`
}

// Interface is the interface, as ifconfig shows one.
type Interface struct {
	Name       string            `json:"name"`
	Up         bool              `json:"up"`
	MTU        int               `json:"mtu"`
	TxQueueLen int               `json:"tx_queue_len"`
	MAC        string            `json:"mac"`
	Addrs      []netip.Prefix    `json:"addrs"`
	Stats      hostnet.LinkStats `json:"stats"`
}

// Neighbor is an entry of the neighbour cache.
type Neighbor struct {
	Addr  netip.Addr `json:"addr"`
	MAC   string     `json:"mac,omitempty"`
	Node  *int       `json:"node,omitempty"`
	State string     `json:"state"`
}

// Route is a route by the interface.
type Route struct {
	Dst     netip.Prefix `json:"dst"`
	Gateway *netip.Addr  `json:"gateway,omitempty"`
	Src     *netip.Addr  `json:"src,omitempty"`
	Metric  int          `json:"metric"`
}

// Peer is another node of the fabric.
type Peer struct {
	Node  int            `json:"node"`
	Addrs []netip.Prefix `json:"addrs"`
	MTU   int            `json:"mtu"`
	PID   int            `json:"pid"`
	State string         `json:"state"`
	Hops  int            `json:"hops,omitempty"` // 0: not linked
	Since time.Time      `json:"since"`
	Links uint64         `json:"links"` // times that it was linked
	Error string         `json:"error,omitempty"`
}

// Group is an IP multicast group that has members.
type Group struct {
	Addr    netip.Addr `json:"addr"`
	Group   int        `json:"fabric_group"`
	Members []int      `json:"members"`
}

// ReceiveStatus says how frames are received.
type ReceiveStatus struct {
	Mode           napi.Mode `json:"mode"`
	CoalesceUsecs  int64     `json:"coalesce_usecs"`
	CoalesceFrames int       `json:"coalesce_frames"`
	Adaptive       bool      `json:"adaptive"`
	Units          []Unit    `json:"units"`
}

// Unit is a functional unit that is polled.
type Unit struct {
	Name        string                   `json:"name"`
	Budget      int                      `json:"budget"`
	Interrupts  uint64                   `json:"interrupts"`
	Coalesced   uint64                   `json:"coalesced"`
	Polls       uint64                   `json:"polls"`
	Frames      uint64                   `json:"frames"`
	Exhausted   uint64                   `json:"exhausted"`
	ITR         string                   `json:"itr"`
	WorkPerPoll [napi.WorkBuckets]uint64 `json:"work_per_poll"` // polls with 0, 1, 2-3, 4-7 ... frames
}

// netnsPath returns a path of the interface's namespace for other processes.
func (d *Daemon) netnsPath() string {
	if d.ns == nil {
		return fmt.Sprintf("/proc/%d/ns/net", os.Getpid())
	}
	return d.ns.Path()
}

// Status returns the status.
func (d *Daemon) Status() (*Status, error) {
	s := &Status{
		Fabric:   d.cfg.Fabric,
		Dir:      d.cfg.Dir,
		Node:     int(d.member.ID()),
		PID:      os.Getpid(),
		NetNS:    d.netnsPath(),
		Since:    d.started.Truncate(time.Millisecond),
		RealTime: d.realtime.Load(),
		FastPath: !d.cfg.NoFastPath,
		Peers:    d.peers(),
		Groups:   []Group{},
		Receive:  d.receive(),
		Counters: d.node.Counters(),
	}
	if d.cfg.Topology != nil {
		s.Topology = d.cfg.Topology.String()
	}
	s.Counters.Add("txloop.", d.loop.Stats().All())
	d.addLinks(&s.Counters)
	d.addSockets(&s.Counters)
	if d.exporter != nil {
		s.Metrics = d.exporter.url()
	}
	if d.cfg.Faults != nil {
		s.Faults = new(d.cfg.Faults.String())
	}
	s.Threshold.Eager, s.Threshold.MTU = d.node.Interface.EagerThreshold(), int(d.cfg.MTU)
	s.Threshold.VELO, s.Threshold.RMA = velo.MaxPayload, rma.MTU
	for _, g := range d.groups.all() {
		group := Group{Addr: g.Addr, Group: int(g.ID)}
		for _, n := range g.Members {
			group.Members = append(group.Members, int(n))
		}
		s.Groups = append(s.Groups, group)
	}
	s.Neighbors = []Neighbor{}
	for _, n := range d.node.Stack.Neighbors() {
		entry := Neighbor{Addr: n.Addr, State: n.State}
		if n.Known {
			entry.MAC, entry.Node = n.MAC.String(), new(int(n.Node))
		}
		s.Neighbors = append(s.Neighbors, entry)
	}
	return s, d.kernel(s)
}

// kernel adds what the kernel knows.
func (d *Daemon) kernel(s *Status) error {
	index := d.node.Device.Index()
	link, err := d.conn.LinkByIndex(index)
	if err != nil {
		return err
	}
	s.Interface = Interface{
		Name: link.Name, Up: link.Up, MTU: link.MTU, TxQueueLen: link.TxQueueLen,
		MAC: d.cfg.MACPrefix.MAC(d.member.ID()).String(),
	}
	if s.Interface.Addrs, err = d.conn.Addrs(index); err != nil {
		return err
	}
	if s.Interface.Stats, err = d.conn.Stats(index); err != nil {
		return err
	}
	s.Routes = []Route{}
	routes, err := d.conn.Routes(index)
	for _, r := range routes {
		route := Route{Dst: r.Dst, Metric: r.Metric}
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

func (d *Daemon) peers() []Peer {
	peers := []Peer{}
	for _, p := range d.member.Peers() {
		peer := Peer{
			Node: int(p.Node), Addrs: p.Addrs, MTU: p.MTU, PID: p.PID,
			State: p.State.String(), Since: p.Since.Truncate(time.Millisecond), Links: p.Links,
		}
		if p.State == emp.Up {
			peer.Hops = d.hops(p.Node)
		}
		if p.Err != nil {
			peer.Error = p.Err.Error()
		}
		peers = append(peers, peer)
	}
	return peers
}

func (d *Daemon) receive() ReceiveStatus {
	i := d.node.Interface
	stats, coalesce := i.Stats().NAPI, i.Coalesce()
	r := ReceiveStatus{
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
		r.Units = append(r.Units, Unit{
			Name: src.Name, Budget: budget, Interrupts: src.Interrupts, Coalesced: src.Coalesced,
			Polls: src.Polls, Frames: src.Frames, Exhausted: src.Exhausted,
			ITR: src.ITR.String(), WorkPerPoll: src.WorkPerPoll,
		})
	}
	return r
}

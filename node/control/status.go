package control

import (
	"net/netip"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/counter"
	"exnet/napi"
)

// Status is the state of a node. "exn-tun status --json" prints its JSON form.
type Status struct {
	Fabric    string    `json:"fabric"`
	Dir       string    `json:"dir"`
	Node      int       `json:"node"`
	PID       int       `json:"pid"`
	NetNS     string    `json:"netns"` // path of the interface's network namespace
	Since     time.Time `json:"since"`
	Topology  string    `json:"topology,omitempty"`  // in a few words; see OpTopology
	Metrics   string    `json:"metrics,omitempty"`   // URL of the metrics
	Faults    *string   `json:"faults,omitempty"`    // of the packets that leave; left out: its links are not asked to have any
	Listen    string    `json:"listen,omitempty"`    // where nodes of other hosts connect to
	Plaintext bool      `json:"plaintext,omitempty"` // nothing that goes to other hosts is encrypted
	RealTime  bool      `json:"real_time"`
	FastPath  bool      `json:"fast_path"`
	Ethernet  *Ethernet `json:"ethernet,omitempty"` // of a TAP device; left out: a TUN device
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
	Shared    []Shared      `json:"shared"`
	Groups    []Group       `json:"groups"`
	Receive   ReceiveStatus `json:"receive"`
	// Waits counts how long packets of this host waited for the data path's thread.
	Waits counter.WaitTimes `json:"waits"`
	// Memory is what the node lends and has borrowed; left out: nothing.
	Memory   *Memory      `json:"memory,omitempty"`
	Counters counter.List `json:"counters"`
}

// Ethernet is what a node with a TAP device knows of its fabric.
type Ethernet struct {
	Stations []Station `json:"stations"`
}

// Station is a MAC address behind a node that is not the node's own.
type Station struct {
	MAC  string    `json:"mac"`
	Node int       `json:"node"`
	Seen time.Time `json:"seen"`
}

// Interface is the interface, as ifconfig shows one.
type Interface struct {
	Name       string            `json:"name"`
	Up         bool              `json:"up"`
	MTU        int               `json:"mtu"`
	TxQueueLen int               `json:"tx_queue_len"`
	MAC        string            `json:"mac"`
	Addrs      []netip.Prefix    `json:"addrs"`
	Stats      counter.Interface `json:"stats"`
	// Elsewhere is set while the interface is not in the node's own namespace: a path of the one
	// that it was moved to, or Unknown.
	Elsewhere string `json:"elsewhere,omitempty"`
}

// Unknown is where an interface is that the node cannot find.
const Unknown = "unknown"

// Neighbor is an entry of the neighbour cache.
type Neighbor struct {
	Addr  netip.Addr `json:"addr"`
	MAC   string     `json:"mac,omitempty"`
	Node  *int       `json:"node,omitempty"`
	State string     `json:"state"`
}

// Route is a route over the interface.
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
	// Link carries the traffic: shm, wire, stream or ofi:PROVIDER. "": the peer is not linked.
	Link string `json:"link,omitempty"`
	// Endpoint and Key are for a peer on another host: the address where it was reached, and
	// the fingerprint of its key.
	Endpoint string `json:"endpoint,omitempty"`
	Key      string `json:"key,omitempty"`
	// RTTMicros is the round trip in microseconds: over shm that of a probe for this status,
	// over wire the mean time until an acknowledgement, over others that of the last heartbeat.
	// 0: there is none yet. The rates are bytes per second over the link, between the last two
	// heartbeats or in the last second.
	RTTMicros uint64 `json:"rtt_micros,omitempty"`
	TxRate    uint64 `json:"tx_rate,omitempty"`
	RxRate    uint64 `json:"rx_rate,omitempty"`
	// Congestion is the TCP congestion control of what this node sends to it.
	Congestion string `json:"congestion,omitempty"`
}

// Shared is the traffic of direct sockets in shared memory, which no link carries, between
// programs behind this node and those behind a node of this host, which may be the same.
type Shared struct {
	Node int `json:"node"`
	connstats.Total
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

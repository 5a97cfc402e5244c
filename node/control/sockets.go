package control

import (
	"net/netip"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/connstats"
)

// Sockets are the connections of the programs that use the node's broker.
type Sockets struct {
	// Node is 0 for a broker that exn-run started, which belongs to no node.
	Node int `json:"node"`
	// Broker is the path of the broker's socket. "": another broker serves the namespace.
	Broker string `json:"broker"`
	Whose
	// Direct is what the programs of an agent's broker have exchanged by direct sockets, those that
	// have ended included.
	Direct      *connstats.Total       `json:"direct,omitempty"`
	Connections []connstats.Connection `json:"connections"`
	// Stays are static programs that ask for direct sockets and stay on TCP.
	Stays []Stay `json:"stays,omitempty"`
	// Relayed are the connections of these that the node carries to other nodes.
	Relayed []Relayed `json:"relayed,omitempty"`
	// SetUp counts how long offers waited until they were claimed.
	SetUp broker.SetUpTimes `json:"set_up"`
}

// Stay is a program that an agent could not attach to.
type Stay struct {
	PID    int    `json:"pid"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Relayed is a connection that a node carries, as the node sees it. SPEC.md of directsockets (5.9)
// explains the states.
type Relayed struct {
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
	Node   int            `json:"node"` // where the other program is
	State  string         `json:"state"`
	Gate   string         `json:"gate"`            // what becomes of TCP packets that the program here sends
	Held   int            `json:"held"`            // of these packets, those that wait
	Waits  string         `json:"waits,omitempty"` // what it waits for
	// Packets that were dropped, which TCP sends again.
	HeldDropped  uint64 `json:"held_dropped"`  // from the program here
	EarlyDropped uint64 `json:"early_dropped"` // from the other node
}

// Whose names the container that an agent's broker is for.
type Whose struct {
	// Container is its ID, or the name of its namespace. "": the host, or no agent's.
	Container string `json:"container,omitempty"`
	// Name is what its runtime calls it; "host": the agent's own namespace. "": it is not known.
	Name string `json:"name,omitempty"`
}

// SocketsOf asks a broker that belongs to no node.
func SocketsOf(s *broker.Server, whose Whose) *Sockets {
	all := &Sockets{Broker: s.Path(), Whose: whose, Connections: s.Connections(), SetUp: s.SetUpTimes()}
	if whose == (Whose{}) {
		return all
	}
	all.Direct = new(connstats.Total)
	for _, t := range s.Shared() {
		*all.Direct = all.Direct.Plus(t)
	}
	return all
}

package control

import (
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
	// SetUp counts how long offers waited until they were claimed.
	SetUp broker.SetUpTimes `json:"set_up"`
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

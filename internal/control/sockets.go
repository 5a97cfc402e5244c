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
	// Container is that of an agent's broker: its ID, or the name of its namespace. "": the
	// host, or no agent's.
	Container   string                 `json:"container,omitempty"`
	Connections []connstats.Connection `json:"connections"`
	// SetUp counts how long offers waited until they were claimed.
	SetUp broker.SetUpTimes `json:"set_up"`
}

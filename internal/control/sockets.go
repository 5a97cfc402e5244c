package control

import (
	"exnet/directsockets/broker"
	"exnet/directsockets/broker/connstats"
)

// Sockets are the connections of the programs that use the node's broker.
type Sockets struct {
	// Node is 0 for a broker that belongs to none, which exn-run has started.
	Node int `json:"node"`
	// Broker is its socket. "": another broker serves the namespace.
	Broker      string                 `json:"broker"`
	Connections []connstats.Connection `json:"connections"`
	// SetUp is how long it took until offers were claimed.
	SetUp broker.SetUpTimes `json:"set_up"`
}

// Package crossbar emulates the crossbars of a routed fabric: what is sent from
// node to node crosses the links that the routing tables say, and is counted on
// each of them.
//
// # Architecture
//
//	NIC ── link.Port ─▶ Crossbars.Port ── link.Port ─▶ the link's own port
//	                        │
//	                        └─ Routes.Carry ─▶ Load     hop by hop, in arithmetic
//
//	route.Table.Multicast ─▶ Crossbars.Multicast ─▶ Tree.Carry
//
// The data goes where it always went, in one copy; the hops are a walk through
// the tables. A fabric without a topology has none of this on its way.
//
// What counts: a VELO message is one packet of its payload and the 16 bytes of the
// network descriptor. RMA data goes in packets of 496 bytes and 16 of descriptor
// (thesis 3.2.1.2), from the node that has the data to the one that gets it; the
// request of a GET is a packet without payload the other way, and so is a refusal.
// A multicast is one packet that crosses each link of its tree once. Credits and
// the acknowledgements of the link layer do not count.
//
// # Concurrency
//
// All methods may be called from many goroutines. A packet takes the routes as
// they are when it is sent.
//
// # Limits
//
// All nodes of the topology forward, whether a NIC is attached to them or not.
// Links have no bandwidth and no delay: the load is counted, not limited.
package crossbar

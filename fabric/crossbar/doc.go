// Package crossbar emulates the crossbars of a routed fabric: a packet from
// node to node crosses the links that the routing tables give, and each link
// counts it.
//
// # Architecture
//
//	NIC ── link.Port ─▶ Crossbars.Port ── link.Port ─▶ the link's own port
//	                        │
//	                        └─ Routes.Carry ─▶ Load     hop by hop, in arithmetic
//
//	route.Table.Multicast ─▶ Crossbars.Multicast ─▶ Tree.Carry
//
// The data still moves in one copy; the hops are a walk through the tables. A
// fabric without a topology skips all of this.
//
// A VELO message counts as one packet of its payload and the 16 bytes of the
// network descriptor. RMA data counts as packets of 496 bytes and 16 of descriptor
// (thesis 3.2.1.2), from the source of the data to its sink; the request of a GET
// is a packet without payload in the other direction, and a refusal is one, too. A
// multicast is one packet that crosses each link of its tree once. Credits and the
// acknowledgements of the link layer do not count.
//
// With SetAdaptive, packets of RMA data take any shortest path of a torus or mesh, by the
// load that the links' counters show; the rest keeps to the tables (section 3.1).
//
// # Concurrency
//
// All methods may be called from many goroutines. A packet takes the routes in
// force when it is sent.
//
// # Limits
//
// All nodes of the topology forward, even those without a NIC. Links have no
// bandwidth and no delay: the load is counted, not limited.
package crossbar

// Package ofi carries a link between two hosts by libfabric: an engine for link/stream.
//
// # Architecture
//
//	 node                                                      peer
//	link/stream: flows, credits, operations, heartbeat      link/stream
//	   │ Send        ▲ Receive        copies, once on each side
//	   ▼             │
//	ring: 32 slots of 72 KiB in each direction, eventfds      ring
//	   │ fi_send     ▲ fi_recv        registered for that and nothing else
//	exn-ofi ═════════╧═══ libfabric: FI_EP_MSG ═══════════ exn-ofi
//
// VELO messages and the chunks of RMA transfers travel as messages of a connected endpoint,
// in the format of link/stream, whose heartbeat goes the same way. No memory is registered
// for RDMA by the peer: it could write past the ATU, a provider's keys protect nothing, and
// the node's arena is sealed, so that no other process can map it for writing. A message
// costs a copy on each side, as with the kernel's TCP.
//
// libfabric is used by exn-ofi, a process in C for each link, built and found as the preload
// library is (package cbuild): the node stays a static program, and a provider that crashes,
// leaks or cannot fork ends one link. It sleeps in poll(2) until the provider's descriptors
// (FI_WAIT_FD) or its eventfd wake it, and ends when its node does.
//
// # Joining
//
// Join uses a connection that its caller has authenticated. Each side sends offer; the side
// with the lower ID listens, and sends place: a port, and two random tokens of 128 bits. The
// other connects to this port at the connection's own address with the first token; a
// listener that gets anything else refuses, and keeps waiting. It answers with the second.
// Then the connecting side sends place without a port, or the reason for a failure, and both
// continue with link/stream's hello over the same connection. Numbers are little endian,
// both messages have 256 bytes:
//
//	0          8         12     14     16     18         24       56         96
//	┌──────────┬─────────┬──────┬──────┬──────┬──────────┬────────┬──────────┬─────────┐
//	│ exnetofi │ version │ node │ peer │ port │ reserved │ tokens │ provider │ failure │
//	└──────────┴─────────┴──────┴──────┴──────┴──────────┴────────┴──────────┴─────────┘
//
// # Security
//
// libfabric encrypts nothing and protects nothing: anyone on the path can read and change
// its traffic. What the helper writes into the ring is copied once, and the copy is
// checked: a helper that lies ends its link (ErrHelper). It is the node's own process, and
// sees the traffic of its link and no other memory of the node.
//
// # Concurrency
//
// See stream.Engine. A goroutine for each Engine waits for the helper's end.
//
// # Limits
//
// Providers without FI_EP_MSG, such as efa, are not used. Version 1.18.0 and the providers
// net, sockets and udp are refused: in measurements they spun or lost data. Only tcp of
// 1.17 is tested.
package ofi

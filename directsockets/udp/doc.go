// Package udp carries the datagrams of a UDP socket through memory, to and from other sockets of
// the network namespace that do the same (SPEC.md, section 10, in the directory above).
//
// # Architecture
//
//	                Receive ─▶ record of a flow (datagram.Rx), or none: every flow is armed
//	program ─▶ UDPConn ─▶ the kernel's socket, as without this package
//	                Received ─▶ the flow of the sender may be used again; CLAIM
//
//	                Send ─▶ flow to the receiver (datagram.Tx), or a KernelSend
//	program ─▶ UDPConn ─▶ the kernel's socket
//	                Ended ─▶ counts; OFFER after some datagrams to a receiver that takes flows
//
// A Socket does not wait, but as SPEC.md says, and it has no goroutine: a receiver sleeps in the
// kernel, and there it gets its datagrams by the kernel. So deadlines, Close, errors and the
// runtime's poller work as they do without it.
//
// # Concurrency
//
// All methods of Socket may be called from many goroutines. Locks: that of Socket.in, or that of an
// outflow; below them those of package client.
//
// # Limits
//
// Linux. 64 flows to a socket, and 64 from it. What SPEC.md, 10.3, leaves to the kernel goes by the
// kernel, and so does everything once another part of the program has the descriptor (Leave).
package udp

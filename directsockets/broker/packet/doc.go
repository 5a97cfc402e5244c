// Package packet sends and receives messages with descriptors over connected Unix
// SOCK_SEQPACKET sockets, as brokers and their clients do.
//
// # Architecture
//
//	Outbox.Post ─▶ sendmsg ─▶ socket ─▶ recvmsg ─▶ Inbound.Next ─▶ bytes, Descriptors
//	       └─▶ queue, when the reader is slow
//
// Identify and OpenProof make what a client shows of a TCP socket: its addresses, and
// an O_PATH descriptor that refers to it without keeping it open.
//
// # Concurrency
//
// An Outbox serves many goroutines, an Inbound one.
//
// # Limits
//
// A packet has as many descriptors as its reader allows. No sender waits for a reader: an
// Outbox queues up to its limit, and then returns ErrSlow.
package packet

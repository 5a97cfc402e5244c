// Package packet sends and receives messages with descriptors over connected Unix
// SOCK_SEQPACKET sockets, as brokers and their clients do.
//
// # Architecture
//
//	Outbox.Post ─▶ sendmsg ─▶ socket ─▶ recvmsg ─▶ Inbound.Next ─▶ bytes, Descriptors
//	       └─▶ queue, when the reader is slow
//
// Identify and OpenProof are what a client shows of a TCP socket: its addresses, and an
// O_PATH descriptor that stands for it and does not keep it open.
//
// # Concurrency
//
// An Outbox serves many goroutines, an Inbound one.
//
// # Limits
//
// A packet has as many descriptors as its reader allows. Nobody waits for a reader: an Outbox
// queues up to its limit, and then says ErrSlow.
package packet

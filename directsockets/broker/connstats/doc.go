// Package connstats is the table of a process's connections that its broker reads: how each
// carries its bytes, why, and its counters (SPEC.md, 6.3).
//
// # Architecture
//
//	connection ─ Entry.Set, Counters ─▶ Table (memfd) ◀─ Read ─ broker ─▶ Connection ─▶ exn-tun status --sockets
//
// # Concurrency
//
// A Table serves many goroutines; each counter has one writer. The reader takes no lock: an
// entry whose sequence number changes while it is read is left out.
//
// # Limits
//
// The table has room for MaxEntries connections. Any more keep their counters to
// themselves. A process's statements about itself are not checked. What closed connections have
// moved is kept by the other end's address, for 256 of them at most.
//
// # Exports
//
// Half of the names are the reasons, modes and paths of SPEC.md.
package connstats

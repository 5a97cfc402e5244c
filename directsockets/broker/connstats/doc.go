// Package connstats is the table of a process's connections that its broker reads: how each
// carries its bytes, why, and what it has counted (SPEC.md, 6.3).
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
// At most MaxEntries connections. One that finds no room counts for itself, unseen. What a
// process writes about itself is not checked.
package connstats

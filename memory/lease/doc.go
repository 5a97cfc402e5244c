// Package lease has the life of a lease: one table of states for the three that have a lease.
//
// # Architecture
//
//	lender ── memory/pool ──┐
//	node   ── memory/pool ──┼─▶ Life: On(event) ─▶ the next state, and what its owner does then
//	program ── memory ──────┘
//
// # Concurrency
//
// The owner of a Life guards it by a lock. Functions may be called from many goroutines.
package lease

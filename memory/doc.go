// Package memory borrows memory of another node: a Segment is a lease on it, read and written at
// offsets. The node lends it with "exn-tun up --lend SIZE"; docs/memory.md is for its users.
//
// # Architecture
//
//	Borrow ── OpBorrow ──▶ this node ── OpLend ──▶ lender (package pool)
//	  ▼
//	Segment ── ReadAt, WriteAt ──▶ memory of the lender
//	  └◀─ OpRevoke, OpGone ── this node: the lender wants it back, has taken it, or is gone
//
// With a lender on the same host a read or a write is one copy, without a system call. With one on
// another host it goes through a window that the node shares with the program, in slots that are
// under way at the same time and end in any order. Package wire and SPEC.md have the messages.
//
// # Concurrency
//
// All methods of a Segment may be called from many goroutines. Overlapping writes at the same time
// leave bytes of both.
//
// # Limits
//
// What is written is not kept when the lender ends: a copy at another lender is the borrower's
// affair.
package memory

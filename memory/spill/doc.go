// Package spill has memory of several lenders as one: a Store spills to the next lender when one is
// full or wants its memory back, and gives back what is needed no more (Young, 3.5: spill and
// receive).
//
// # Architecture
//
//	Store ─ pieces ─┬─▶ lease of node 3        Watch ── load, faults ──▶ borrow more, or give back
//	                ├─▶ lease of node 5
//	                └─▶ none yet: zeros
//
// A piece is a part of the Store, and lies in one lease. When a lender wants its memory back, the
// pieces that are there move to other leases, which the Store borrows if needed. What was at a
// lender that ended is lost: reads of those pages fail, and writes find another lender.
//
// # Concurrency
//
// All methods of a Store may be called from many goroutines; it does one thing after the other. A
// Watch is for one goroutine.
//
// # Limits
//
// A Store reads and writes whole pages. A write waits for a lender that does not answer.
package spill

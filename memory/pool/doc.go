// Package pool is a node's side of leases of memory: it lends the memory of the node's host, and
// borrows for the processes of that host (SPEC.md of package memory).
//
// # Architecture
//
//	process ── OpBorrow ──▶ Server (borrower's node) ── OpLend ──▶ Server (lender)
//	   │                      │ own, peer: lender                    │ own, peer: holder
//	   │                      └──── memfd of the lease ◀─────────────┘ loan
//	   └── reads, writes ──▶ memory of the loan
//
// A loan is a memfd of its own. Its borrower gets the descriptor and nothing else of the lender's
// memory. The kernel has made it zeros, and no other borrower gets it afterwards. To take it back,
// the lender cuts the file to nothing: whoever still has it mapped, or has a descriptor, reaches
// nothing any more, and the pages are free.
//
// A connection of a process is a lease, and ends with it. A connection of a node is all leases of
// its processes, and ends with them.
//
// # Concurrency
//
// All methods of a Server may be called from many goroutines. One lock guards all but the outboxes
// and is not held while anything waits.
//
// # Limits
//
// The pages of a loan count to the control group (memcg) of whoever touches them first, usually the
// borrower. A host whose memory ends later than MemAvailable said has its OOM killer decide.
package pool

// Package storage models a parallel file system as the clients of a job see it, and chooses the
// storage target that each client writes to, and the I/O router on the way there (S. Neuwirth,
// chapter 7: fine-grained routing, section 7.5.1; balanced placement, section 7.5.2).
//
//	client ─ links of the network ─▶ router ─▶ group (LNET) ─▶ server (OSS) ─▶ target (OST)
//
// A Choice counts what it has given away, as the library of the thesis does for one job: it
// does not know what other jobs use.
//
// # Concurrency
//
// None: a Choice belongs to one goroutine.
//
// # Limits
//
// Each stage of a Shape has the same capacity in all, divided evenly among its parts. Only the
// ratio of times means something: the time of a writer is the use of the busiest part of its path.
package storage

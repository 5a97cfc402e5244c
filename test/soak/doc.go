// Package soak runs all kinds of traffic over the nodes of a fabric at once, breaks things at
// random meanwhile, and counts what was lost: nothing may be. docs/design/testing.md says how to
// run it.
//
// # Architecture
//
//	test process: plan of faults (from the seed), records, verdict, summary
//	   │ starts, kills, stops                    ▲ tallies, records (lines of JSON)
//	   ▼                                         │
//	┌ namespace of node 1 ─────────────────────────────────┐
//	│ exn-tun up     server (Go)    redis-server  (exn-run)│ ... node 4, whose
//	│                client (Go) ─┐ echo.py serve (exn-run)│     links are bad
//	│                             └ curl          (exn-run)│
//	└──────────────────────────────────────────────────────┘
//
// All programs of ours are this test binary again, with a job in the environment: exn-tun, exn-run,
// the servers and the clients of a node. Every connection carries numbered words, of a stream that
// its first message names, so whoever receives can tell at each byte whether it is the right one,
// or which other one it is, and at the end whether all have come.
//
// Another test moves numbered words over every path, many connections at a time, and breaks
// nothing (package paths).
//
// The programs judge nothing. They report each connection that did not go as it should, with the
// times of its begin and end, and the test process excuses it if a fault that can have done that
// hit one of its ends meanwhile (judge). What has arrived must be right in any case, and a direct
// socket has to live through the restart of a daemon.
//
// # Concurrency
//
// Everything runs at the same time; the order of faults is that of the plan.
//
// # Limits
//
// Root. The seed fixes what faults happen in which order, and the sizes that each client asks for,
// not how they interleave. A datagram may be lost; it may not be changed.
package soak

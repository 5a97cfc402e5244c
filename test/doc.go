// Package e2e has the end-to-end tests: real, unmodified programs over exn0.
//
// # Architecture
//
//	test process                                kernel
//	┌────────────────────────────────┐    ┌─────────────────────────┐
//	│ node 1 ── fabric ── node 2 ... │    │ namespace 1: ping, curl │
//	│   └ TUN        TUN ┘           ├────┤ namespace 2: servers    │
//	└────────────────────────────────┘    └─────────────────────────┘
//
// A lab holds the nodes of one test, each with an exn0 in a network namespace
// of its own, so that tests share no address or port with anything else on the
// machine. Nearly every test runs with the fast path and without
// (path=fast, path=netstack), and over IPv4 and IPv6.
//
// That a program works is not enough: a lab compares the counters of its nodes
// before and after, so that a test proves which way the frames went, and it
// fails every test in which something was dropped that the test did not
// explain. When it ends, no process, interface, thread, goroutine or descriptor
// may be left.
//
// Programs that are not installed make a test skip and name their Debian
// package. With CI=true or EXN_E2E_REQUIRE set they make it fail. packages.txt
// lists all packages.
//
// # Concurrency
//
// The tests run one after the other, because the leak checks look at the whole
// process. They may run beside the tests of other packages.
//
// # Limits
//
// The tests need root (CAP_SYS_ADMIN, CAP_NET_ADMIN) and skip without. They
// measure nothing: there is no threshold of time or throughput in them, only
// generous limits after which a program counts as hung.
package e2e

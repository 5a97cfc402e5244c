// Package pressure has the tests of what exnet does when something runs out: "slower,
// never wrong; clear errors; counters that say what happened".
//
// # Architecture
//
//	test process ── prlimit, status ──┐
//	  │ words, lines                  ▼
//	  ├── worker ── exn0 ── exn-tun up ══ exn-tun up ── exn0 ── worker
//	  └── ...        namespace a                   namespace b
//
// Nodes are daemons (exn-tun up), each a process of its own in a namespace of its own.
// Workers are programs that connect to each other and check every byte: this test's
// binary with package net (tcp) or direct sockets (go), and a C program under exn-run (c).
// Both speak the same words.
//
// # Concurrency
//
// The tests run one after the other; each has its own fabric.
//
// # Limits
//
// They need root, gcc and the go tool, and skip without root. In CI the sizes are reduced;
// -pressure.full has the full ones. docs/results/tested.md has the results. Nothing is asserted
// about time, beyond what counts as hung.
package pressure

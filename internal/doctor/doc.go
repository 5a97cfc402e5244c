// Package doctor looks at a host and says what exnet needs that is not there, and
// what would make it faster.
//
// # Architecture
//
//	Host: files of /proc, /sys, /dev; trials of the kernel ──▶ Examine ──▶ findings ──▶ table, JSON
//
// Each check is a function of a Host, and returns one Finding. A Host is the
// machine, or what a test makes of it.
//
// # Concurrency
//
// Examine belongs to one goroutine. Its trials take a thread of their own where they
// change something.
//
// # Limits
//
// It changes nothing. What it cannot see (the frequency of virtual CPUs, what the
// host of a virtual machine does with them) it says it cannot see.
package doctor

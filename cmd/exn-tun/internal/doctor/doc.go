// Package doctor examines a host and reports what exnet lacks there, and what
// would make it faster.
//
// # Architecture
//
//	Host: files of /proc, /sys, /dev; trials of the kernel ──▶ Examine ──▶ findings ──▶ table, JSON
//
// Each check is a function of a Host that returns one Finding. A Host is the machine, or a fake
// of a test.
//
// # Concurrency
//
// Examine belongs to one goroutine. Its trials run on a thread of their own where they change
// the thread.
//
// # Limits
//
// Package doctor changes nothing. A finding says what it cannot see (the frequency of virtual
// CPUs, what the host of a virtual machine does with them).
package doctor

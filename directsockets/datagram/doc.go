// Package datagram is the memory of a flow of datagrams, and its two ends: Tx, the sender's, and
// Rx, the receiver's. SPEC.md, section 10, in the directory above is the normative text;
// testdata/flow.golden has vectors, which the C library runs, too.
//
// # Architecture
//
//	sender S                       memfd                       receiver D
//	              ┌───────────────────────────────────┐
//	Create, NewTx │ header                            │ Map, NewRx
//	Collect ──────▶ by_kernel, busy           (S)     ─▶ Kernel
//	Send ─────────▶ ring of records           (S)     ─▶ Next, CopyTo, Consume
//	Settled ◀────── armed, taken, dry         (D)     ◀─ Arm, Took, Dry
//	              └───────────────────────────────────┘
//
// An end never waits, and never touches a socket but its end of the liveness pair, which says that
// the other end is gone. What it cannot send, its user sends by the kernel: KernelSends counts it.
//
// # Concurrency
//
// A Tx has one user at a time, and so has an Rx. Both ends may be
// used at the same time, as they are in two processes. Many goroutines may send by the kernel
// meanwhile.
//
// # Limits
//
// The other end can write all of the segment at any time. Each value is read once, checked, and the
// copy used. After an impossible one the end is broken: it touches nothing any more. A hostile
// sender can change the bytes of a record until they are copied.
package datagram

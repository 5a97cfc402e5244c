// Package rma is the NIC's RMA unit: PUT and GET of up to 8 MB between registered
// memory of two nodes, immediate PUT of up to 9 bytes, and the notifications that
// report them (thesis 3.2.1, 5.4.2). In libfabric's words: RMA read and write,
// and a completion queue per endpoint.
//
// # Architecture
//
//	origin                                        target
//	Get ─▶ requester ── request ────────────────▶ responder ─▶ ATU: read
//	        │ ATU: write                            │     └──▶ responder notification
//	        ▼                                       │
//	       completer ◀──────── response data ───────┘
//	        │ one copy, or the device's WriteAt
//	        └──▶ completer notification
//
//	Put ─▶ requester ── data ───────────────────▶ completer ─▶ ATU: write
//	        │ ATU: read                             └──▶ completer notification
//	        └──▶ requester notification
//
// A transfer is split into packets of 496 bytes by the hardware, and only the
// last one writes a notification, so that a notification carries the address of
// the last fragment (LastFragment, equations 5.1 and 5.2). The emulated DMA
// engine moves the whole transfer in one copy; fragments are arithmetic.
//
// An error reaches the origin in the notification that reports the operation there:
// the completer's for a GET, the requester's for a PUT. That notification has the
// same address as after success. The target gets no notification.
//
// # Concurrency
//
// Get, Put and PutImmediate are safe from many goroutines. Next and
// EnableInterrupt belong to one consumer at a time. Handlers and Device.WriteAt
// run in the goroutine that caused them, without a lock; on the mem link that is
// the goroutine that called Get or Put.
//
// # Limits
//
// Half of a notification queue is for the endpoint's own operations, which are
// refused with ErrAgain when it is full. The other half is for peers: when it is
// full, their operations fail with StatusOverrun before any data moves.
package rma

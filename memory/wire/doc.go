// Package wire has the messages of leases of memory: between a program and its node, and between
// the nodes of borrower and lender (SPEC.md of package memory).
//
// # Architecture
//
//	Message ─ SPEC.md 1, a packet of 64 bytes; Op, Status, Flags ─ its fields
//
// # Concurrency
//
// Everything here is a value.
//
// # Exports
//
// The operations, statuses and sizes of SPEC.md are a name each, which makes them more than 40.
//
// # Limits
//
// The C client has the same values in
// memory/c/exnmem.h.
package wire

// Package wire has what a node and the processes at its ports say to each other, and where things
// are in the memory that they share, as package ports and its clients both need it:
// ports/SPEC.md.
//
// # Architecture
//
//	Message ─ SPEC.md 1        Flow… ─ 2        Page…, Counter… ─ 3        Memory…, Table…, Entry ─ 4
//
// # Concurrency
//
// Everything here is a value.
//
// # Exports
//
// The operations, statuses and places of SPEC.md are a name each, which makes them more than 40.
//
// # Limits
//
// The C library has the same values in ports/lib/core/port.h and flow.h.
package wire

// Package uffd has userfaultfd(2): it fills, protects and poisons pages of another process, and
// hears of its page faults and of what it does with its memory.
//
// # Architecture
//
//	FD ─┬─ Read ─▶ Message: a fault, a fork, memory that moved, was given back or unmapped
//	    ├─ Register, Copy, WriteProtect, Wake, Poison ─▶ UFFDIO_...
//	    └─ Alive
//	Present ─▶ PAGEMAP_SCAN: which pages of a process are there
//
// # Concurrency
//
// An FD may be used by many goroutines, as far as the kernel's own rules go.
//
// # Limits
//
// Linux 6.8, for which Handshake asks: UFFDIO_MOVE and PAGEMAP_SCAN are younger than the rest.
package uffd

// Package address has the address spaces in which EXTOLL and DPGAS find the memory of other nodes:
// global addresses of partitions, the registers that turn a node's own addresses into them, and the
// intervals of EXTOLL's shared memory unit (SMFU).
//
// # Architecture
//
//	address of a node, 40 bits ── Registers ──▶ Global: partition, offset        (thesis 004, 4.5)
//	address of a node          ── Intervals ──▶ node, address there    (thesis 000, 3.1 to 3.4)
//
// A Space is one memory of several segments, each a partition, that is read and written by global
// addresses.
//
// # Concurrency
//
// A Global is a value. Registers and Intervals are changed by one goroutine while no other uses
// them. A Space may be used by many.
//
// # Limits
//
// Programs cannot load from, or store to, such an address: they call ReadAt and WriteAt. Memory of
// several nodes is not coherent, and no access crosses from one partition, or interval, to another.
package address

// Package rawbench measures the units of the emulated NIC themselves: VELO
// messages and RMA transfers between two nodes, without EXT-Eth, without IP. It
// measures a bare ring, too, which bounds what direct sockets can be.
//
// # Architecture
//
//	a process for each node, with shared memory between them
//
//	near (node 0) ── VELO messages ─▶ far (node 1)      ping-pong, rate, stream
//	              ◀── RMA GET ───────                   stream
//	              ── RMA PUT ─▶ ◀─ RMA PUT ──           ping-pong
//
//	ring: a process for each end, no NIC
//
//	near ── copy ─▶ 2 MiB of shared memory ── copy ─▶ far        stream
//
// The two ends exchange control data (addresses of registered memory, the end
// of a measurement) over VELO, with its own tags.
//
// Both ends poll, as programs over EXTOLL's user-space libraries do (thesis 3.2):
// the figures bound those of the layers above. On one CPU the ends of a ring yield.
//
// # Concurrency
//
// Each end is one thread.
//
// # Limits
//
// An end that polls takes a whole CPU, so that CPU time for a gigabyte says how
// long it took. With one CPU the ends wait for each other's time slice.
package rawbench

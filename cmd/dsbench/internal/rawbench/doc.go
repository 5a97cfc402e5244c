// Package rawbench has what package tcpbench measures below TCP and IP: VELO messages and RMA
// transfers of the emulated NIC between two nodes, without EXT-Eth, and a bare ring, which
// bounds what direct sockets can be. Each is a transport, whose connections package tcpbench
// uses as it does those of TCP.
//
// # Architecture
//
//	a process for each node, with shared memory between them
//
//	client ── VELO messages ─▶ server      ping-pong, rate, stream
//	       ── RMA GET ───────▶             stream: a read of its memory
//	       ── RMA PUT ─▶ ◀─ RMA PUT ──     ping-pong
//
//	ring: a process for each end, no NIC
//
//	client ── copy ─▶ 2 MiB of shared memory ── copy ─▶ server      stream
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

// Package ports lets the processes of a host use the NIC of their node: each opens VELO and
// RMA ports, as EXTOLL's libvelo and librma do on hardware (thesis 3.2.3, 3.3.2). The C
// libraries librma2 and libvelo2 (folder lib) are its clients, and programs in Go by nic.Attach
// (package fabric/link/attach).
//
// # Architecture
//
//	process A ── librma2 ──┐ open, connect                ┌── librma2 ── process B
//	     │                 ▼                              ▼        │
//	     │            Server (node 1) ◀── PeerConnect ──▶ Server (node 2)
//	     │                 │ grants: flow, bell, memory            │
//	     └─ writes ─▶ flow of A to B, in memory that only A and B share ─▶ reads
//	     └─ PUT, GET ─▶ memory of B: what B has registered
//
// A Server is control only: it assigns VPIDs, makes the memory of a port, and grants it,
// once for each pair of ports, to a peer that may have it. Data moves between the two
// processes; no node wakes up for it. SPEC.md has the messages and the layouts.
//
// The nodes connect ports of different hosts: a Server reads the flow of such a pair, carries out
// the port's operations, and writes the flow to it (farnode.go, farwork.go, flow.go).
//
// Of the memory that a process can write, the Server maps a port's page, in which it only counts
// events and which it never reads. For ports that ports of other hosts use, it also maps flows and
// registered memory, and believes nothing that is there. The status reads a port's memory by
// pread(2), and nothing depends on the result.
//
// Pages that cannot move into a port's memory stay in their process, which gives the node a
// descriptor of that memory; the node copies for peers (reach.go).
//
// # Security
//
// A port may reach the ports of its own user that have the same protection ID. Root's ports reach
// all, and every port that they connect to may reach them. A peer gets all of a port's registered
// memory, as on hardware, where anyone who knows a VPID and an address may use it. The registration
// ends with its owner. A peer that keeps the mapping keeps pages that the owner no longer uses.
//
// # Concurrency
//
// All methods of a Server may be called from many goroutines. Its lock is not held while
// anything waits.
//
// # Limits
//
// VPIDs below FirstVPID are the node's own. Ports of other hosts (Far) are reached through the
// nodes, which do an operation of a pair at a time.
package ports

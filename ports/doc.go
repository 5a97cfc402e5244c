// Package ports lets the processes of a host use the NIC of their node: each opens VELO and
// RMA ports, as EXTOLL's libvelo and librma do on hardware (thesis 3.2.3, 3.3.2). The C
// libraries librma2 and libvelo2 (folder lib) are its clients.
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
// A Server is control only: it gives out VPIDs, makes the memory of a port, and grants it,
// once for each pair of ports, to a peer that may have it. Data moves between the two
// processes; no node wakes up for it. SPEC.md has the messages and the layouts.
//
// Of what a process can write only the page is mapped here, to count events in, which is never
// read: what the status shows of a port's memory is read by pread(2), and nothing depends on it.
//
// # Security
//
// A port may reach the ports of its own user that have the same protection ID; those of root
// reach all, and may be reached by all whose user root's programs connect to. A peer gets the
// registered memory of a port whole, as on hardware where whoever knows a VPID and an address
// may use it. What ends with the owner: the registration. A peer that keeps the mapping keeps
// pages that the owner does not use any more.
//
// # Concurrency
//
// All methods of a Server may be called from many goroutines. Its lock is not held while
// anything waits.
//
// # Limits
//
// Nodes of one host: a port on another host is refused with StatusNoNode. VPIDs below FirstVPID
// are the node's own. A VELO multicast is not sent.
package ports

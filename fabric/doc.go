// Package fabric is the vocabulary of the emulated EXTOLL NIC: node IDs, virtual
// process IDs, multicast groups, the names of the functional units, the status
// of an RMA operation, and the errors that all units share.
//
// # Architecture
//
// The NIC itself is in the packages below this one (thesis, chapter 3):
//
//	          nic                 joins the units of one node
//	 ┌─────────┼─────────┐
//	velo      rma       atu       messages · PUT and GET · registered memory
//	 └────┬────┘
//	    route                     routing and multicast tables
//	      │
//	   crossbar ── topo           with a topology: load per link · nodes, links, paths
//	      │
//	    link                      the seam to other nodes
//	      │
//	  link/mem, link/shm          all nodes in one process, on one host
//
// docs/design/fabric.md has the contract: bit layouts, credits, interrupts, errors,
// and which parts come from the thesis.
//
// # Concurrency
//
// Everything here is a value.
//
// # Limits
//
// 65,536 nodes, 256 VPIDs per unit, 64 multicast groups.
package fabric

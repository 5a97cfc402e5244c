// Package topo describes how a fabric is wired: its nodes and links, the routing
// tables that follow from them, multicast trees, the load of each link, and
// drawings. It moves no data.
//
// # Architecture
//
//	NewTorus, NewMesh ─┐
//	NewGrid, New ──────┼─▶ Topology ──▶ Routes ──▶ Table    node → port, per node
//	topofile.Read ─────┘       │          ├──────▶ Tree     source, members → links
//	                           │          └─ Carry ─┐
//	                           ├────────▶ Load ◀────┘       packets, bytes per link
//	                           └────────▶ Drawing           text, SVG
//
// A node has six ports for a torus and a seventh (thesis 3.1). A routing table
// has the hardware's form (thesis 5.4.5.2): a global table of 64 segments whose
// entries lead to local tables of 1024 nodes whose entries are output ports. Equal
// local tables are stored once for all nodes: a torus of 65,536 nodes needs a few
// thousand of them, and not four million.
//
// Routing is deterministic and minimal. A torus or mesh routes in dimension
// order, x before y before z; on a ring of even size, the node just opposite is
// reached in + direction from even coordinates and in - direction from odd ones,
// so that both directions carry the same. A free topology, or a grid with a cut
// link, takes shortest paths, the lowest port first; pairs whose path did not
// use the cut link keep theirs.
//
// # Concurrency
//
// Topology and Tree are immutable. Routes makes a node's table on first use;
// all its methods, and those of Load, may be called from many goroutines. Carry
// takes no lock once the tables are there.
//
// # Limits
//
// At most 65,536 nodes, and one link between two nodes: a table has one port per
// destination, so a second link would carry nothing. Dimension-order routing is free
// of deadlocks on a mesh. On the rings of a torus, and for shortest paths, hardware
// needs virtual channels that change at a date line. These are not emulated, because
// no packet waits in an emulated crossbar.
//
// A multicast has a tree of minimal paths for each source. EXTOLL's multicast table
// has one entry per group, which all sources share; a shared tree cannot be minimal
// for all of them. Tree.Ports returns that entry for one source.
//
// # Exports
//
// Fourteen of the names are the constants of ports and kinds.
package topo

// Package graph describes the networks that a study runs on: hosts, switches
// and the channels between them, with capacities.
//
// # Architecture
//
//	Parse("torus:8x8"), Parse("tree:4x5/2"), Parse("fattree:8") ─┐
//	Parse("lab.toml") ── fabric/topo ── FromTopology ────────────┼─▶ Graph ──▶ GraphML, SVG
//	Parse("net.graphml") ── ReadGraphML ─────────────────────────┘
//
// A channel is one direction of a link. Vertices and channels are numbered from 0
// in the order of their creation, and all results are slices indexed by that
// number. In a torus, a mesh and a topology file every vertex is a host that also
// forwards; in a tree the hosts are leaves.
//
// A channel's number in a Graph made of a topo.Topology is that of the topology:
// channel 2l is link l from A to B, 2l+1 back.
//
// # Concurrency
//
// A Graph is immutable.
//
// # Limits
//
// GraphML is read for its graph: ports of hyperedges, nested graphs and layout are
// skipped. A drawing has at most 4096 vertices.
package graph

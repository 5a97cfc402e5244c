// Package routing chooses the paths of flows through a network, and counts the load
// on each channel.
//
// # Architecture
//
//	New("minmax", Graph) ──▶ Router ──Route(flows, Load)──▶ a path for each flow
//	                            │                               │
//	                 distances to each host                 Load.Add, Load.Remove
//	                                                            │
//	                                     paths ──▶ Cycle: a cyclic channel dependency?
//
// Static routers look only at the ends of a flow:
//
//	tables   the fabric's own routing tables (torus, mesh, topology file); else the
//	         first of all shortest paths
//	dor      dimension order, of a torus or mesh that has no link cut
//	dmodk    a shortest path; where it branches k ways, the way (destination / those
//	         below) mod k
//	smodk    the same with the source
//	random   a shortest path at random, the same for the same seed and pair
//
// The others look at the load, the heaviest flow first (K. Takahashi, 2019):
//
//	minsum   the shortest path whose channels carry the least in all
//	minmax   the shortest path whose busiest channel carries the least
//	refine   that of the tables, from which a flow moves where this makes the busiest
//	         channel of its way less busy, until none does: never worse than the tables
//	alg3     Algorithm 3: the path that is cheapest at 1 + flows for a channel, which
//	         need not be a shortest one; in the order of the flows
//
// adaptive divides a flow into 16 parts. Each takes at every vertex the channel of a
// shortest path that carries the least there, as packets do whose crossbars know only
// their own channels.
//
// Load is relative to the capacity of the channels.
//
// # Concurrency
//
// A Router keeps distances and scratch memory: one goroutine at a time.
//
// # Limits
//
// Distances to all hosts take two bytes for each pair of a vertex and a host (or its
// switch): 200 MB for a torus of 10,000 nodes. alg3 runs Dijkstra's algorithm for each
// flow: unlike the others, it is not meant for millions of flows.
package routing

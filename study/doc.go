// Package study simulates which links of a network the jobs of a parallel machine
// load, by placement and routing.
//
// # Architecture
//
//	ReadScenario(file.toml) ─▶ Scenario ─Runs─▶ Setting ─Prepare─▶ Config ─▶ Simulate ─▶ Result
//	                                               │                 │
//	                     one of each list's values ┘      fabric/graph, pattern, routing
//
// It simulates flows, not packets (K. Takahashi, 2019, chapter 2): a job's traffic
// loads the links from its start to its end, with the bytes of the whole run. So it
// finds hot spots and compares placements and routers, in seconds for a million
// flows; it cannot say how long a job takes. Three events drive it: a job arrives,
// starts, ends. Arrivals queue; the scheduler starts jobs that fit; the selector
// assigns whole nodes; the placement puts ranks on their cores; the router finds a
// path for each pair of nodes that has traffic.
//
// # Concurrency
//
// None: a simulation runs in the goroutine of its caller.
//
// # Limits
//
// Traffic within a node loads no link. A job's duration is given, whatever the load.
package study

// Package lab is the setting of "exn-tun demo": nodes with an exn0 each, a veth pair for
// comparison, and the traffic over both.
//
// # Architecture
//
//	New ► Lab: a node.Cluster, in network namespaces without names
//	       ├─ Exn, Veth ► Path ► Transfer, Pinger.Ping, Path.TCP (package tcpbench), Redis
//	       ├─ Broadcast, from every node to all others
//	       └─ FramesOf, Drops: what the nodes counted meanwhile
//
// # Concurrency
//
// One goroutine makes and closes a Lab. Many may send traffic at once.
//
// # Limits
//
// All nodes are in this process. The namespaces end with it, however it ends.
package lab

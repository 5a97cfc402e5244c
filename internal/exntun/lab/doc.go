// Package lab is what "exn-tun demo" happens in: nodes with an exn0 each, a veth pair to
// compare them with, and the traffic that is sent over both.
//
// # Architecture
//
//	New ► Lab: a node.Cluster, in network namespaces without names
//	       ├─ Exn, Veth ► Path ► Transfer, Pinger.Ping, Path.TCP (package tcpbench)
//	       ├─ Broadcast, from every node to all others
//	       └─ FramesOf, Drops: what the nodes counted meanwhile
//
// # Concurrency
//
// A Lab is made and closed by one goroutine. Traffic may be sent by many at once.
//
// # Limits
//
// All nodes are in this process. The namespaces end with it, however it ends.
package lab

// Package paths moves numbered words (package numbered) over every path that carries bytes: direct
// sockets of Go, of unmodified programs in C and in Go, within a host, between nodes and between
// hosts, exn0, and ports of a NIC. docs/design/testing.md has the table.
//
// # Architecture
//
//	Run ─▶ place   namespaces, nodes and servers: a host without nodes, two nodes on one host by
//	       │       shared memory or by bad links, two hosts by streams, TLS or libfabric
//	       └─▶ path  a server and a client in that place, and what of their bytes went that way
//	             └─▶ a Row for each number of connections
//
// Hosts are network namespaces, joined by a veth pair, whose nodes have directories of their own.
//
// # Concurrency
//
// Places come one after the other; in one, all servers run at the same time, and one client.
//
// # Limits
//
// Root. A row fails if a byte is wrong, a connection ends other than planned, or next to nothing
// went the way that the row names. Time fails nothing, but for what hangs.
package paths

// Package node puts a node together: the NIC, the exn0 interface, the IP stack
// and the host's TUN device in a network namespace.
//
// # Architecture
//
//	kernel of namespace ─► TUN ─► txloop ─► ipstack ─► exn ─► NIC ─► fabric
//	kernel of namespace ◄─ TUN ◄────────── ipstack ◄─ exn ◄─ NIC ◄─ fabric
//	addresses, routes of exn0 ─► hostnet.Watcher ─► ipstack
//
// A Cluster holds several nodes in one process, on a fabric of its own: what
// demonstrations, benchmarks and tests use.
//
// # Concurrency
//
// Statistics may be read at any time. A Node or Cluster is run once and closed
// once it has ended.
package node

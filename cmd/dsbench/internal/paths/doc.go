// Package paths has the paths between two programs that dsbench measures: the
// kernel's TCP over several devices, and direct sockets.
//
// # Architecture
//
//	Kinds, KindOf ► Kind.Open ► Path: Setup, Measure (package tcpbench), Close
//
// Package tcpbench measures all of them, with a process at either end. These
// processes, and others, are copies of dsbench, which starts itself with a hidden command
// (WorkerOf, package worker):
//
//	worker            one end of a measurement
//	node-worker       the two nodes of exn, with their exn0
//	daemon-worker     one of the two nodes of exn-shm or of exn-stream, a daemon with its exn0
//	broker-worker     the broker of path ds
//	relay-worker      the loop of path relay
//
// The nodes have their own processes so that their CPU time can be measured and
// added. Those of exn-shm are what "exn-tun up" runs (package daemon): they meet in a
// temporary directory, and the shm link joins them. So exn and exn-shm together show
// the cost of a process boundary. Those of exn-stream, exn-ofi and ds-fabric share only a veth
// pair, over which daemons of two hosts meet; the TCP of their link uses cubic.
//
// Direct sockets (ds) are measured by the same workers, which make their
// connections with package directsockets. Their rows guarantee that the bytes went
// direct: a measurement with more than a hundredth over TCP fails. Only crr is
// different: a connection for one request stays on TCP, by design.
//
// # Concurrency
//
// A Path is used by one goroutine at a time.
//
// # Limits
//
// Most paths make network namespaces and interfaces, which takes root or a user
// namespace.
package paths

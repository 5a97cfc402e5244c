// Package programs measures real programs over loopback, as they are and under exn-run: the
// command "dsbench programs".
//
// # Architecture
//
//	Measure -> Options; Pairs -> Pair.Measure -> a server and its clients on each path -> rows
//
// A Pair is a server, a client and what the client prints. The runs of both paths
// alternate, so that other work on the machine affects both alike. A run in which no connection
// of the client was direct is an error, by exn-run's report.
//
// # Concurrency
//
// One measurement runs at a time.
//
// # Limits
//
// Programs that are not installed are left out. The server's port was free a moment before, and
// may be taken since.
package programs

// Package udp measures UDP between two programs of this host, by the kernel and by exn-run: the
// command "dsbench udp".
//
// # Architecture
//
//	Measure ─▶ Take ─▶ udpbench.c, compiled ─▶ as it is, and under exn-run --loopback ─▶ rows
//
// The two runs of a round follow each other, so that other work on the machine affects both alike.
//
// # Concurrency
//
// One measurement runs at a time.
//
// # Limits
//
// It needs a C compiler. Datagrams that are lost are counted by the two programs, on both paths:
// where the kernel, the library or a queue has dropped them is not told.
package udp

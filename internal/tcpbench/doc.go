// Package tcpbench measures between two ends of a connection: bandwidth (Stream),
// latency (PingPong), message rate (Rate), and how fast connections come and go
// (CRR).
//
// # Architecture
//
//	Between(client, server) -> Pair -> Measure
//	                             |
//	                             +--> a worker process at either end
//
// On the kernel's sockets each end is a separate process: the program starts
// itself as a worker (package worker) in that end's network namespace.
//
//	Pair                                        worker (listens)
//	   | {"kind":"stream","listens":true,...}      |
//	   | ----------------------------------------> |
//	   |                 {"note":"10.0.0.2:40001"} | listens there
//	   | <---------------------------------------- |      worker (connects)
//	   | {"kind":"stream","address":"10.0.0.2:40001",...}    |
//	   | --------------------------------------------------> |
//	   |                          {"result":{"bytes":...}}   |
//	   | <-------------------------------------------------- |
//
// Two ends in one Go process would share a scheduler, which would wake them
// instead of the kernel. A worker makes plain blocking system calls on locked
// threads, as a C program does, without the poller of the Go runtime.
// Transports other than the kernel's sockets have their own connections (conn);
// everything else is the same.
//
// # Method
//
// Stream: the receiver counts what it gets from the end of the warm-up on, for
// the given time, and then resets the connections; the sender writes until
// then. Nagle's algorithm is on, as in netperf and iperf3, unless told otherwise.
// Rate is the same with TCP_NODELAY; the receiver reads into a large buffer, as
// programs with small messages do. Ping-pong: the client times every round trip;
// TCP_NODELAY is on. CRR: the client times from connect to the end of the
// connection; the server closes first, so that no client runs out of ports.
//
// The congestion control is set on every socket, because the system's default
// differs from machine to machine, and a namespace cannot set its own.
//
// The clock is read once for a round trip, and once for 16 KB or 64 messages of
// what goes one way: reading it takes as long as moving a message may.
//
// # Concurrency
//
// A measurement has the machine to itself, or measures what else goes on.
//
// # Limits
//
// CPU time is what the kernel charges to the processes of the path. Work that
// it does in interrupts and kernel threads is charged to whoever was running,
// or to nobody.
package tcpbench

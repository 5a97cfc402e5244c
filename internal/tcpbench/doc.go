// Package tcpbench measures TCP between two ends: bandwidth (stream) and latency
// (ping-pong).
//
// # Architecture
//
//	Between(client, server) -> Pair -> Stream, PingPong
//	                             |
//	                             +--> a worker process at either end
//
// On the kernel's sockets sender and receiver are processes of their own: the
// program starts itself as a worker (package worker) in either end's network
// namespace.
//
//	Pair                                        worker (receiver)
//	   | {"role":"receive","address":...}          |
//	   | ----------------------------------------> |
//	   |                 {"note":"10.0.0.2:40001"} | listens there
//	   | <---------------------------------------- |      worker (sender)
//	   | {"role":"send","address":"10.0.0.2:40001",...}     |
//	   | --------------------------------------------------> |
//	   |                          {"result":{"bytes":...}}   |
//	   | <-------------------------------------------------- |
//
// Two ends in one Go process would share a scheduler, and would be woken by it
// and not by the kernel. A worker does plain blocking system calls on locked
// threads, as a C program does; the poller of the Go runtime has no part in it.
//
// Where there are no sockets of the kernel, StreamOver and PingPongOver measure
// in the same way over connections whose two ends are both in one process.
//
// # Method
//
// Stream: the receiver counts what it gets from the end of the warm-up on, for
// the given time, and then resets the connections; the sender writes until
// then. Nagle's algorithm is on, as in netperf and iperf3. Ping-pong: the
// client times every round trip; TCP_NODELAY is on.
//
// The congestion control is set on every socket, because the system's default
// differs from machine to machine, and a namespace cannot set its own.
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

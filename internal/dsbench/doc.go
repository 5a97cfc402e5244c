// Package dsbench is the program dsbench: it measures TCP over several paths
// side by side, and prints what it found for people or for programs.
//
// # Architecture
//
//	options -> schedule -> path -> sample -> row -> table or JSON line
//
// A measure (stream, pingpong) is taken on every path (lo, veth, ...) in turn,
// A B A B, so that whatever else the machine does falls on all of them alike.
// The figure is the median over the runs; beside it stand the extremes and the
// ratio to a control path of the same run.
//
// On the kernel's paths sender and receiver are processes of their own: dsbench
// starts itself as "dsbench worker" in the path's network namespaces and talks
// to it in JSON lines.
//
//	dsbench                                     worker (receiver)
//	   | {"role":"receive","address":...}          |
//	   | ----------------------------------------> |
//	   |            {"listening":"10.0.0.2:40001"} |
//	   | <---------------------------------------- |      worker (sender)
//	   | {"role":"send","address":"10.0.0.2:40001",...}     |
//	   | --------------------------------------------------> |
//	   |                          {"result":{"bytes":...}}   |
//	   | <-------------------------------------------------- |
//
// Two ends in one Go process would share a scheduler, and would be woken by it
// and not by the kernel. A worker does plain blocking system calls on locked
// threads, as a C program does; the poller of the Go runtime has no part in it.
// The same code runs on lo, veth and exn. A worker ends when its standard input
// does, so none outlives dsbench, however that ends.
//
// The two nodes of exn, with their exn0, are in one further worker, so that
// their CPU time can be told and added. Netstack is a library: its two nodes and
// both ends of the measurement are in one worker by necessity, and share a
// scheduler. That favours it in latency, where a goroutine wakes another without
// the kernel, and costs it in bandwidth, where all share the same CPUs.
//
// # Method
//
// Stream: the receiver counts what it gets from the end of the warm-up on, for
// the given time, and then resets the connections; the sender writes until
// then. Nagle's algorithm is on, as in netperf and iperf3. Ping-pong: the
// client times every round trip and halves it; TCP_NODELAY is on. A run's
// figure is its median; percentiles are over the round trips of all runs.
//
// The congestion control is set on every socket, because the system's default
// differs from machine to machine, and a namespace cannot set its own.
//
// In a ping-pong the two ends are bound to different CPUs unless told
// otherwise. Two nodes share none; and the scheduler, left alone, sometimes puts
// both ends on one CPU, which is several times faster, and sometimes not.
// Netstack's ends are goroutines and cannot be bound.
//
// # Concurrency
//
// One measurement runs at a time. A Path is used by one goroutine at a time.
//
// # Limits
//
// CPU time is what the kernel charges to the processes of the path. Work that
// it does in interrupts and kernel threads is charged to whoever was running,
// or to nobody.
package dsbench

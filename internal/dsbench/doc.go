// Package dsbench is the program dsbench: it measures TCP and what replaces it
// over several paths side by side, and prints what it found for people or for
// programs.
//
// # Architecture
//
//	options -> schedule -> path -> sample -> row -> table or JSON line
//
// A measure (stream, pingpong, crr, rate, cpu) is taken on every path (lo, veth,
// ...) in turn, A B A B, so that whatever else the machine does falls on all of them alike.
// The figure is the median over the runs; beside it stand the extremes and the
// ratio to a control path of the same run.
//
// On the kernel's paths package tcpbench measures, with a process at either end;
// the same code runs on lo, veth, exn and exn-shm. These processes, and five
// more kinds, are dsbench again, started by itself with a hidden command
// (package worker):
//
//	worker            one end of a measurement over the kernel's TCP
//	node-worker       the two nodes of exn, with their exn0
//	daemon-worker     one of the two nodes of exn-shm, a daemon with its exn0
//	netstack-worker   one measurement over netstack
//	broker-worker     the broker of path ds
//	raw-worker        one measurement of VELO or RMA themselves, or one end of it
//
// The nodes have processes of their own so that their CPU time can be told and
// added. Those of exn-shm are what "exn-tun up" runs (package daemon): they meet
// in a temporary directory, and the shm link joins them. So exn and exn-shm tell
// what a border between processes costs.
//
// Netstack is a library: its two nodes and both ends of the measurement are in
// one worker by necessity, and share a scheduler. That favours it in latency,
// where a goroutine wakes another without the kernel, and costs it in bandwidth,
// where all share the same CPUs.
//
// Direct sockets (ds) are measured by the same workers, which make their
// connections with package directsockets. A row of theirs says that the bytes went
// the direct way: a measurement of which more than a hundredth went over TCP fails.
// Only crr is different: a connection for one request stays on TCP, by design.
//
// # Method
//
// How a single run is measured is said in package tcpbench. A run's figure of a
// ping-pong is half its median round trip; percentiles are over the round trips
// of all runs.
//
// In a ping-pong the two ends are bound to different CPUs unless told
// otherwise. Two nodes share none; and the scheduler, left alone, sometimes puts
// both ends on one CPU, which is several times faster, and sometimes not.
// Netstack's ends are goroutines and cannot be bound.
//
// How far the CPUs are from each other is measured before each size (package
// coredist) and is part of every result: what goes through shared memory depends
// on it more than on anything else.
//
// # Concurrency
//
// One measurement runs at a time. A Path is used by one goroutine at a time.
//
// # Limits
//
// CPU time is what the kernel charges to the processes of the path; see package
// tcpbench.
package dsbench

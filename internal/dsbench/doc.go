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
// What a path is, and which processes are on it, is package paths. Real programs
// (package programs) and the whole report (package report) make rows of the same form.
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
// One measurement runs at a time.
//
// # Limits
//
// CPU time is what the kernel charges to the processes of the path; see package
// tcpbench.
package dsbench

// Package bench is the program dsbench: it measures TCP and its replacements
// over several paths side by side, and prints the results for people or
// programs.
//
// # Architecture
//
//	Measure (package measure) -> options -> schedule -> path -> sample -> row -> table or JSON line
//
// A measure (stream, pingpong, crr, rate, cpu) is taken on every path (lo, veth,
// ...) in turn, A B A B, so that other work on the machine affects all of them alike. The
// figure is the median over the runs, with the extremes and how many times as good as a control
// path of the same run it is.
//
// Package paths defines the paths and their processes. Real programs (package
// programs) and the whole report (package report) make rows of the same form.
//
// # Method
//
// Package tcpbench describes how a single run is measured. A run's figure of a
// ping-pong is half its median round trip; percentiles are over the round trips
// of all runs.
//
// In a ping-pong the two ends are bound to different CPUs unless told
// otherwise. Two nodes share none; and the scheduler, left alone, sometimes puts
// both ends on one CPU, which is several times faster, and sometimes not.
// Netstack's ends are goroutines and cannot be bound.
//
// The distance of the CPUs is measured before each size (package coredist) and
// is part of every result: shared memory depends on it more than on anything
// else.
//
// # Concurrency
//
// One measurement runs at a time.
//
// # Limits
//
// CPU time is what the kernel charges to the processes of the path; see package
// tcpbench.
package bench

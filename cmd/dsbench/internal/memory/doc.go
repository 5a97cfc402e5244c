// Package memory measures the memory of other nodes beside its controls: the command "dsbench
// memory".
//
// # Architecture
//
//	Measure ─▶ Take ─▶ lab: namespaces with a lender and a borrower on one host, and two of
//	              │         different hosts ─▶ exn-tun up, each a process
//	              └─▶ each round: every part (get, fault, row, redis, fio, hosts), and in it every
//	                  path in turn ─▶ values ─▶ rows
//
// A part is prepared once, before the first round. One whose programs are not installed is left
// out.
//
// # Concurrency
//
// One measurement runs at a time.
//
// # Limits
//
// It takes root. The time of a core in part hosts is that of the whole machine: other work on it
// counts.
package memory

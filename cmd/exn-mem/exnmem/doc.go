// Package exnmem is the program exn-mem: it runs programs whose memory is partly on another node.
//
// # Architecture
//
//	exn-mem run ─┬─ a lease (package memory) ◀── pages ──▶ package pager
//	             └─ the program + libexnmem.so ◀─ faults ─┘
//
// The pager runs in exn-mem itself, one for each exn-mem: what a program does to its pager it does
// to itself.
//
// # Concurrency
//
// Run runs on the main goroutine; the pager has a thread of its own.
//
// # Limits
//
// Those of package pager. exn-mem waits until the last process of the program has ended.
package exnmem

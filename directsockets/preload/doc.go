// Package preload is the library that takes unmodified programs to direct sockets, in C:
// libexnds.so, for LD_PRELOAD. The Go part finds or builds it.
//
// # Architecture
//
//	program
//	   │ connect, accept, send, recv, poll, epoll_wait, close, fork, exec, ...
//	   ▼
//	hooks_*.c, fdtab.c, epoll.c, pollset.c    the interposed calls; descriptors; waiting
//	   │ sock.h
//	   ▼
//	setup.c, life.c, send.c, recv.c, modes.c, one connection: from the shadow to a segment
//	ready.c, spin.c, sleep.c                  and back, bytes, readiness, sleeping
//	   │                        │
//	   ▼                        ▼
//	segment.c, tx.c, rx.c    broker.c, wire.c, stats.c
//	queues and rings         offers and claims, the page, the statistics
//
// The program's descriptor stays its TCP socket, the shadow. ../SPEC.md is normative; the
// vectors of ../segment/testdata and ../broker/testdata are run against this C as against
// the Go packages.
//
// # Concurrency
//
// The library has no thread. The state of a connection lies in memory that forked
// processes share (arena.h), with a lock for each direction that survives its
// holder; the order of the locks is in inner.h.
//
// # Limits
//
// Linux 5.1 with glibc or musl. TCP sockets only. A process has at most 16384 direct
// connections (mappings), 4096 listeners. Processes that share a connection after
// fork sleep on one doorbell: one of them for all. A handler that interrupts a call of
// the library and sends or receives on the same connection gets EAGAIN.
package preload

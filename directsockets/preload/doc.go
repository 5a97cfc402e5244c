// Package preload is the C library that gives unmodified programs direct sockets:
// libexnds.so, for LD_PRELOAD. The Go part finds or builds it.
//
// # Architecture
//
//	program
//	   │ connect, accept, send, recv, poll, epoll_wait, close, fork, exec, ...
//	   ▼
//	hooks/      the interposed calls, a file for each family
//	   ▼
//	fd/         descriptors, epoll instances, sets of poll
//	   ▼
//	conn/       one connection: from the shadow to a segment and back, bytes,
//	   │        readiness, sleeping; the broker, the statistics
//	   ▼
//	segment/    queues and rings in shared memory, locks
//
// The program's descriptor stays its TCP socket, the shadow. ../SPEC.md is normative; this C
// runs the same vectors of ../segment/testdata and ../broker/wire/testdata as the Go packages.
//
// UDP sockets (conn/dgram.h, segment/dgram.h) need no doorbell: a receiver that sleeps gets its
// datagrams by the kernel.
//
// # Concurrency
//
// The library has no thread. The state of a connection lies in memory that forked
// processes share (segment/arena.h), with a lock for each direction that survives its
// holder (segment/lock.h); the order of the locks is in conn/inner.h. A signal that
// arrives in a critical section is handled at its end, so a handler may make any call, on
// any connection, and may leave the call that it interrupts by siglongjmp
// (segment/thread.h).
//
// # Limits
//
// Linux 5.1 with glibc or musl. TCP and UDP sockets only. A process has at most 16384 direct
// connections (mappings), 4096 listeners. Processes that share a connection after fork have one
// doorbell, on which one of them sleeps for all. The library cannot defer handlers that a
// program installs by a system call of its own (rt_sigaction), nor those of faults inside a
// call: if they send or receive on the connection that they interrupt, they may get EAGAIN, and
// what they connect stays on TCP.
package preload

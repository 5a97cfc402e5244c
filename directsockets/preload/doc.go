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
// The same sources make libexnds-free.so, for static programs and Go's, which have no C library
// that could be replaced (free/, BuildFree). It has what it needs of one, and each thread's
// variables in a slot that the GS base names (free/slot.h). System calls come to it as numbers,
// from places in the program's code (free/entry.c): package inject puts it there. In a program of
// Go with cgo, which has a C library, libexnds.so takes Go's calls as well (hooks/go.c).
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
// what they connect stays on TCP. In a static program the library does not see what memory the C
// library or Go's runtime unmaps: where the kernel says EFAULT to such a pointer, the library may
// get SIGSEGV. Nor does it see a jump out of a handler before the program's next call: a wait that
// was left so, in poll or epoll, keeps its connections open.
package preload

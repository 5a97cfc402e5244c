// Package preload is the C library that makes the memory of an unmodified program known to the
// pager: libexnmem.so, for LD_PRELOAD. The Go part finds or builds it.
//
// # Architecture
//
//	program's start, and fork's child ─▶ lib/start.c ─▶ a thread: agent.c
//	                                                 ├─ userfaultfd ──────────────▶ pager
//	                                                 └─ commands ◀─ lib/wire.h ───────▶ pager
//	mremap           ─▶ lib/remap.c: area by area, where the kernel sees more of them than the program
//	syscall of futex ─▶ lib/futex.c: again, when the word is here
//	madvise          ─▶ lib/guard.c: the pager forgets what is behind a guard
//
// No other call of the program is hooked. The agent does the one thing that the kernel lets only a
// process itself do: to move pages within its memory (UFFDIO_MOVE), and to give them back
// (MADV_DONTNEED) where they were moved to.
//
// # Concurrency
//
// The agent is a thread of the process with descriptors of its own, which the program neither sees
// nor closes. It touches no memory but the library's own area, which is never paged; it uses no
// function of the C library, and all its signals are blocked.
//
// # Limits
//
// x86-64 and arm64 with pages of 4 KiB, glibc. A child that is made by the system call clone, and
// not by fork, has no agent: its pages come, and never leave. A process has one more thread, so
// calls that want a single one (unshare of a user namespace) fail.
package preload

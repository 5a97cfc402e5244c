// Package pager keeps the memory of unmodified programs within a share of this host's: pages that
// were not used for long go to a store, such as a lease on another node's memory, and come back
// when they are touched.
//
// # Architecture
//
//	a process ─ faults, forks, moves of its memory ─▶ messages ─▶ fault   ─▶ fill, fetch, ahead
//	  ▲  (userfaultfd, package uffd)                             ├▶ fork    ─▶ a process of its own
//	  │                                                          └▶ remap, unmap, remove
//	  │ moves pages to standby, drops them           tick ─▶ adopt, scan: what is to be paged
//	  └─ agent: a thread of the library ◀─ commands ─ balance ─▶ evict ─▶ save ─▶ Store
//	     (package preload)
//
// A page is untouched, resident, on standby or remote (state in pages.go). The oldest resident
// pages leave, with those beside them: the agent moves them into slots, a ring in memory that the
// library has mapped for that. There they are on standby: a page that is touched comes back, and
// next time leaves later. When the ring is full, its oldest pages are written to the store if they
// differ from what is there, and their slots are given back.
//
// What a process does and what the pager does to it cannot meet: as long as the kernel has a
// fork, an unmapping or a move of memory that was not read, it refuses to fill, protect or move
// any page (EAGAIN), and while the agent moves pages, nothing is read. Where threads change
// memory at the same time, the kernel's reports may come in another order than the changes:
// settle (events.go) waits with a move to where memory is said to be until that has been reported
// as gone. Which memory there is, the pager reads in /proc/PID/maps, which is of the past: an
// area is paged only if the kernel says that it is registered, and has nothing to report
// (areas.go).
//
// The pager's thread runs on the CPU of the program's thread whose faults it serves, if there is
// one such thread (follow.go).
//
// # Concurrency
//
// A Pager is one goroutine, Run, with a thread of its own. Finish, Counts and Processes may be
// called from others.
//
// # Limits
//
// Pages of 4 KiB, Linux 6.8, CAP_SYS_PTRACE. The store is read in the goroutine that serves
// faults, so a store that is slow delays all processes of the Pager. Processes are those of one
// user who trusts them: they share the store, and a process can stop the Pager of all.
//
// If threads move memory (mremap) while others unmap memory, the kernel may report this out of
// order. The Pager restores the order as far as it can tell. In a child of a process with threads,
// memory that another thread gave back, unmapped or moved during the fork can be zeros. A child
// made by the system call clone, not by fork, is paged in, and never out.
//
// Memory mapped beside paged memory is an area of its own for the kernel. The library's mremap
// moves all such areas or none. As a system call, and within the C library (realloc then copies),
// mremap fails with EFAULT over several areas; since Linux 6.17 it may have moved some of them by
// then.
//
// FUTEX_WAKE_OP, and futex locks with priority inheritance, fail with EFAULT on a word that is
// elsewhere if they are not called by the library function syscall. A robust mutex in private
// memory that is elsewhere stays held if the thread that holds it ends.
package pager

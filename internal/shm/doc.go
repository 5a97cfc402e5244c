// Package shm is the memory that processes of one host share: sealed memfds with
// one writer each or with two, words and slots in them, an arena of buffers, the
// bell that wakes a process on the other end of a socket, and the few instructions
// that the Go language has no words for.
//
// # Architecture
//
//	 owner                                   peers
//	Create ─▶ memfd, mapped for writing
//	          sealed: no resizing,       ─▶ Map: for reading only
//	          no further writers
//	          │
//	          ├── Words, Slots: views with atomics
//	          └── Arena: pages that are handed out and taken back
//
// The seals are what makes a mapping safe: without F_SEAL_SHRINK a peer could
// cut the file and every access would raise SIGBUS, and F_SEAL_FUTURE_WRITE is
// the kernel's word that nobody but the owner writes (fcntl(2), Linux 5.1).
//
// CreateShared and MapShared are for segments that both sides write, which nobody
// resizes. What another process can write is no slice but a Foreign, whose Memory is
// read once (package foreign). Release is a store that costs no more than a plain one; Membarrier is the
// fence that one side has both pass; PrefetchSlot, PrefetchW and SpinSlot are for
// cache lines that travel between two cores; CPU says where the caller runs. All
// have a plain form where they are not on amd64.
//
// # Concurrency
//
// A Segment's memory is shared: what lies in it is atomics, or ordered by them.
// Arena has a lock of its own.
//
// # Limits
//
// Linux 5.1 and later. Everything unsafe, and every mmap, is in the _unsafe.go
// files of this package.
//
// # Exports
//
// It is the one place for what needs unsafe or assembly in shared memory, so it is wide and flat: each
// function is one instruction or one system call.
package shm

// Package shm is the memory that processes of one host share: sealed memfds with
// one writer each, words and slots in them, an arena of buffers, and the bell
// that wakes a process on the other end of a socket.
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
// # Concurrency
//
// A Segment's memory is shared: what lies in it is atomics, or ordered by them.
// Arena has a lock of its own.
//
// # Limits
//
// Linux 5.1 and later. Everything unsafe, and every mmap, is in the _unsafe.go
// files of this package.
package shm

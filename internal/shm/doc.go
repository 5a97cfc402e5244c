// Package shm is the memory that processes of one host share: sealed memfds with
// one writer each or with two, words and slots in them, an arena of buffers, the
// bell that wakes a process at the other end of a socket, and a few instructions
// that Go cannot express.
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
// The seals make a mapping safe: without F_SEAL_SHRINK a peer could cut the
// file and every access would raise SIGBUS; with F_SEAL_FUTURE_WRITE the kernel
// guarantees that only the owner writes (fcntl(2), Linux 5.1).
//
// CreateShared and MapShared are for segments that both sides write and nobody resizes. Memory that
// another process can write is not a slice but a Foreign, whose Memory is read once (package
// foreign). Release is a store-release at the cost of a plain store; Membarrier is a fence for both
// sides, paid by one; PrefetchSlot, PrefetchW and SpinSlot handle cache lines that travel between
// two cores; CPU says where the caller runs. All have a plain form on other machines than amd64.
//
// # Concurrency
//
// A Segment's memory is shared: everything in it is atomic, or ordered by
// atomics. Arena has its own lock.
//
// Who stores a word and then looks at one of the peer's, while the peer does so the other way
// round, has to see what the peer has stored, or be seen by it. Use Swap for that, and not Store:
// both order the two (Go memory model), at one cost, but Store does not under the race detector
// on amd64. There it is a plain MOV to memory that is not of Go's heap, which a later load
// overtakes (TestSwapThenLoad).
//
// # Limits
//
// Linux 5.1 and later. Everything unsafe, and every mmap, is in the _unsafe.go
// files of this package.
//
// # Exports
//
// All unsafe code and assembly for shared memory is here, so the package is wide and flat: each
// function is one instruction or one system call.
package shm

//go:build amd64 && !race

package shm

import (
	"sync/atomic"
	"unsafe"
)

// Release stores v so that what was written before is seen by whoever loads v. It is a plain MOV,
// where the Store of sync/atomic is an XCHG, which waits until all earlier stores have reached the
// cache: x86 keeps stores in order by itself (Intel SDM 3A, 9.2.2), and the compiler keeps a store
// after those before it. It does not order a later load after the store: to look at something of
// the peer's afterwards, use Store, or have the peer call Membarrier.
func Release(w *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(w)) = v }

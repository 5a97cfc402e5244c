package datagram

import (
	"math"
	"sync/atomic"
)

// KernelSends counts the datagrams of sends by the kernel to one receiver, from when they begin:
// the receiver may have counted a datagram before its sender has. It outlives the flows to that
// receiver.
type KernelSends struct {
	// The low half has those that are under way, the high half those that were sent and that
	// no Tx has counted yet.
	word atomic.Uint64
}

// Begin says that a send begins. The caller has the lock of the Tx, as for Cancel.
func (k *KernelSends) Begin() { k.word.Add(1) }

// End says that the kernel has sent a datagram. It needs no lock: who has that of the Tx may be
// waiting until nothing is under way.
func (k *KernelSends) End() { k.word.Add(1<<32 - 1) }

// Cancel says that the kernel has not sent a datagram, and that there is no Tx: else Failed.
func (k *KernelSends) Cancel() { k.word.Add(^uint64(0)) }

// UnderWay is how many datagrams are under way.
func (k *KernelSends) UnderWay() uint64 { return k.word.Load() & math.MaxUint32 }

// Take returns how many were sent since it was called last, and how many are under way.
func (k *KernelSends) Take() (sent, under uint64) {
	v := k.word.Load()
	for v>>32 != 0 && !k.word.CompareAndSwap(v, v&math.MaxUint32) {
		v = k.word.Load()
	}
	return v >> 32, v & math.MaxUint32
}

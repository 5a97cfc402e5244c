//go:build race

package shm

import "sync/atomic"

// edge stands for the order that words in shared memory make, or raw system calls on two
// ends of a connection. The race detector cannot see it in a test that has both sides in
// one process: the word that one side writes is at another address than that which the
// other side reads.
var edge atomic.Uint64

// Publish tells the race detector that what was written before may be read after
// the next Observe.
func Publish() { edge.Add(1) }

// Observe is the other half of Publish.
func Observe() { edge.Load() }

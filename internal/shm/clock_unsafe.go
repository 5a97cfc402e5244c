package shm

import _ "unsafe" // for linkname

// Nanotime is the monotonic clock, in nanoseconds, also in a bubble of testing/synctest, whose
// package time has a clock that stops while somebody runs.
//
//go:linkname Nanotime runtime.nanotime
func Nanotime() int64

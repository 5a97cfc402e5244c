//go:build exngo

// This file stands in place of the one of that name in programs that exn-go builds.

package shm

import (
	_ "unsafe" // for linkname
)

// Scheduled reports whether the scheduler of this program looks for messages.
func Scheduled() bool { return true }

// Watch has the scheduler look for w's message (runtime/exn.go).
func (w *Waiter) Watch() int { return int(exnWatch(w)) }

// Unwatch ends Watch.
func (w *Waiter) Unwatch() { exnUnwatch(w) }

// Crowded reports whether other goroutines wait for the caller's thread.
func Crowded() bool { return exnCrowded() }

// Go runs f in a goroutine of the runtime's.
func Go(f func()) { exnGo(f) }

func quiet() { exnQuiet() }

//go:linkname exnGo
func exnGo(f func())

//go:linkname exnWatch
func exnWatch(w *Waiter) int32

//go:linkname exnUnwatch
func exnUnwatch(w *Waiter)

//go:linkname exnQuiet
func exnQuiet()

//go:linkname exnCrowded
func exnCrowded() bool

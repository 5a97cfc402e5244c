package shm

// Scheduled reports whether the scheduler of this program looks for messages, as that of one
// that exn-go built does.
func Scheduled() bool { return false }

// Watch has the scheduler look for w's message, until Unwatch, and wake who sleeps on the
// doorbell with the runtime's poller.
func (w *Waiter) Watch() int { return NotWatched }

// Unwatch ends Watch.
func (w *Waiter) Unwatch() {}

// Crowded reports whether other goroutines are known to wait for the caller's thread.
func Crowded() bool { return false }

// Go runs f in a goroutine. In a program that exn-go built it is one of the runtime's: what lists
// or counts goroutines, as tests do that look for leaks, leaves it out.
func Go(f func()) { go f() }

// quiet waits until the scheduler has seen each Unwatch.
func quiet() {}

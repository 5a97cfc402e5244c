package netns

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// threadNS is the network namespace of the calling thread. /proc/self would be
// the main thread's.
const threadNS = "/proc/thread-self/ns/net"

// onThread runs f on a fresh goroutine that is locked to its thread, and waits
// for it. f returns whether it left the thread as it found it; if not, or if f
// does not return, the goroutine ends locked and its thread with it.
func onThread(f func() bool) {
	done := make(chan struct{})
	go func() {
		if lockThread() {
			runOnThread(f, done)
			return
		}
		// This is the main thread, which shows as /proc/PID and which the
		// runtime cannot end. While this goroutine holds it, the next one
		// gets another.
		locked := make(chan struct{})
		go func() {
			lockThread()
			close(locked)
			runOnThread(f, done)
		}()
		<-locked
		runtime.UnlockOSThread()
	}()
	<-done
}

// lockThread locks the goroutine to its thread and reports whether that is not the main thread.
func lockThread() bool {
	runtime.LockOSThread()
	return unix.Gettid() != unix.Getpid()
}

func runOnThread(f func() bool, done chan<- struct{}) {
	defer close(done)
	if f() {
		runtime.UnlockOSThread()
	}
}

// Package netns makes Linux network namespaces and runs functions and programs
// in them, for demonstrations, benchmarks and tests.
//
// # Architecture
//
// A network namespace belongs to a thread, not to a process, and a goroutine
// has no thread of its own. So everything here happens on a fresh goroutine
// that is locked to its thread:
//
//	New      fresh thread: unshare, open a handle        -> the thread dies
//	Do       fresh thread: setns, f(), setns back        -> the thread goes on
//	                       setns back failed             -> the thread dies
//	Start    one thread per namespace: setns, own mount  -> lives until Close,
//	         namespace with the right /sys, fork + exec     then dies
//
// A thread in the wrong namespace is never unlocked: the Go runtime ends a
// thread whose locked goroutine returns, so no other goroutine can run on it.
// The main thread cannot be ended, and /proc/PID shows its namespace, so it is
// never used.
//
// A namespace (New) has no name: it is a descriptor, and the kernel removes it with
// the last descriptor, socket and process in it. Nothing remains, however this
// process ends.
//
// Without root, ReexecInUserNS runs the program again in a user namespace in
// which all of this is allowed.
//
// # Concurrency
//
// All functions and methods may be called from many goroutines. Close makes
// later calls fail with ErrClosed and does not wait for running ones.
//
// # Limits
//
// Do moves one goroutine: a function that starts goroutines (or a net.Dial of a
// host name, which may) leaves the namespace with them. Sockets stay in the
// namespace they were made in, wherever they are used. Programs started with
// Start see the namespace's /sys, but /etc/netns is not looked at.
package netns

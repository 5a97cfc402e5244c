// Package trash closes what processes have sent, for those who must not wait for it.
//
// To close the last descriptor of a file takes as long as the file's owner wants: a TCP socket with
// SO_LINGER and unsent data, a file of a FUSE server that does not answer, or a Unix socket in
// whose queue such a descriptor lies.
//
// # Architecture
//
//	who receives ── Throw, Do ──▶ Bin of the sender's user ──▶ one goroutine ──▶ close
//
// # Concurrency
//
// All methods may be called from many goroutines.
//
// # Limits
//
// A user takes one thread. What is not closed yet keeps its descriptors: a Bin counts them for
// whoever limits what a user has, and Bins says when a user has too many, so that nothing more is
// read from that user's processes. A connection that is refused then costs its descriptor.
package trash

// Package rpc is what the protocols between the processes of a host are made of: sockets whose
// messages have descriptors, who is at the other end, the versions that both speak, and how much
// one account may hold.
//
// # Architecture
//
//	Accept ─▶ Gate ─▶ connection of a process (package caller says whose)
//	Serve ─▶ Link: a Session over a socket ─▶ Hub, which bounds, ends and waits for all of a server
//	Session.Ask ─▶ request ─▶ the other side ─▶ answer ─▶ take ─▶ then what came after it
//	Turn: what is said of something goes after the answer that gives it
//	Outbox.Post ─▶ sendmsg ─▶ socket ─▶ recvmsg ─▶ Inbound.Next ─▶ bytes, Descriptors
//	       └─▶ queue, when the reader is slow
//	Throw, Do ──▶ Bin of the sender's account ──▶ one goroutine ──▶ close
//
// To close the last descriptor of a file takes as long as the file's owner wants: a TCP socket with
// SO_LINGER and unsent data, a file of a FUSE server that does not answer, or a Unix socket in
// whose queue such a descriptor lies. A Bin does it for those who must not wait.
//
// # Other libraries
//
// None that is there serves. ttrpc and varlink send no descriptors, need an encoding of their own
// in the C library, and trust their peers. D-Bus sends descriptors, through a daemon in between,
// which would be on the way of each connection's set-up.
//
// # Concurrency
//
// A Hub, a Session, an Outbox, a Gate and a Bin serve many goroutines, an Inbound one. A Link hears
// in one goroutine.
//
// # Limits
//
// A packet has as many descriptors as its reader allows. No sender waits for a reader: an Outbox
// queues up to its limit, and then returns ErrSlow. What is not closed yet keeps its descriptors: a
// Bin counts them for whoever limits what an account has, and Bins says when it has too many, so
// that nothing more is read from its processes. A connection that is refused then costs its
// descriptor. A release and the next one have a version in common; others may have none.
package rpc

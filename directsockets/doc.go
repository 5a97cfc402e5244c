// Package directsockets is sockets whose bytes go through shared memory (EXT-DS):
// Dial, Listen, Dialer and ListenConfig in place of those of package net. SPEC.md is
// the normative text of what the two ends share.
//
// # Architecture
//
// A connection is a genuine TCP connection, the shadow, and carries its bytes from
// the start. When both ends turn out to use direct sockets, each direction moves to
// a segment of memory that only the two of them map (package segment), at a byte
// boundary, and may move back. Nobody ever waits for that: a plain peer, no broker, no
// memory mean plain TCP, at once, and Stats says why.
//
//	client                                                       server
//	Write ─┬─ TCP ──▶ shadow ═══════════════════════▶ shadow ──┬─▶ Read
//	       │                                                   │
//	       └─ direct ▶ VELO queue, RMA ring (segment) ─────────┘
//	                   doorbell ┄┄┄ only if the other side sleeps
//
//	prepare ── OFFER ──▶ broker ── GRANT ──▶ granted            (package broker)
//
// The client's side offers a segment when the connection has lived for longer than
// one request; the server's side finds the offer when it next moves bytes, and claims
// it. Each side then promotes its own direction. A direction goes back to the shadow when
// a program asks for the descriptor (File), or for TCP (Demote), or when the peer
// does.
//
// Deadlines are timers of the connection's own. What sleeps, in the shadow or on the
// doorbell, is woken by a deadline in the past of what it sleeps on (half.wake), and
// looks what there is to do.
//
// A reader that sleeps in the shadow while the segment could speak up is watched: one
// goroutine for the whole process sleeps on the doorbells of all such connections
// (watcher). A direct connection has no goroutine, nor has an idle one.
//
// # Concurrency
//
// Each direction has a lock, which its reader or writer holds while it sleeps,
// too. Others leave work in lock.want and wake the holder, who does it.
//
// Locks: the lock of rx, then that of tx, which is only tried then; below both lock.mu,
// Conn.mu, watcher.mu, in any order but never two at a time; those of segment and broker
// below these.
//
// # Limits
//
// Linux. A receiver that demotes (File, SyscallConn's Read) gets what its peer had
// already sent when that peer next makes a call on the connection. Urgent data and
// TCP_INFO are those of the shadow. A connection to a listener that is closed at once after
// Accept stays TCP. Connections in another network namespace than the process's need
// Config.Broker. A rule of EXNET_RULES that says tcp (exn-run --rules) holds here, too.
//
// # Exports
//
// Most of the names are the reasons and modes that the statistics of a connection give.
package directsockets

// Package directsockets provides sockets whose bytes go through shared memory
// (EXT-DS): Dial, Listen, Dialer and ListenConfig in place of those of package net.
// SPEC.md is the normative text of the protocol between the two ends.
//
// # Architecture
//
// A connection is a genuine TCP connection, the shadow, and carries its bytes from
// the start. When both ends turn out to use direct sockets, each direction moves to a
// segment of memory that only the two of them map (package segment), at a byte
// boundary, and may move back. No call ever waits for that: a plain peer, no broker or
// no memory means plain TCP, at once, and Stats says why.
//
//	client                                                       server
//	Write ─┬─ TCP ──▶ shadow ═══════════════════════▶ shadow ──┬─▶ Read
//	       │                                                   │
//	       └─ direct ▶ VELO queue, RMA ring (segment) ─────────┘
//	                   doorbell ┄┄┄ only if the other side sleeps
//
//	prepareOffer ── OFFER ──▶ broker ── GRANT ──▶ onGranted     (package broker)
//
// The client's side offers a segment when the connection outlives its first request; the
// server's side finds the offer when it next moves bytes, and claims it. Each side then
// promotes its own direction. A direction goes back to the shadow when a program asks for
// the descriptor (File), or for TCP (Demote), or when the peer does.
//
// Deadlines are the connection's own timers. To wake a call that sleeps, on the
// shadow or on the doorbell, wakeHalf sets a past deadline on what it sleeps on;
// the call then looks for work.
//
// While a reader sleeps on the shadow but bytes may come through the segment, the
// watcher, one goroutine for the whole process, sleeps on the doorbells of all such
// connections. A direct connection has no goroutine, and neither has an idle one.
//
// # Concurrency
//
// Each direction has a lock, which its reader or writer holds even while it
// sleeps. Others leave work in lock.want and wake the holder, which does it.
//
// Locks: the lock of rx, then that of tx, which is only tried then; below both lock.mu,
// Conn.mu, watcher.mu, in any order but never two at a time; those of segment and broker
// below these.
//
// UDPConn, made by ListenPacket and DialUDP, does the same for datagrams (package udp), with the
// kernel's socket as doorbell: SPEC.md, section 10.
//
// # Limits
//
// Linux. A receiver that demotes (File, SyscallConn's Read) gets the bytes that its peer
// has already sent when that peer next makes a call on the connection. Urgent data and
// TCP_INFO are those of the shadow. A connection to a listener that is closed right after
// Accept stays TCP. Connections in a network namespace other than the process's need
// Config.Broker. A tcp rule in EXNET_RULES (exn-run --rules) applies here, too.
//
// # Exports
//
// Most of the names are the reasons and modes in the statistics of a connection.
package directsockets

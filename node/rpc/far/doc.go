// Package far carries what port servers of different hosts say to each other, through the fabric:
// messages of up to MaxMessage bytes, in order, as pieces of VELO messages.
//
// # Architecture
//
//	Server ── Send ──▶ Engine ══ VELO, mailbox VPID ══ Engine ── hear ──▶ Server
//
// The user tag of a piece says whether it is the first and whether it is the last of its message.
// What is too long, or lacks a piece, is not heard.
//
// Two Engines have a session (session.go, and ../../../ports/SPEC.md section 7): messages have
// numbers, and wait until the other one has heard them. So a link that ends, and comes again, loses
// and repeats nothing.
//
// # Concurrency
//
// All methods may be called from many goroutines; Run once. hear is called by Run, a message at a
// time.
//
// # Limits
//
// Messages of one sender to one node wait for each other. VELO has 120 bytes in a piece: bulk data
// takes many.
package far

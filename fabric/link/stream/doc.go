// Package stream is the link between NICs of two hosts: one to four ordered byte
// streams, which the caller has connected and authenticated.
//
// # Architecture
//
//	VELO, RMA                                              VELO, RMA
//	   │ Commit, Get, Put, leases        mailboxes, places     ▲
//	   ▼                                                       │
//	outbox ── batch ── sendmsg ══ connections ══ recvmsg ── pump
//	   messages first, then                     head ─▶ message, or
//	   chunks of transfers in turn              chunk ─▶ straight to its place
//
// A sender queues its message, and Raise sends it: at once, or, if the driver's thread
// is awake and will poll before it waits, from there, so that messages queued in the
// meantime go in the same call. The data of a transfer is not copied: the kernel gathers
// it from the region, which is lent until then, and scatters it to its place at the
// other end. Three things are copied once more: up to 4 KB after a chunk's head,
// transfers of up to 1 KB, and data for a device, which takes it in one piece.
//
// The first connection carries the messages; the others carry the data, each taking the
// next chunk when it has room, and of several the one that has carried the least. A single
// connection carries both: messages go between chunks, and the kernel holds at most 256 KB unsent
// (TCP_NOTSENT_LOWAT), so that a message waits for that and the rest of one chunk, not for a
// transfer of 8 MB.
//
// The sockets of a *net.TCPConn are taken from the Go runtime, and those of a *tls.Conn on top of
// package sealed. A driver, or the link's goroutine, waits for them and for the link's eventfd with
// an epoll set, and encrypts and decrypts what they carry. An Engine, such as link/ofi's, may carry
// the bytes in place of the connections, which then carry only the hellos and are of any kind.
//
// # Format
//
// All numbers are little endian; reserved fields are sent as zero and ignored. On each
// connection each side first says hello, the node with the lower ID before the other:
//
//	 0       8         12     14     16      17      18      20         24        32
//	┌───────┬─────────┬──────┬──────┬───────┬───────┬───────┬──────────┬─────────┐
//	│exnetstr│ version │ node │ peer │ index │ conns │ boxes │ reserved │ session │ boxes × 6
//	└───────┴─────────┴──────┴──────┴───────┴───────┴───────┴──────────┴─────────┘
//
// Version is 1. The node with the lower ID numbers the connections from 0 and draws the
// session, the other repeats both. On connection 0 the open mailboxes follow: VPID 2,
// credits 4. Then come messages of these kinds; all but GetData and PutData go on
// connection 0 only:
//
//	kind 1  1       2        4
//	 1 VELO  0       flow 2   status word 8, payload (as long as the word says)
//	 2 Mailbox 0     VPID 2   credits 4 (0: it is closed)
//	 3 Open  0       flow 2   from VPID 2, to VPID 2
//	 4 Return 0      flow 2   messages consumed since the flow was opened 8
//	 5 Down  0       flow 2   the mailbox of the flow is closed, or was not open
//	 6 Get   flags   0        operation 4, from 2, to 2, NLA 8, length 4
//	 7 GetData 0     0        operation 4, offset 4, data
//	 8 GetEnd status 0        operation 4: refused, and no data comes
//	 9 PutData flags chunk 2  operation 4, from 2, to 2, NLA 8, length 4, data
//	10 PutEnd status 0        operation 4
//	11 Ping  0       0        word 8
//	12 Pong  0       0        the word 8
//
// Flags: 1 the responder (GET) or completer (PUT) writes a notification, 2 an immediate
// PUT. A status is a fabric.Status. Flows are numbered from 0 by the side that sends,
// and the receiver overwrites the source node and the mailbox's own flow number in the
// status word. The origin numbers its operations; it has at most 256 under way and does
// not reuse a number before its operation has ended.
//
// The data of an operation of n bytes comes in chunks of 69,632 bytes, the last with the
// rest, each once, in any order and on any connection for data. A GET ends with its last
// chunk, a PUT with PutEnd, which follows the last chunk also if the PUT is refused.
//
// # Failure
//
// Each side sends a Ping every Config.Heartbeat, unless one is unanswered or the peer has
// just sent one; it sends at least every tenth, to measure the round trip. A peer that is
// silent for Config.DownAfter, or does not answer for ten times as long, is down, and so is
// one with which a transfer does not move for that time although it is its turn (nothing
// else moves either, or 4 GiB of others have); one
// whose connection ends is down at once. A side counts its own heartbeats, so that a
// process that was stopped does not take its peers for dead. When a peer is down, its
// flows end with ErrPeerDown, its operations with StatusPeerDown, and all loans are
// returned.
//
// # Security
//
// The caller decides who may connect. The link reads what the peer sends into a buffer that the
// peer cannot change, and checks it before use: lengths, flows, credits, operations, chunks. An
// impossible message closes the link (ErrBreach) and nothing else. A peer that does not read costs
// 256 KB of messages, and as much in the connection's batch, 512 operations, and the kernel's
// buffers; senders get ErrAgain. A region that its owner closes has to be released within 10
// seconds.
//
// # Concurrency
//
// A Link's methods may be called from many goroutines. pumping is held while received data
// is taken, conn.wmu while data is sent; handlers run without either. Locks: opTable.mu is
// held around outbox.mu, inflow.mu around a mailbox's; outbox.mu is held around
// serveTable.mu only to lend. As with link/shm, polling runs handlers, and Raise, Get and
// Put may write notifications of other operations.
//
// # Limits
//
// This side learns that a peer has opened a mailbox after half a round trip; until then
// OpenFlow fails with ErrPeerDown. A PUT to a device is gathered first, 16 MB of them at a
// time. 65,536 flows in the life of a link and direction.
package stream

// Package stream is the link between NICs of two hosts: one to four connections, made
// and authenticated by somebody else, that carry bytes in order.
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
// A sender queues its message, and Raise has it sent: by the driver's thread if it is
// awake and looks before it waits, so that what is queued meanwhile goes into the same
// call, or else at once. The data of a transfer is not copied: the kernel gathers it
// from the region, which is lent until it has, and scatters it to its place at the other
// end. Only up to 4 KB behind a chunk's head are copied once more, transfers of up to
// 1 KB, and what goes to a device, which takes it in one piece.
//
// The first connection carries the messages; the data goes over the others, to each the
// next chunk when it takes one. A connection that is alone carries both: what is queued
// first goes between two chunks, and the kernel holds no more than 256 KB that it has
// not sent (TCP_NOTSENT_LOWAT), so that a message waits for that and the rest of one
// chunk, not for a transfer of 8 MB.
//
// With *net.TCPConn the sockets are taken from the Go runtime. A driver, or the link's
// goroutine, waits for them and for the link's eventfd by an epoll set. Connections of any
// other kind have a goroutine that reads and one that writes. An Engine, such as link/ofi's,
// may carry the bytes in place of the connections, which then carry the hellos only.
//
// # Format
//
// All numbers are little endian; what is reserved is sent as zero and ignored. On each
// connection each side first says hello, the node with the lower ID before the other:
//
//	 0       8         12     14     16      17      18      20         24        32
//	┌───────┬─────────┬──────┬──────┬───────┬───────┬───────┬──────────┬─────────┐
//	│exnetstr│ version │ node │ peer │ index │ conns │ boxes │ reserved │ session │ boxes × 6
//	└───────┴─────────┴──────┴──────┴───────┴───────┴───────┴──────────┴─────────┘
//
// Version is 1. The node with the lower ID numbers the connections from 0 and draws the
// session, the other repeats both. On connection 0 the open mailboxes follow: VPID 2,
// credits 4. Then come messages, each of one of these kinds; all but GetData and PutData
// on connection 0 only:
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
// and the receiver puts the source node and the mailbox's own flow number into the status
// word, whatever stands there. Operations
// are numbered by their origin, which has at most 256 under way and does not use a number
// again before it has ended.
//
// The data of an operation of n bytes comes in chunks of 69,632 bytes, the last with the
// rest, each once, in any order and on any connection for data. A GET ends with its last
// chunk, a PUT with PutEnd, which follows the last chunk also if the PUT is refused.
//
// # Failure
//
// Each side sends a Ping every Config.Heartbeat, unless one is unanswered or the peer has
// sent one meanwhile, and at least with every tenth, by which it measures the round trip.
// A peer of which nothing is heard for Config.DownAfter, or which does not
// answer for ten times as long, is down; so is one whose connection ends, at once. Beats
// are counted, so that a process that was stopped itself does not take its peers for
// dead. Then the flows end with ErrPeerDown, the operations with StatusPeerDown, and what
// was lent is given back.
//
// # Security
//
// Who may connect is decided before. What the peer sends is taken from a buffer that it
// cannot change, and checked before it is used: lengths, flows, credits, operations, chunks.
// What cannot be closes the link (ErrBreach) and nothing else. A peer that does not read
// costs 256 KB of messages, and as much in the connection's batch, 512 operations, and the
// kernel's buffers; senders get ErrAgain. Memory of a region that its owner closes has to be let go of within 10
// seconds.
//
// # Concurrency
//
// A Link's methods may be called from many goroutines. pumping is held while what has come
// is taken, conn.wmu while something is sent; handlers run without either. Locks:
// opTable.mu is held around outbox.mu, inflow.mu around a mailbox's; outbox.mu is held
// around serveTable.mu by lends alone. As with link/shm, who polls runs handlers, and Raise,
// Get and Put may write notifications of other operations.
//
// # Limits
//
// That a peer has opened a mailbox is known here after half a round trip; until then
// OpenFlow fails with ErrPeerDown. A PUT to a device is gathered first, 16 MB of them at a
// time. 65,536 flows in the life of a link and direction.
package stream

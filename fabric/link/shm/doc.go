// Package shm is the link between NICs of two processes of one host: a ring of
// slots each way, credits and lent regions in memory that both map, and one Unix
// socket for the hand-over of descriptors, the bell and the news of death.
//
// # Architecture
//
// Each side makes two segments (internal/shm) that it alone can write, and hands
// their descriptors to the other, which maps them for reading: the link's segment,
// one for each peer, and the NIC's arena (atu.ATU.Alloc), the same for all. Every
// shared word has one writer, and the kernel sees to that.
//
//	segment of one side, 240 KB, of which an idle link touches a few pages
//	     0 ┌────────────────────────────────────────────────────────────┐
//	       │ head: slots read   events   space wanted                   │ line 0
//	   128 │ armed: number of the ring of the bell that is wanted       │ line 2
//	       │ bound: CPU of the driver's thread                          │
//	  4096 ├────────────────────────────────────────────────────────────┤
//	       │ mailboxes: credits of each open VPID, 256 words            │
//	  8192 ├────────────────────────────────────────────────────────────┤
//	       │ consumed, per flow of the peer, 4096 words                 │
//	       │ wanted, per own flow: report when so much is consumed      │
//	 73728 ├────────────────────────────────────────────────────────────┤
//	       │ loans: regions lent to the peer, 1024 of 4 words           │
//	       │ read: which of the peer's loans are being read, 1024 words │
//	114688 ├────────────────────────────────────────────────────────────┤
//	       │ ring: 1024 slots of 128 bytes, status word and payload     │
//	245760 └────────────────────────────────────────────────────────────┘
//
// VELO. A message is written into the next slot of the own ring, its status word
// last. The receiving side's pump moves it into the mailbox. The pump is run by
// whoever comes first: a consumer whose mailbox or notification queue is empty
// (Peek, Next), or when the bell rings the link's goroutine, or its driver. A message whose
// mailbox is full is parked, so that those behind it go on; the credits bound how
// many there can be. Which mailboxes are open, with how many credits, stands in
// the peer's segment, so that a flow opens without a round trip.
//
//	Send ─▶ slot in the own ring ─▶ armed? ring ┄┄┄▶ socket ┄┄┄▶ goroutine, driver
//	                │                                              │
//	                └──────────────── memory ──▶ pump ◀── Peek ────┘
//	                                              │
//	Consumed ◀── memory ◀── Return ◀── Advance ◀──┴─▶ mailbox ─▶ interrupt
//
// The bell is a byte on the socket: unlike an eventfd it cannot be made to block
// by the other side, it needs no descriptor of its own, and whoever sleeps on it
// also hears of the peer's death. It is rung only when the other side has armed it
// (the order of steps is with arm), once for a number, and a side that polls does
// not arm. Credit is looked for in memory by who needs it; who was refused leaves
// the number that it waits for, and the other side rings when that is reached.
//
// With Config.Driver the link has no goroutine while the driver serves it
// (link.Served): its thread looks at the link whenever it looks at anything else, and
// arms the bell only before it waits. As long as it is awake consumers need neither
// look nor arm, and the peer does not ring. What only gives back memory does not wake
// the peer at once, but for eight of them together or after a millisecond. If the
// driver ends before the link, the goroutine takes over.
//
// GET. A region of the arena that was lent to one node is shown among the loans
// (atu.Book). The origin says which loan it reads, looks whether it still stands,
// copies (or has the device write) straight from the mapping, and sends a message
// for the responder's notification. Revoke takes the loan away and then looks
// whether it is being read: hazard pointers, with the order of steps in loan.go.
// Any other GET is a request: the target opens the memory under its ATU and
// answers where it is, the origin copies and gives it back. PUT is a request with
// the place of the data, which the target copies from the origin's arena. Memory
// outside of the arena is copied into it first (Stats.Bounced).
//
// # Security
//
// The nodes of a fabric trust each other with what they send, and with what is in
// their arenas: every peer can read all of an arena. Nothing else is taken on
// trust. A peer can write its own segments only; each index, length, place, flow
// and number that is read from there is checked before it is used, and read once.
// What cannot be (a message without credit, an answer to nothing) closes the link
// (ErrBreach) and nothing else. Descriptors are mapped only if they are sealed
// against shrinking, since an access beyond the end of a file raises SIGBUS.
//
// # Failure
//
// A peer that dies closes its socket. Then its flows end with ErrPeerDown, its
// operations with StatusPeerDown, what it was reading is given back, and the
// memory is unmapped. A peer that is stopped costs its senders ErrAgain. One that
// keeps a region which its owner closes loses its link after a second.
//
// # Concurrency
//
// A Link's methods may be called from many goroutines. The pump's lock, a word of
// three states, is held while messages move to mailboxes; handlers run without it.
// Locks: outRing.mu, opTable.mu, serveTable.mu, inflow.mu, book.mu, reading.mu and
// farArena.mu do not nest, but for outflow.mu and outRing.mu over the ring, which
// takes none. Region.loanMu (atu) is held around book.mu.
//
// Who polls runs handlers: OnCredit and OnInterrupt of any endpoint of the NIC may
// be called in Peek and Next, beside the link's goroutine or driver. socket.mu is
// held around the bell and takes none. EnableInterrupt runs
// none of the line that it enables.
//
// # Limits
//
// Linux on a machine with 64-bit atomics, little endian. Both sides have the same
// Version. 4096 flows in the life of a link and direction; 256 requests at a time,
// 1024 loans; further operations wait. An overrun of the target's notification
// queue by the GET of a loan is found after the data has moved: the origin's
// notification says ok, the target's Endpoint.Err ErrOverrun. rma.served does not
// count GETs of loans without a responder's notification.
package shm

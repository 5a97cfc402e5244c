// Package shm is the link between NICs of two processes of one host: a ring of
// slots each way, credits and lent regions in memory that both map, and one Unix
// socket that hands over descriptors, carries the bell and reports the peer's
// death.
//
// # Architecture
//
// Each side makes two segments (internal/shm) that it alone can write, and passes
// their descriptors to the other, which maps them for reading: the link's segment,
// one for each peer, and the NIC's arena (atu.ATU.Alloc), the same for all. Every
// shared word has one writer, as the kernel enforces.
//
//	segment of one side, 240 KB, of which an idle link touches a few pages
//	     0 ┌────────────────────────────────────────────────────────────┐
//	       │ head: slots read   events   space wanted                   │ line 0
//	   128 │ armed: number of the ring of the bell that is wanted       │ line 2
//	       │ bound: CPU of the driver's thread                          │
//	   256 │ probe asked, probe answered, bytes read of the peer's      │ line 4
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
// VELO. A sender writes a message into the next slot of its own ring, the status word last.
// The receiving side's pump moves it into the mailbox. Whoever comes first runs the pump: a
// consumer whose mailbox or notification queue is empty (Peek, Next), or, when the bell
// rings, the link's goroutine or driver. A message whose mailbox is full is parked, so that
// those after it proceed; the credits bound their number. The peer's segment says which
// mailboxes are open, with how many credits, so that a flow opens without a round trip.
//
//	Send ─▶ slot in the own ring ─▶ armed? ring ┄┄┄▶ socket ┄┄┄▶ goroutine, driver
//	                │                                              │
//	                └──────────────── memory ──▶ pump ◀── Peek ────┘
//	                                              │
//	Consumed ◀── memory ◀── Return ◀── Advance ◀──┴─▶ mailbox ─▶ interrupt
//
// The bell is a byte on the socket: unlike an eventfd, the other side cannot make
// it block, it needs no descriptor of its own, and a sleeper on it also learns of
// the peer's death. It rings only when the other side has armed it (arm describes
// the order of steps), once per number, and a side that polls does not arm. A
// sender reads its credit from memory; a refused sender stores the number that it
// waits for, and the other side rings when that is reached.
//
// With Config.Driver the link has no goroutine while the driver serves it
// (link.Served): its thread polls the link along with everything else, and arms the
// bell only before it waits. While it is awake consumers need neither poll nor arm,
// and the peer does not ring. A message that only returns memory does not wake the
// peer at once, but when eight have accumulated or after a millisecond. If the driver
// ends before the link, the goroutine takes over.
//
// GET. A region of the arena that is lent to one node appears among the loans
// (atu.Book). The origin publishes which loan it reads, checks that it is still
// valid, copies (or lets the device write) straight from the mapping, and sends a
// message for the responder's notification. Revoke removes the loan and then
// checks whether it is being read: hazard pointers, with the order of steps in
// loan.go. Any other GET is a request: the target opens the memory under its ATU
// and answers with its place, the origin copies and releases it. PUT is a request
// with the place of the data, which the target copies from the origin's arena.
// Memory outside the arena is copied into it first (Stats.Bounced).
//
// # Security
//
// The nodes of a fabric trust each other with the data that they send, and with
// the contents of their arenas: every peer can read all of an arena. Nothing else
// is taken on trust. A peer can write only its own segments; each index, length,
// place, flow and number there is read once, and checked before use. An
// impossible message (one without credit, an answer to nothing) closes the link
// (ErrBreach) and nothing else. A descriptor is mapped only if it is sealed
// against shrinking, since an access beyond the end of a file raises SIGBUS.
//
// # Failure
//
// When a peer dies, its socket closes. Then its flows end with ErrPeerDown, its
// operations with StatusPeerDown, the regions that it was reading are released,
// and the memory is unmapped. Senders to a stopped peer get ErrAgain. A peer that
// keeps a region which its owner closes loses its link after a second.
//
// # Concurrency
//
// A Link's methods may be called from many goroutines. The pump's lock, a word of
// three states, is held while messages move to mailboxes; handlers run without it.
// Locks: outRing.mu, opTable.mu, serveTable.mu, inflow.mu, book.mu, reading.mu and
// farArena.mu do not nest, except for outflow.mu and outRing.mu over the ring,
// which takes none. Region.loanMu (atu) is held around book.mu.
//
// Polling runs handlers: Peek and Next may call OnCredit and OnInterrupt of any
// endpoint of the NIC, as may the link's goroutine or driver. socket.mu is held
// around the bell and takes none. EnableInterrupt runs no handler of the line that
// it enables.
//
// # Limits
//
// Linux on a machine with 64-bit atomics, little endian. Both sides have the same
// Version. At most 4096 flows in the life of a link and direction; 256 requests at
// a time, 1024 loans; further operations wait. If the GET of a loan overruns the
// target's notification queue, this is found after the data has moved: the
// origin's notification says ok, the target's Endpoint.Err ErrOverrun. rma.served
// does not count GETs of loans without a responder's notification.
package shm

// Package velo is the NIC's VELO unit: small messages of at most 120 bytes into
// mailboxes of 128-byte slots, reliable and in order per source (thesis 3.2.2).
// In libfabric's words an Endpoint is a reliable datagram endpoint (RDM).
//
// # Architecture
//
//	Send ─▶ flow to (node, VPID) ─▶ take a credit ─▶ Reserve a slot ─▶ copy ─▶ Commit
//	         │ one per pair of mailboxes                                        │ status word last
//	         │ sent - acknowledged <= credits                                   ▼
//	OnCredit ◀──────── Credit.Return ◀──── Advance ◀──── Peek ◀──── ring of slots ─▶ interrupt
//
// The mailbox is a bounded ring that many sources write and one consumer reads.
// A slot is taken by a compare-and-swap on the tail; its status word is written
// last and carries a phase bit that flips with every lap, so that the reader
// needs nothing but the slot to see a new message.
//
// Each flow has its own credits, so one source that floods the mailbox cannot take
// the slots of the others: with Slots >= sources x Credits the ring never fills.
// With fewer slots a full ring can refuse, too, with the same ErrAgain and the same
// wake-up.
//
// A refusal starts an episode, which ends with one call of OnCredit. The flow has
// a word that says how many credits a sender waits for. The sender sets the word and
// checks for credit again; the target returns credit and then reads the word. So at
// least one of them sees the other's write.
//
// # Concurrency
//
// Sending is safe from many goroutines, and in order per goroutine. Peek,
// Advance and EnableInterrupt belong to one consumer at a time. Handlers
// (OnInterrupt, OnCredit) run in the goroutine that caused them, without a lock,
// and may send and receive.
//
// Locks: Endpoint.mu (opening flows) before mailbox.mu (accepting them); neither
// is held while messages move or handlers run.
//
// # Limits
//
// A mailbox has 65,536 flow numbers, 16,384 of them for one node. A number is given again
// once the link has ended its flow (link.Ending) and no message of it is unread: a late
// message of a closed source cannot pass for one of its successor. Link mem ends none.
package velo

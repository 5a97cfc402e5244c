// Package segment is the memory of a direct socket (EXT-DS), and the two ends that
// move bytes through it without a system call. SPEC.md, in the directory above, is
// the normative text; the C implementation (directsockets/preload) runs the same
// golden vectors, testdata/*.ds.
//
// # Architecture
//
//	client                       memfd                        server
//	                ┌──────────────────────────────┐
//	 End            │ header                       │            End
//	                │ control block of the client  │
//	 Attached       │ control block of the server  │         Attach
//	 Promote, Send ─▶ VELO queue, RMA ring   0 → 1 ─▶ PromotedAt, Recv, Next
//	 Recv, Next    ◀─ VELO queue, RMA ring   1 → 0 ◀─ Promote, Send
//	                └──────────────────────────────┘
//	 ArmRX, ArmTX ◀──── doorbell: a socket pair ────▶ ArmRX, ArmTX
//
// Create and Map make a Segment, NewEnd one side's End of it. An End never waits and
// never touches the shadow connection: it says ErrAgain, and whoever uses it spins
// (SpinRX), or arms and waits on Bell, and calls Awake when it was woken. A direction
// goes through
//
//	shadow ─Promote─▶ direct ─Shutdown─▶ ended
//	                    │
//	                    └─Demote; Freeze by the receiver, then Rollback─▶ shadow
//
// A small send is copied to slots of the queue, a larger one to the ring in chunks,
// each announced by a message; SendRegion and OfferSink need no copy to the ring.
// What costs time is cache lines that travel between two cores. So a slot is published
// with a plain store (shm.Release); slots and the ring are fetched some time before
// they are written (shm.PrefetchSlot), since they are with the core that read them
// last; what the peer gives back is read only when it is needed, and given back in
// batches; and the waker needs no fence when both processes are registered for
// membarrier(2), which the side that goes to sleep calls.
//
// # Concurrency
//
// An End has one user of TX and one of RX at a time; which methods are whose is said
// at each. All others may be called from many goroutines. The two may wait at the
// same time: one byte in the doorbell may be for both, so whoever calls Awake has the
// other look again, and both arm anew.
//
// # Limits
//
// The peer can write to all of the segment but the copies that this side has made. An
// End reads such a value once, checks it, and then uses the copy; what cannot be is
// ErrCorrupt from then on, and the segment is touched no more. What a hostile peer can
// do is to change the bytes that it sends until they were received (those that Next
// lends: until Release), and those of regions at any time; to have pages of its
// segment and regions be charged to whoever touches them; and to say nothing.
//
// Linux 4.16 and later. A region of the peer's stays mapped until the End cannot be
// reached any more.
//
// # Exports
//
// More than half of the names are constants of SPEC.md (tags, states, counters, limits): the golden
// vectors, the Go connection and the statistics share them.
package segment

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
// never touches the shadow connection: it returns ErrAgain, and its user spins
// (SpinRX), or arms and waits on Bell, and calls Awake after it wakes. A direction
// goes through
//
//	shadow ─Promote─▶ direct ─Shutdown─▶ ended
//	                    │
//	                    └─Demote; FallBack by the receiver, then ReturnToTCP─▶ shadow
//
// A small send is copied to slots of the queue, a larger one to the ring in chunks,
// each announced by a message; SendRegion and OfferSink need no copy to the ring.
// Most of the time goes to cache lines that travel between two cores. So a slot is
// published with a plain store (shm.Release); slots and the ring are prefetched before
// they are written (shm.PrefetchSlot), since they are in the cache of the core that
// read them last; freed space is returned in batches, and read only when it is needed;
// and the waker needs no fence if both processes are registered for membarrier(2),
// which the side that goes to sleep calls.
//
// # Concurrency
//
// An End has one user of TX and one of RX at a time; each method says whose it is.
// All others may be called from many goroutines. The two may wait at the same time:
// one byte in the doorbell may be for both, so Awake makes the other look again, and
// both arm again.
//
// # Limits
//
// The peer can write all of the segment at any time. An End reads each value once,
// checks the copy, and uses the copy; after an impossible value it returns ErrCorrupt
// and no longer touches the segment. A hostile peer can change the bytes that it sends
// until they are received (those that Next lends: until Release), and those of regions
// at any time; it can have pages of its segment and regions charged to whoever touches
// them; and it can fall silent.
//
// Linux 4.16 and later. A region of the peer's stays mapped until the End becomes
// unreachable.
//
// # Exports
//
// More than half of the names are constants of SPEC.md (tags, states, counters, limits), which the
// golden vectors, the Go connection and the statistics share.
package segment

package datagram

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"exnet/foreign"
	"exnet/internal/shm"
)

// ErrCorrupt says that the sender has written an impossible value. The flow has ended.
var ErrCorrupt = errors.New("datagram: the sender has written an impossible value")

// Rx is the receiver's end of a flow.
type Rx struct {
	seg   *Segment
	words []atomic.Uint64
	ring  foreign.Memory
	size  uint64

	byKernel, consumedP, takenP, dryP *atomic.Uint64
	busy, txFlags, armed, flags       *atomic.Uint32

	at, given uint64 // consumed, and as published
	taken     uint64
	lost      uint64 // of those by the kernel, beside base
	base      uint32 // what the sender counts more than arrived
	armedAs   uint32
	ownFlags  uint32 // flags
	ended     bool
	bell      int

	next    Record // what is at at, if there
	hasNext bool
	lap     [2]uint64 // when it came to the beginning of the ring last, and before that, in shm.Ticks
}

// giveAfter is how many bytes of the ring the receiver takes before it gives them back. It is
// far less than a quarter of the ring, so that the sender of a flow whose datagrams are answered
// one by one finds everything consumed, and begins at the start of the ring again: few pages are
// in use.
const giveAfter = 8192

// Record is a datagram in the ring.
type Record struct {
	Meta
	Len   int
	Stamp uint64
	off   uint64 // of the payload
	takes uint64
	after uint32 // how many by the kernel come before it, if waits
	waits bool
}

// NewRx makes the receiver's end, which takes its end of the liveness pair over, and attaches.
// bound: see SPEC 10.5.
func NewRx(seg *Segment, bell int, bound uint32) *Rx {
	r := &Rx{
		seg: seg, words: seg.ringWords(), ring: seg.ringMemory(), size: uint64(seg.ring),
		byKernel: seg.wordAt(txOff + byKernelOff), consumedP: seg.wordAt(rxOff + consumedOff),
		takenP: seg.wordAt(rxOff + takenOff), dryP: seg.wordAt(rxOff + dryOff),
		busy: seg.halfAt(txOff + busyOff), txFlags: seg.halfAt(txOff + txFlagsOff),
		armed: seg.halfAt(rxOff + armedOff), flags: seg.halfAt(rxOff + rxFlagsOff),
		armedAs: armedAll, bell: bell,
	}
	r.lap[0] = shm.Ticks()
	r.lap[1] = r.lap[0]
	r.armed.Store(armedAll)
	seg.halfAt(rxOff + boundOff).Store(bound)
	r.ownFlags = flagAfter
	r.flags.Store(r.ownFlags)
	seg.halfAt(rxOff + stateOff).Store(stateAttached)
	return r
}

// Refuse has the sender keep to the kernel.
func Refuse(seg *Segment, bell int) {
	seg.halfAt(rxOff + stateOff).Store(stateWithdrawn)
	_ = unix.Close(bell)
	seg.Retire()
}

// Next is the record that is due; false: there is none. It stays until Consume. After ErrCorrupt
// the flow has ended.
func (r *Rx) Next() (rec Record, ok bool, err error) {
	if r.hasNext {
		return r.next, true, nil
	}
	for wraps := 0; ; wraps++ {
		if r.ended {
			return rec, false, nil
		}
		off := r.at % r.size
		w := r.words[off/8].Load()
		if uint32(w) == 0 {
			return rec, false, nil
		}
		shm.Observe()
		n, tag := int(w&lengthMask), uint8(w>>tagShift)
		takes := takenBy(w)
		switch {
		case w&zeroMask != 0 || n > MaxLen || off+takes > r.size:
			return rec, false, r.endByBreach()
		case tag == tagWrap && uint32(w) == tagWrap<<tagShift && off != 0 && wraps == 0:
			r.advance(r.size - off)
			continue
		case tag != tagDatagram:
			return rec, false, r.endByBreach()
		}
		rec = Record{Meta: Meta{TOS: uint8(w >> tosShift), TTL: uint8(w >> ttlShift)}, Len: n,
			Stamp: r.stampAt(off), off: off + recordHead, takes: takes}
		if w&afterBit != 0 {
			says := r.words[off/8+2].Load()
			rec.off += afterLen
			rec.after, rec.waits = uint32(says), true
			r.base = uint32(says >> 32)
		}
		r.next, r.hasNext = rec, true
		return rec, true, nil
	}
}

// advance goes on by n bytes.
func (r *Rx) advance(n uint64) {
	before := r.at
	if r.at += n; (before^r.at)&r.size != 0 {
		r.lap[0], r.lap[1] = shm.Ticks(), r.lap[0]
	}
}

// stampAt returns the stamp of the record at off, which the sender claims. It is no older than the
// beginning of the lap before: the receiver has made room for the record after that.
func (r *Rx) stampAt(off uint64) uint64 {
	t := r.words[off/8+1].Load()
	if int64(t-r.lap[1]) < 0 {
		return r.lap[1]
	}
	return t
}

// Due reports whether the receiver has all that the sender sent by the kernel before what Next
// returned. Else it receives by the kernel first, and takes what is not there for lost (GiveUp)
// when the kernel has had the time to run its softirq, and has nothing.
func (r *Rx) Due() bool {
	return !r.next.waits || int32(uint32(r.taken+r.lost)+r.base-r.next.after) >= 0
}

// Missing is how many datagrams by the kernel the receiver has not, of those before what Next
// returned.
func (r *Rx) Missing() uint64 {
	if !r.hasNext || r.Due() {
		return 0
	}
	return uint64(r.next.after-r.base-uint32(r.taken)) - r.lost
}

// GiveUp takes what is not there for lost, and returns how many datagrams that are.
func (r *Rx) GiveUp() (missing uint64) {
	missing = r.Missing()
	r.lost += missing
	return missing
}

// Ready reports whether Next may have something.
func (r *Rx) Ready() bool {
	return r.hasNext || !r.ended && uint32(r.words[r.at%r.size/8].Load()) != 0
}

// CopyTo copies what Next has returned, and returns how much of it.
func (r *Rx) CopyTo(p []byte) int {
	n := min(len(p), r.next.Len)
	if n == 0 {
		return 0
	}
	return r.ring.Part(int(r.next.off), n).CopyTo(p[:n])
}

// Consume is done with it.
func (r *Rx) Consume() {
	r.hasNext = false
	r.advance(r.next.takes)
	if r.at-r.given >= giveAfter {
		r.returnBytes()
	}
}

// returnBytes gives bytes of the ring back.
func (r *Rx) returnBytes() {
	if r.given != r.at && !r.ended {
		shm.Publish()
		r.consumedP.Store(r.at)
		r.given = r.at
	}
}

// Arm has the sender use the kernel: for all, or for one datagram that wakes the receiver, which
// looks into the segment after each that it receives by the kernel, and arms anew before it
// sleeps. It is a full fence; while Busy, the sender may not have seen it.
func (r *Rx) Arm(all bool) {
	as := uint32(armedBell)
	if all {
		as = armedAll
	}
	if !r.ended && r.armedAs != as {
		r.returnBytes()
		r.armedAs = as
		r.armed.Swap(as) // a Store is no fence under the race detector (package shm)
	}
}

// EndAfter has the sender write no more records that wait for datagrams by the kernel: another
// socket may get those, and what the kernel brings next would be taken for them.
func (r *Rx) EndAfter() {
	if !r.ended {
		r.ownFlags &^= flagAfter
		r.flags.Store(r.ownFlags)
	}
}

// Busy reports whether the sender may be publishing though the flow is armed.
func (r *Rx) Busy() bool { return !r.ended && r.busy.Load() != 0 }

// Disarm has the sender use the segment.
func (r *Rx) Disarm() {
	if !r.ended && r.armedAs != 0 {
		r.armedAs = 0
		r.armed.Store(0)
	}
}

// Took says that a datagram of the sender's came by the kernel, before the program has it.
func (r *Rx) Took() {
	if !r.ended {
		r.taken++
		r.takenP.Store(r.taken)
	}
}

// Kernel is what to tell Dry if a receive by the kernel, after this, finds nothing.
func (r *Rx) Kernel() uint64 { return r.byKernel.Load() }

// Dry says so.
func (r *Rx) Dry(kernel uint64) {
	if r.ended {
		return
	}
	r.dryP.Store(kernel)
	if missing := int32(uint32(kernel) - r.base - uint32(r.taken)); int64(r.lost) > int64(missing) {
		r.lost = uint64(max(missing, 0))
	}
}

// Over reports whether the sender has left, or is gone, and everything is consumed.
func (r *Rx) Over() bool {
	return r.ended || (r.txFlags.Load()&flagLeft != 0 || shm.HungUp(r.bell)) && !r.Ready()
}

func (r *Rx) endByBreach() error {
	r.Close()
	return ErrCorrupt
}

// Close ends the flow for the receiver: what comes later comes by the kernel.
func (r *Rx) Close() {
	if r.ended {
		return
	}
	r.returnBytes() // the sender sees what was taken
	r.ended, r.hasNext = true, false
	r.ownFlags |= flagClosed | flagFinal
	r.flags.Store(r.ownFlags)
	_ = unix.Close(r.bell)
	r.seg.Retire()
}

// Ended reports whether the flow has ended.
func (r *Rx) Ended() bool { return r.ended }

// Info says whose flow it is.
func (r *Rx) Info() Info { return r.seg.info }

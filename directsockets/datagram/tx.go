package datagram

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/foreign"
	_ "exnet/internal/linux"
	"exnet/internal/shm"
)

// Outcome is what became of a datagram.
type Outcome int

const (
	Published Outcome = iota // it is in the ring
	ByKernel                 // send it by the kernel: KernelSends.Begin
	NoRoom                   // try again, or Drop it
	Gone                     // the flow has ended; the kernel knows what follows
)

// SoftirqTime is how long the kernel may take to give a datagram to its receiver: one that is
// not there then is lost.
const SoftirqTime = time.Millisecond

// finalTime is how long a sender waits for a receiver that loses its processor while it closes.
const finalTime = int64(10 * time.Millisecond)

// A sender looks whether its receiver is there when it has not for probeTime, and there is no
// room or probeEvery datagrams went to the ring.
const (
	probeTime  = int64(time.Millisecond)
	probeEvery = 32
	// bellLost is after which time a receiver that has taken nothing, and not what was to wake
	// it, is sent another datagram by the kernel, though that may overtake what it holds.
	bellLost = int64(200 * time.Millisecond)
)

// Tx is the sender's end of a flow.
type Tx struct {
	seg   *Segment
	words []atomic.Uint64
	ring  foreign.Memory
	size  uint64
	// rewind is from which offset on a sender begins at 0 again when everything is consumed, so
	// that a quiet flow has few pages. Until the receiver has come there, the rest of the ring
	// is no room.
	rewind uint64

	// The sender's own fields.
	byKernel, dropped, consumedP, takenP, dryP *atomic.Uint64
	busy                                       *atomic.Uint64 // and flags, in the upper half
	armed, rxFlags, bound, st                  *atomic.Uint32

	put, consumed uint64 // consumed as last read
	moved         int64  // when it was seen to change
	kernel        uint64 // datagrams that the kernel has sent; sends counts later ones
	sends         *KernelSends
	lost          uint64
	lostKnown     bool
	shared        bool   // other sockets may send from S's address, and D counts theirs as S's
	base          uint64 // lost, as it was first known
	told          uint64 // kernel and those under way, as the last record that says so has it
	settled       bool   // as Settled has found; nothing was under way
	lastKernel    int64  // when the last one went by the kernel
	probed        int64  // when it was last asked whether the receiver is there
	tries         uint64 // records, and what there was no room for
	ended         bool   // nothing is touched any more
	bell          int
}

// NewTx makes the sender's end, which takes its end of the liveness pair over. The datagrams to
// D before count as one by the kernel, but for those that are under way. A lock of the caller's
// guards the Tx, and the sends by the kernel to D that begin or fail.
func NewTx(seg *Segment, bell int, now int64, sends *KernelSends) *Tx {
	_, _ = sends.Take()
	return &Tx{
		seg: seg, words: seg.ringWords(), ring: seg.ringMemory(), size: uint64(seg.ring), rewind: uint64(seg.ring / 4),
		byKernel: seg.wordAt(txOff + byKernelOff), dropped: seg.wordAt(txOff + droppedOff),
		busy:      seg.wordAt(txOff + busyOff),
		consumedP: seg.wordAt(rxOff + consumedOff), takenP: seg.wordAt(rxOff + takenOff), dryP: seg.wordAt(rxOff + dryOff),
		armed: seg.halfAt(rxOff + armedOff), rxFlags: seg.halfAt(rxOff + rxFlagsOff), bound: seg.halfAt(rxOff + boundOff), st: seg.halfAt(rxOff + stateOff),
		kernel: 1, lastKernel: now, sends: sends, probed: now, bell: bell,
	}
}

// Attached reports whether the receiver has taken the segment; refused: it does not want it.
func (t *Tx) Attached() (attached, refused bool) {
	if t.ended {
		return false, true
	}
	s := t.st.Load()
	return s == stateAttached, s == stateWithdrawn
}

// Settled reports whether nothing that was sent by the kernel is still on its way. Of a send
// that is under way the receiver may have counted the datagrams in place of others.
func (t *Tx) Settled(now int64) bool {
	under := t.Collect()
	if t.settled && under == 0 || t.ended {
		return t.settled
	}
	dry := t.dryP.Load()
	taken := t.takenP.Load()
	switch {
	case t.lostKnown && taken+t.lost == t.kernel+under:
	case under == 0 && dry == t.kernel && now-t.lastKernel >= int64(SoftirqTime):
		if t.lost = t.kernel - taken; !t.lostKnown && !t.shared {
			t.base, t.lostKnown = t.lost, true
		}
	default:
		return false
	}
	t.settled = under == 0
	return true
}

// Collect counts the sends by the kernel that have ended, and returns how many datagrams are
// under way.
func (t *Tx) Collect() (under uint64) {
	sent, under := t.sends.Take()
	if sent != 0 {
		t.Sent(int(sent), shm.Nanotime())
	}
	return under
}

// Failed says that the kernel has not sent a datagram. If a record says that it comes after
// some that are under way, the receiver may take these for lost, and so does the sender.
func (t *Tx) Failed() {
	t.Collect()
	if !t.ended && t.told > t.kernel {
		t.lost++
		t.Sent(1, t.lastKernel)
	}
	t.sends.Cancel()
}

// Share says that other sockets may send from the same address, from now on: what the receiver
// counts says nothing, only that it has found nothing.
func (t *Tx) Share() {
	if !t.shared {
		t.shared, t.lostKnown, t.settled = true, false, false
	}
}

// Known reports whether it is known how many of those by the kernel were lost.
func (t *Tx) Known() bool { return t.lostKnown }

// Bell reports whether one datagram by the kernel wakes the receiver, which has what follows
// through the segment.
func (t *Tx) Bell() bool {
	return !t.ended && t.saysAfter(t.rxFlags.Load()) && t.armed.Load() != armedAll
}

// saysAfter reports whether a record says how many datagrams by the kernel come before it.
func (t *Tx) saysAfter(flags uint32) bool { return flags&flagAfter != 0 && t.lostKnown }

// mayBeDirect reports whether the next datagram may go through the segment.
func (t *Tx) mayBeDirect(flags uint32) bool {
	armed := t.armed.Load()
	after := t.saysAfter(flags)
	switch {
	case armed == 0:
		return after || t.settled && t.sends.word.Load() == 0 || t.Settled(shm.Nanotime())
	case !after || armed != armedBell:
		return false
	}
	return !t.mustRing(shm.Nanotime())
}

// mustRing reports whether an armed receiver has to be woken: nothing of this sender's is on its
// way by the kernel. But a datagram by the kernel must not be taken for one before it, which was
// lost.
func (t *Tx) mustRing(now int64) bool {
	taken := t.takenP.Load()
	since := now - t.lastKernel
	if !t.Settled(now) && taken+t.lost < t.kernel && t.dryP.Load() != t.kernel && since < int64(SoftirqTime) {
		return false
	}
	return !t.refreshHead() || t.consumed == t.put || int64(taken+t.base-t.told) >= 0 || now-max(t.lastKernel, t.moved) >= bellLost
}

// Armed reports whether the receiver may sleep in the kernel.
func (t *Tx) Armed() bool { return t.ended || t.armed.Load() != 0 }

// Sent says that n datagrams went to D by the kernel, beside those of KernelSends: the caller
// had the lock all the time.
func (t *Tx) Sent(n int, now int64) {
	if t.ended {
		return
	}
	t.kernel += uint64(n)
	t.settled, t.lastKernel = false, now
	t.byKernel.Store(t.kernel)
}

// Meta is what a datagram has beside its payload.
type Meta struct{ TOS, TTL uint8 }

// Send sends a datagram through the segment, if that is its way.
func (t *Tx) Send(p []byte, m Meta) Outcome {
	if t.ended {
		return Gone
	}
	t.busy.Swap(1) // a full fence; a Store is none under the race detector (package shm)
	outcome := t.publishRecord(p, m)
	t.clearBusy()
	if outcome == Published && t.missedLast() {
		outcome = Gone
	}
	if outcome == Published || outcome == NoRoom {
		if t.tries++; (outcome == NoRoom || t.tries%probeEvery == 0) && t.Probe(shm.Nanotime()) {
			return Gone
		}
	}
	if outcome == Gone {
		t.Close()
	}
	return outcome
}

// clearBusy ends what busy says.
func (t *Tx) clearBusy() {
	shm.Publish()
	shm.Release(t.busy, 0)
}

// missedLast reports whether the receiver has closed the flow while the sender published, as it
// does with one that has been busy for long, and does not take what came last.
func (t *Tx) missedLast() bool {
	if t.rxFlags.Load()&flagClosed == 0 {
		return false
	}
	for start := shm.Nanotime(); t.rxFlags.Load()&flagFinal == 0 && shm.Nanotime()-start < finalTime; {
		runtime.Gosched()
	}
	return !t.refreshHead() || t.consumed != t.put
}

// publishRecord writes a record, if datagrams may go through the segment. busy is 1 meanwhile.
func (t *Tx) publishRecord(p []byte, m Meta) Outcome {
	flags := t.rxFlags.Load()
	switch {
	case flags&flagClosed != 0:
		return Gone
	case !t.mayBeDirect(flags):
		return ByKernel
	}
	head, w := recordHead, uint64(len(p))|tagDatagram<<tagShift|uint64(m.TOS)<<tosShift|uint64(m.TTL)<<ttlShift
	before := t.kernel
	if t.saysAfter(flags) {
		if under := t.Collect(); t.told != t.kernel+under {
			w |= afterBit
			head += afterLen
			before = t.kernel + under
		}
	}
	n := takenBy(w)
	if t.put-t.consumed >= t.rewind && !t.refreshHead() {
		return Gone
	}
	off := t.put % t.size
	need := n
	wrap := off+n > t.size || off >= t.rewind && t.consumed == t.put && off >= n+align
	if wrap {
		need += t.size - off
	}
	if !t.hasRoom(need, n) {
		if !t.refreshHead() {
			return Gone
		}
		if !t.hasRoom(need, n) {
			return NoRoom
		}
	}
	from := off
	if wrap {
		t.put += t.size - off
		off = 0
	}
	shm.Release(&t.words[(off+n)%t.size/8], 0)
	if len(p) > 0 {
		t.ring.Part(int(off)+head, len(p)).Fill(p)
	}
	shm.Release(&t.words[off/8+1], shm.Ticks())
	if w&afterBit != 0 {
		t.told = before
		shm.Release(&t.words[off/8+2], uint64(uint32(before))|t.base<<32)
	}
	t.put += n
	shm.Publish()
	shm.Release(&t.words[off/8], w)
	if wrap { // last: who sees it sees what it leads to
		shm.Publish()
		shm.Release(&t.words[from/8], tagWrap<<tagShift)
	}
	return Published
}

// hasRoom reports whether need bytes fit. n of them are the record's.
func (t *Tx) hasRoom(need, n uint64) bool {
	in := t.put - t.consumed
	if in+need+align > t.size {
		return false
	}
	bound := uint64(t.bound.Load())
	return bound == 0 || in == 0 || in+n <= bound*n/(n+perRecord)
}

// refreshHead looks what the receiver has given back. False: that is impossible.
func (t *Tx) refreshHead() bool {
	c := t.consumedP.Load()
	if c-t.consumed > t.put-t.consumed {
		return false
	}
	if c != t.consumed {
		t.consumed, t.moved = c, shm.Nanotime()
	}
	return true
}

// Consumed is the count of bytes that the receiver has given back; all: it has everything.
func (t *Tx) Consumed() (n uint64, all bool) {
	if t.ended || !t.refreshHead() {
		t.Close()
		return t.put, true
	}
	return t.consumed, t.consumed == t.put
}

// Drop counts a datagram for which there was no room.
func (t *Tx) Drop() {
	if !t.ended {
		t.dropped.Store(t.dropped.Load() + 1)
	}
}

// Probe looks, at most once in probeTime, whether the other end of the liveness pair is closed,
// and ends the flow if it is.
func (t *Tx) Probe(now int64) bool {
	if now-t.probed < probeTime {
		return false
	}
	t.probed = now
	if !t.HungUp() {
		return false
	}
	t.Close()
	return true
}

// HungUp reports whether the other end of the liveness pair is closed.
func (t *Tx) HungUp() bool { return t.ended || shm.HungUp(t.bell) }

// Close ends the flow for the sender. What is in the ring remains.
func (t *Tx) Close() {
	if t.ended {
		return
	}
	t.ended = true
	t.busy.Store(flagLeft << 32)
	_ = unix.Close(t.bell)
	t.seg.Retire()
}

// Ended reports whether the flow has ended.
func (t *Tx) Ended() bool { return t.ended }

// Info says whose flow it is.
func (t *Tx) Info() Info { return t.seg.info }

package segment

import (
	"errors"
	"fmt"
	"time"

	"exnet/foreign"
	"exnet/internal/shm"
)

// ErrNoSink says that there is no sink: the peer has sent something else instead.
// Call Recv.
var ErrNoSink = errors.New("segment: no sink is offered")

// sink is where the receiver wants the next message to go.
type sink struct {
	last   uint64 // number of the last sink
	region *Region
	slot   uint64 // message that it is for
	off, n int    // n is 0 when there is none
	asked  time.Time
}

// sinkWait is how long a peer may take to fill a sink that was withdrawn: that
// of an honest one is a copy of 8 MiB at most.
const sinkWait = 10 * time.Second

// OfferSink has the next message go to n bytes of r, from off on, if the peer likes:
// see RecvSink. number is what Share has returned for r. ErrAgain: there is something
// to be received first. It belongs to RX.
func (e *End) OfferSink(r *Region, number uint32, off, n int) error {
	x := &e.rx
	if n < 1 || off < 0 || n > r.mem.Len()-off {
		return fmt.Errorf("%w: sink of %d bytes at %d of a region of %d", ErrConfig, n, off, r.mem.Len())
	}
	if x.phase != phaseDirect || e.bad.Load() {
		return e.rxStanding()
	}
	if !e.ZCopy() {
		return ErrNoZCopy
	}
	if _, _, ok := e.nextStatus(); ok || x.cur.Len() > 0 || x.sink.n > 0 {
		return ErrAgain
	}
	x.sink = sink{last: x.sink.last + 1, region: r, slot: x.count, off: off, n: min(n, maxRMA)}
	e.own.sinkSlot.Store(x.count)
	e.own.sinkRegion.Store(number)
	e.own.sinkLen.Store(uint32(x.sink.n))
	e.own.sinkOff.Store(uint64(off))
	shm.Publish()
	e.own.sinkSeq.Store(x.sink.last)
	return nil
}

// RecvSink looks whether the sink was filled, and with how many bytes; they are the
// next of the stream. ErrAgain: not yet. ErrNoSink: it has not been, and will not
// be. It belongs to RX.
func (e *End) RecvSink() (int, error) {
	x := &e.rx
	if x.phase != phaseDirect || e.bad.Load() {
		return 0, e.rxStanding()
	}
	if x.sink.n == 0 || x.cur.Len() > 0 {
		return 0, ErrNoSink
	}
	w, s, ok := e.nextStatus()
	if !ok {
		return 0, e.whenEmpty()
	}
	if !e.sinkFilled(w, s) {
		e.dropSink()
		return 0, ErrNoSink
	}
	if err := e.openMessage(); err != nil { // which drops the sink
		return 0, err
	}
	if x.sink.n > 0 { // the peer has changed the message
		return 0, e.endOnBreach()
	}
	n := x.cur.Len()
	e.noteTaken(n)
	return n, nil
}

// WithdrawSink takes the sink back. False: the peer has begun to fill it; try again,
// or RecvSink. A peer that takes more than 10 s for it is a breach. It belongs to RX.
func (e *End) WithdrawSink() bool {
	x := &e.rx
	if x.sink.n == 0 || e.bad.Load() {
		return true
	}
	e.own.sinkSeq.Swap(0) // and no Store: see package shm
	claimed := e.peer.claimSeq.Load() == x.sink.last && e.Err() == nil
	if w, s, ok := e.nextStatus(); ok && e.sinkFilled(w, s) {
		return false // it has been filled
	}
	if !claimed {
		x.sink.n = 0
		return true
	}
	switch now := time.Now(); {
	case x.sink.asked.IsZero():
		x.sink.asked = now
	case now.Sub(x.sink.asked) > sinkWait:
		_ = e.endOnBreach()
	}
	return e.bad.Load()
}

// sinkFilled reports whether the message at count says that the sink is filled.
func (e *End) sinkFilled(w word, s *foreign.Slot) bool {
	return w.tag() == TagRMAInfo && e.infoAt(s).mode == modeSink
}

// passSink drops the sink if the next message is none for it.
func (e *End) passSink() {
	if w, s, ok := e.nextStatus(); ok && !e.sinkFilled(w, s) {
		e.dropSink()
	}
}

func (e *End) dropSink() {
	e.rx.sink.n = 0
	e.own.sinkSeq.Store(0)
}

// sinkData is the data of a message that went to the sink; empty if it cannot be.
func (e *End) sinkData(info *rmaInfo) foreign.Memory {
	k := &e.rx.sink
	if k.n == 0 || info.place != k.last || e.rx.count != k.slot || info.size < 1 || info.size > uint64(k.n) {
		return foreign.Memory{}
	}
	data := k.region.foreignMemory().Part(k.off, int(info.size))
	e.dropSink()
	return data
}

// SinkUnknown reports whether the peer has a sink in a region of which RX has not
// heard yet, although its REGION may have come: call Next. It belongs to TX.
func (e *End) SinkUnknown() bool {
	return e.peer.sinkSeq.Load() != 0 && e.inboundRegion(e.peer.sinkRegion.Load()).Len() == 0
}

// sendSink puts the beginning of p into the peer's sink, if one stands for the next
// message. 0: none does.
func (e *End) sendSink(p []byte) (n int, err error) {
	seq := e.peer.sinkSeq.Load()
	if seq == 0 {
		return 0, nil
	}
	shm.Observe()
	slot, region := e.peer.sinkSlot.Load(), e.inboundRegion(e.peer.sinkRegion.Load())
	size, off := uint64(e.peer.sinkLen.Load()), e.peer.sinkOff.Load()
	if slot != e.tx.sent || region.Len() == 0 {
		return 0, nil
	}
	s, err := e.nextSlot()
	if err != nil {
		return 0, err
	}
	e.own.claimSeq.Swap(seq)          // and no Store: see package shm
	if e.peer.sinkSeq.Load() != seq { // it was withdrawn
		e.own.claimSeq.Store(0)
		return 0, nil
	}
	if size < 1 || size > maxRMA || size > uint64(region.Len()) || off > uint64(region.Len())-size {
		return 0, e.endOnBreach()
	}
	n = region.Part(int(off), int(size)).Fill(p)
	e.putInfo(s, rmaInfo{mode: modeSink, size: uint64(n), place: seq})
	e.count.Add(ZCopySent, uint64(n))
	e.wakeReader()
	return n, nil
}

package segment

import (
	"encoding/binary"

	"exnet/internal/shm"
)

// rollback is how far Rollback has come.
type rollback struct {
	begun bool
	count uint64 // message
	off   int    // bytes of it
}

// Rollback gives write, in order, every byte that was sent and not consumed before
// the peer froze the direction; write is that of the shadow, and borrows what it is
// given. If it fails, Rollback can be called again and goes on after the bytes that
// write took. Afterwards the direction is on the shadow: if it was to be shut down,
// it is the shadow that has to be. It belongs to TX.
func (e *End) Rollback(write func(p []byte) (int, error)) error {
	t, b := &e.tx, &e.tx.back
	defer e.keep()
	if e.bad.Load() {
		return ErrCorrupt
	}
	if !b.begun {
		if !e.Frozen() {
			return ErrAgain
		}
		slot, off := e.peer.frozenSlot.Load(), e.peer.frozenOff.Load()
		if t.sent-slot > t.sent-t.consumed || off > maxRMA || off > 0 && slot == t.sent {
			return e.breach()
		}
		*b = rollback{begun: true, count: slot, off: int(off)}
		e.raise(rolledFlag) // before the first byte on the shadow
	}
	for t.phase != phaseDemoted && b.count != t.sent {
		data, last, err := e.unconsumed(b.count)
		if err != nil || b.off > len(data) {
			return e.breach()
		}
		if last {
			break
		}
		for b.off < len(data) {
			n, err := write(data[b.off:])
			b.off += n
			if err != nil {
				return err
			}
		}
		b.count++
		b.off = 0
	}
	t.phase = phaseDemoted
	return nil
}

// unconsumed is the data of a message that was sent: empty for one that has none.
// The peer can write to it, too. last: the direction ended there.
func (e *End) unconsumed(count uint64) (data []byte, last bool, err error) {
	t := &e.tx
	s := &t.queue[count&uint64(len(t.queue)-1)]
	w := word(s.Status.Load())
	n := w.len()
	switch w.tag() {
	case TagVELO, TagVELOLast:
		if n <= MaxVELO {
			return s.Payload[:n], false, nil
		}
	case TagRMAInfo:
		info := decodeInfo(&s.Payload)
		if info.mode == modePut && info.fits(uint64(len(t.mem))) {
			return t.mem[info.place : info.place+info.size], false, nil
		}
		if i := uint64(info.region) - 1; info.mode == modeGet && i < uint64(len(t.regions.list)) {
			if mem := t.regions.list[i].Bytes(); info.fits(uint64(len(mem))) {
				return mem[info.place : info.place+info.size], false, nil
			}
		}
	case TagPromote, TagRegion:
		return nil, false, nil
	case TagShutdown, TagDemote:
		return nil, true, nil
	}
	return nil, false, ErrCorrupt
}

// rmaInfo is what an RMA_INFO says.
type rmaInfo struct {
	mode                 uint8
	region               uint32
	size, place, advance uint64
}

// decodeInfo reads each byte once: the peer may change them.
func decodeInfo(p *[MaxVELO]byte) rmaInfo {
	return rmaInfo{
		mode:    p[rmaModeOff],
		size:    uint64(binary.LittleEndian.Uint32(p[rmaLenOff:])),
		place:   binary.LittleEndian.Uint64(p[rmaPlaceOff:]),
		advance: binary.LittleEndian.Uint64(p[rmaAdvanceOff:]),
		region:  binary.LittleEndian.Uint32(p[rmaRegionOff:]),
	}
}

// putInfo sends an RMA_INFO.
func (e *End) putInfo(s *shm.Slot, i rmaInfo) {
	binary.LittleEndian.PutUint32(s.Payload[rmaModeOff:], uint32(i.mode))
	binary.LittleEndian.PutUint32(s.Payload[rmaLenOff:], uint32(i.size))
	binary.LittleEndian.PutUint64(s.Payload[rmaPlaceOff:], i.place)
	binary.LittleEndian.PutUint64(s.Payload[rmaAdvanceOff:], i.advance)
	binary.LittleEndian.PutUint32(s.Payload[rmaRegionOff:], i.region)
	e.commit(s, TagRMAInfo, rmaLen)
	e.count.Add(SentRMAInfo, 1)
}

// fits reports whether the data lies within size bytes.
func (i *rmaInfo) fits(size uint64) bool {
	return i.size >= 1 && i.size <= maxRMA && i.size <= size && i.place <= size-i.size
}

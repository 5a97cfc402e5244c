package segment

import (
	"encoding/binary"

	"exnet/foreign"
)

// returnChunk is how many bytes go to the shadow at a time.
const returnChunk = 64 << 10

// returning is how far ReturnToTCP has come.
type returning struct {
	begun bool
	count uint64 // message
	off   int    // bytes of it
}

// ReturnToTCP gives write, in order, every byte that was sent and not consumed before
// the peer fell back; write is that of the shadow, and borrows what it is
// given. If it fails, ReturnToTCP can be called again and goes on after the bytes that
// write took. Afterwards the direction is on the shadow: if it was to be shut down,
// it is the shadow that has to be. It belongs to TX.
func (e *End) ReturnToTCP(write func(p []byte) (int, error)) error {
	t, b := &e.tx, &e.tx.back
	var buf []byte // private, as nobody knows how often write reads it
	defer e.keepMapped()
	if e.bad.Load() {
		return ErrCorrupt
	}
	if !b.begun {
		if !e.FallenBack() {
			return ErrAgain
		}
		slot, off := e.peer.fallbackSlot.Load(), e.peer.fallbackOff.Load()
		if t.sent-slot > t.sent-t.consumed || off > maxRMA || off > 0 && slot == t.sent {
			return e.endOnBreach()
		}
		*b = returning{begun: true, count: slot, off: int(off)}
		e.raiseFlags(returnedFlag) // before the first byte on the shadow
	}
	for t.phase != phaseDemoted && b.count != t.sent {
		data, last, err := e.unconsumedMessage(b.count)
		if err != nil || b.off > data.Len() {
			return e.endOnBreach()
		}
		if last {
			break
		}
		for b.off < data.Len() {
			rest := data.Part(b.off, min(data.Len()-b.off, returnChunk))
			buf = rest.AppendTo(buf[:0])
			n, err := write(buf)
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

// unconsumedMessage is the data of a message that was sent: empty for one that has none.
// The peer can write to it, too. last: the direction ended there.
func (e *End) unconsumedMessage(count uint64) (data foreign.Memory, last bool, err error) {
	t := &e.tx
	s := &t.queue[count&uint64(len(t.queue)-1)]
	w := word(s.Status.Load())
	n := w.len()
	switch w.tag() {
	case TagVELO, TagVELOLast:
		if n <= MaxVELO {
			return s.Payload().Part(0, n), false, nil
		}
	case TagRMAInfo:
		info := decodeInfo(s.Payload())
		if info.mode == modePut && info.liesWithin(uint64(t.mem.Len())) {
			return t.mem.Part(int(info.place), int(info.size)), false, nil
		}
		if i := uint64(info.region) - 1; info.mode == modeGet && i < uint64(len(t.regions.list)) {
			if mem := t.regions.list[i].foreignMemory(); info.liesWithin(uint64(mem.Len())) {
				return mem.Part(int(info.place), int(info.size)), false, nil
			}
		}
	case TagPromote, TagRegion:
		return data, false, nil
	case TagShutdown, TagDemote, TagPause:
		return data, true, nil
	}
	return data, false, ErrCorrupt
}

// rmaInfo is what an RMA_INFO says.
type rmaInfo struct {
	mode                 uint8
	region               uint32
	size, place, advance uint64
}

// decodeInfo decodes the payload of an RMA_INFO.
func decodeInfo(m foreign.Memory) rmaInfo {
	var p [rmaLen]byte
	m.CopyTo(p[:])
	return rmaInfo{
		mode:    p[rmaModeOff],
		size:    uint64(binary.LittleEndian.Uint32(p[rmaLenOff:])),
		place:   binary.LittleEndian.Uint64(p[rmaPlaceOff:]),
		advance: binary.LittleEndian.Uint64(p[rmaAdvanceOff:]),
		region:  binary.LittleEndian.Uint32(p[rmaRegionOff:]),
	}
}

// putInfo sends an RMA_INFO.
func (e *End) putInfo(s *foreign.Slot, i rmaInfo) {
	p := s.Payload()
	p.PutUint32(rmaModeOff, uint32(i.mode))
	p.PutUint32(rmaLenOff, uint32(i.size))
	p.PutUint64(rmaPlaceOff, i.place)
	p.PutUint64(rmaAdvanceOff, i.advance)
	p.PutUint32(rmaRegionOff, i.region)
	e.publish(s, TagRMAInfo, rmaLen)
	e.count.Add(SentRMAInfo, 1)
}

// liesWithin reports whether the data lies within size bytes.
func (i *rmaInfo) liesWithin(size uint64) bool {
	return i.size >= 1 && i.size <= maxRMA && i.size <= size && i.place <= size-i.size
}

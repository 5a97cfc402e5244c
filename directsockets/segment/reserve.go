package segment

import (
	"exnet/foreign"
	"exnet/internal/shm"
)

// Reserve lends room for up to n bytes in the ring, in one piece, until Commit: so
// that what is to be sent can be written there. Nothing else may be sent in between.
// ErrAgain: there is no room. It belongs to TX.
func (e *End) Reserve(n int) (m foreign.Memory, err error) {
	t := &e.tx
	if now := shm.Ticks(); int64(now-t.looked) >= lookEvery || now == 0 && t.sent%lookAfter == 0 {
		e.checkPeerAlive(now)
	}
	if err := e.dataError(); err != nil {
		return m, err
	}
	t.want = 0
	if _, err := e.nextSlot(); err != nil {
		return m, err
	}
	got, skip := e.findRoom(min(n, e.tuning.Chunk))
	switch {
	case got < 0:
		return m, e.endOnBreach()
	case got == 0:
		t.want = min(n, minChunk)
		return m, ErrAgain
	}
	t.skip = skip
	pos := t.pos
	if skip > 0 {
		pos = 0
	}
	return t.mem.Part(pos, got), nil
}

// Commit sends the first n bytes of what Reserve lent, at least one. It belongs to
// TX.
func (e *End) Commit(n int) error {
	t := &e.tx
	if e.bad.Load() {
		return ErrCorrupt
	}
	s, err := e.nextSlot()
	if err != nil {
		return err
	}
	if t.skip > 0 {
		t.pos = 0
	}
	need := (n + line - 1) &^ (line - 1)
	advance := need + t.skip
	t.skip = 0
	e.putInfo(s, rmaInfo{mode: modePut, size: uint64(n), place: uint64(t.pos), advance: uint64(advance)})
	t.put += uint64(advance)
	if t.pos += need; t.pos == t.mem.Len() {
		t.pos = 0
	}
	e.count.Add(SentDirect, uint64(n))
	e.count.Set(RingUsed, t.put-t.freed)
	e.wakeReader()
	e.keepMapped()
	return nil
}

// Room reports whether Send would do something, in one look. It belongs to TX.
func (e *End) Room() bool { return e.txReady() }

package spill

import (
	"errors"
	"fmt"
	"time"

	"exnet/fabric"
)

// revoked moves what is in a lease elsewhere before its lender takes it.
func (s *Store) revoked(h *held, deadline time.Time) {
	<-h.ready
	s.mu.Lock()
	if s.closed || h.Lease == nil {
		s.mu.Unlock()
		return
	}
	s.moving.Add(1)
	h.leaves = true
	s.mu.Unlock()
	defer s.moving.Done()
	s.changing.Lock()
	defer s.changing.Unlock()
	// Whose time is over may be asked again; who wants its memory back is not.
	node := h.Lender()
	avoid := &node
	if until := h.Until(); !until.IsZero() && !deadline.Before(until) {
		avoid = nil
	}
	err := s.giveBack(h, func(piece int) error { return s.more(piece, avoid) })
	if err == nil || errors.Is(err, fabric.ErrClosed) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reason = fmt.Errorf("node %d takes its memory back, and no other has room: %w", node, err)
}

var errNoRoom = errors.New("spill: the other leases have no room")

// Release gives the smallest lease back if the others have room for what is there. It reports
// whether it has.
func (s *Store) Release() bool {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	var least *held
	for _, h := range s.leases {
		if !h.leaves && (least == nil || h.Len() < least.Len()) {
			least = h
		}
	}
	if least == nil || s.closed {
		s.mu.Unlock()
		return false
	}
	least.leaves = true
	s.mu.Unlock()
	if s.giveBack(least, func(int) error { return errNoRoom }) == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	least.leaves = false
	return false
}

// giveBack moves all pieces of a lease and gives it back. more is called for room. s.changing is
// held.
func (s *Store) giveBack(h *held, more func(piece int) error) error {
	for i := 0; i < s.countPieces(); {
		ok, err := s.moveOne(i, h)
		if err != nil {
			return err
		}
		if ok {
			i++
			continue
		}
		if err := more(i); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.dropLocked(h)
	s.mu.Unlock()
	_ = h.Lease.Close() // nothing is there any more
	return nil
}

// moveOne moves a piece, if it is in h, to another lease. It returns false if there is no room.
func (s *Store) moveOne(piece int, h *held) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.pieces[piece]
	switch {
	case s.closed:
		return false, fabric.ErrClosed
	case from.in != h:
		return true, nil
	}
	first, pages := int64(piece)*s.piece/pageSize, s.sizeOf(piece)/pageSize
	used := false
	for page := first; page < first+pages; page++ {
		used = used || s.written.isSet(page)
	}
	if !used {
		s.vacateLocked(piece)
		return true, nil
	}
	to, ok := s.roomLocked(piece)
	if !ok {
		return false, nil
	}
	buf := make([]byte, pages*pageSize)
	if _, err := h.ReadAt(buf, from.at); err != nil {
		to.in.free = append(to.in.free, part{to.at, s.sizeOf(piece)})
		s.loseLocked(h, err)
		return true, nil
	}
	if _, err := to.in.WriteAt(buf, to.at); err != nil {
		s.loseLocked(to.in, err)
		return false, nil
	}
	s.vacateLocked(piece)
	s.pieces[piece] = to
	return true, nil
}

// vacateLocked takes a piece from its place.
//
// +checklocks:s.mu
func (s *Store) vacateLocked(piece int) {
	at := s.pieces[piece]
	at.in.free = append(at.in.free, part{at.at, s.sizeOf(piece)})
	s.pieces[piece] = place{}
}

// countPieces is the number of pieces.
func (s *Store) countPieces() int { return int((s.cfg.Size + s.piece - 1) / s.piece) }

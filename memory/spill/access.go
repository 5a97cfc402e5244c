package spill

import (
	"fmt"
	"slices"

	"exnet/fabric"
	"exnet/foreign"
	"exnet/memory"
)

// checkAccess says what is wrong with an access.
func (s *Store) checkAccess(off, n int64) error {
	if off < 0 || n < 0 || off%pageSize != 0 || n%pageSize != 0 || off > s.cfg.Size || n > s.cfg.Size-off {
		return fmt.Errorf("%w: %d bytes at %d, of %d, in whole pages", memory.ErrRange, n, off, s.cfg.Size)
	}
	return nil
}

// eachPiece calls f for each part of p that is in one piece.
func (s *Store) eachPiece(p []byte, off int64, f func(part []byte, off int64, piece int) error) (int, error) {
	if err := s.checkAccess(off, int64(len(p))); err != nil {
		return 0, err
	}
	done := 0
	for done < len(p) {
		at := off + int64(done)
		n := min(int64(len(p)-done), s.piece-at%s.piece)
		if err := f(p[done:done+int(n)], at, int(at/s.piece)); err != nil {
			return done, err
		}
		done += int(n)
	}
	return done, nil
}

// ReadAt reads whole pages. What was never written, or was discarded, is zeros. The error is that
// of the lease in which they were.
func (s *Store) ReadAt(p []byte, off int64) (int, error) { return s.eachPiece(p, off, s.read) }

func (s *Store) read(p []byte, off int64, piece int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fabric.ErrClosed
	}
	if at := s.pieces[piece]; at.in != nil {
		if _, err := at.in.ReadAt(p, at.at+off%s.piece); err != nil {
			s.loseLocked(at.in, err)
		}
	}
	for i := range int64(len(p) / pageSize) {
		page := off/pageSize + i
		if s.lost.isSet(page) {
			return s.reason
		}
		if !s.written.isSet(page) {
			clear(p[i*pageSize : (i+1)*pageSize])
		}
	}
	return nil
}

// viewer is a Lease whose memory may be mapped, as memory.Segment.
type viewer interface {
	View(off, n int64, f func(foreign.Memory)) bool
}

// View calls f with whole pages where they are mapped, as memory.Segment.View does. It reports
// false also if they are not in one piece, or not all of them have been written.
func (s *Store) View(off, n int64, f func(foreign.Memory)) bool {
	if s.checkAccess(off, n) != nil || n == 0 || off/s.piece != (off+n-1)/s.piece {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.pieces[off/s.piece]
	if s.closed || at.in == nil {
		return false
	}
	for page := off / pageSize; page < (off+n)/pageSize; page++ {
		if !s.written.isSet(page) || s.lost.isSet(page) {
			return false
		}
	}
	v, ok := at.in.Lease.(viewer)
	return ok && v.View(at.at+off%s.piece, n, f)
}

// Keeps reports whether whole pages have what was written to them, as far as has been heard of
// their lenders: it asks none.
func (s *Store) Keeps(off, n int64) bool {
	if s.checkAccess(off, n) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for page := off / pageSize; page < (off+n)/pageSize; page++ {
		if s.lost.isSet(page) {
			return false
		}
		if in := s.pieces[page*pageSize/s.piece].in; s.written.isSet(page) && in != nil && in.Err() != nil {
			return false
		}
	}
	return true
}

// WriteAt writes whole pages. It borrows if it has to. The error wraps ErrFull if nobody lends
// more, or is why a lender's memory was lost and no other has room.
func (s *Store) WriteAt(p []byte, off int64) (int, error) { return s.eachPiece(p, off, s.write) }

func (s *Store) write(p []byte, off int64, piece int) error {
	for {
		ok, err := s.tryWrite(p, off, piece)
		if ok || err != nil {
			return err
		}
		if err := s.makeRoom(piece); err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.reason != nil {
				return s.reason
			}
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
	}
}

// makeRoom borrows for a piece, unless there is room now.
func (s *Store) makeRoom(piece int) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	ok := s.placeLocked(piece)
	s.mu.Unlock()
	if ok {
		return nil
	}
	return s.more(piece, nil)
}

// tryWrite writes if the piece has a place, or gets one. It returns whether it has written.
func (s *Store) tryWrite(p []byte, off int64, piece int) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, fabric.ErrClosed
	}
	if !s.placeLocked(piece) {
		return false, nil
	}
	at := s.pieces[piece]
	if _, err := at.in.WriteAt(p, at.at+off%s.piece); err != nil {
		s.loseLocked(at.in, err)
		return false, nil
	}
	for i := range int64(len(p) / pageSize) {
		if s.written.setBit(off/pageSize+i, true) {
			s.used += pageSize
		}
		s.lost.setBit(off/pageSize+i, false)
	}
	return true, nil
}

// Discard forgets whole pages: they read as zeros.
func (s *Store) Discard(off, n int64) error {
	if err := s.checkAccess(off, n); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for page := off / pageSize; page < (off+n)/pageSize; page++ {
		if s.written.setBit(page, false) {
			s.used -= pageSize
		}
		s.lost.setBit(page, false)
	}
	return nil
}

// loseLocked notes that a lease has ended with what was there.
//
// +checklocks:s.mu
func (s *Store) loseLocked(h *held, err error) {
	if s.reason == nil || !h.leaves {
		s.reason = fmt.Errorf("node %d: %w", h.Lender(), err)
	}
	for i, at := range s.pieces {
		if at.in != h {
			continue
		}
		s.pieces[i] = place{}
		first := int64(i) * s.piece / pageSize
		for page := first; page < first+s.sizeOf(i)/pageSize; page++ {
			if s.written.setBit(page, false) {
				s.lost.setBit(page, true)
				s.used -= pageSize
			}
		}
	}
	s.dropLocked(h)
	s.moving.Go(func() { _ = h.Lease.Close() }) // it has ended
}

// dropLocked takes a lease from the Store.
//
// +checklocks:s.mu
func (s *Store) dropLocked(h *held) {
	s.leases = slices.DeleteFunc(s.leases, func(o *held) bool { return o == h })
}

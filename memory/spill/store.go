package spill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"exnet/fabric"
	"exnet/internal/display"
	"exnet/memory"
)

const pageSize = memory.PageSize

// ErrFull says that no lender has room for what is written.
var ErrFull = errors.New("spill: no node lends more")

// Lease is memory of one lender, as a memory.Segment.
type Lease interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	Len() int64
	Lender() fabric.NodeID
	Until() time.Time
	Err() error // nil: it has not ended
	Close() error
}

// Config configures a Store.
type Config struct {
	// Size of the Store in bytes, a multiple of the page size.
	Size int64
	// Step is how much is borrowed at once. 0: all of Size, by New.
	Step int64
	// Borrow asks for a lease of c.Size bytes, or of less down to c.Min. nil: memory.Borrow.
	Borrow func(ctx context.Context, c memory.Config) (Lease, error)
	// Timeout is how long a request for a lease may stay unanswered. 0: DefaultTimeout.
	Timeout time.Duration
	// Base is what each request begins with: the node's socket, a lender, a time.
	Base memory.Config
}

// DefaultTimeout is more than a node waits for others, of which it may ask several.
const DefaultTimeout = 30 * time.Second

// Store is memory of several lenders. Its offsets do not change when content moves.
type Store struct {
	cfg    Config
	piece  int64
	ctx    context.Context
	cancel context.CancelFunc

	// changing is held by who borrows, moves or gives back, before mu: for Timeout at most until
	// there is an answer, so that a write that has to borrow waits no longer than that for a
	// lender's wish.
	changing sync.Mutex
	moving   sync.WaitGroup

	mu      sync.Mutex
	pieces  []place // +checklocks:mu
	leases  []*held // +checklocks:mu
	written bits    // +checklocks:mu
	lost    bits    // +checklocks:mu
	used    int64   // +checklocks:mu
	// reason: why something was lost, or could not leave its lender.
	reason error // +checklocks:mu
	closed bool  // +checklocks:mu
}

// place is where a piece is.
type place struct {
	in *held // nil: nowhere
	at int64
}

// held is a lease, and its parts that have no piece.
type held struct {
	Lease
	ready  chan struct{} // closed when the Store has it, or never will
	free   []part
	leaves bool // its lender wants it back: nothing comes there any more. How it ends its Lease says
}

type part struct{ at, size int64 }

// New makes a Store. Without a Step it borrows all at once, or returns an error that wraps
// memory.ErrRefused.
func New(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Size <= 0 || cfg.Size%pageSize != 0 || cfg.Step < 0 || cfg.Step%pageSize != 0 {
		return nil, fmt.Errorf("%w: a size of %d bytes in steps of %d", memory.ErrRange, cfg.Size, cfg.Step)
	}
	if cfg.Borrow == nil {
		cfg.Borrow = func(ctx context.Context, c memory.Config) (Lease, error) { return memory.Borrow(ctx, c) }
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	s := &Store{cfg: cfg, piece: pieceOf(cfg.Size)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	s.pieces = make([]place, (cfg.Size+s.piece-1)/s.piece)
	s.written, s.lost = newBits(cfg.Size/pageSize), newBits(cfg.Size/pageSize)
	s.mu.Unlock()
	if cfg.Step > 0 {
		return s, nil
	}
	for {
		rest := s.placeAll()
		if rest == 0 {
			return s, nil
		}
		if err := s.borrow(ctx, rest, nil); err != nil {
			had := cfg.Size - rest
			_ = s.Close() // the error is that of New
			if had > 0 {
				err = fmt.Errorf("of %s all nodes together lend %s: %w", display.Size(float64(cfg.Size)), display.Size(float64(had)), err)
			}
			return nil, err
		}
	}
}

// pieceOf is the size of pieces: some 256 of them, but of 64 KiB at least, and of 16 MiB at most,
// since a Store waits while one is moved.
func pieceOf(size int64) int64 {
	const least, most = 64 << 10, 16 << 20
	return min(max(least, (size/256+pageSize-1)/pageSize*pageSize), most)
}

// sizeOf is the size of a piece: the last one may be smaller.
func (s *Store) sizeOf(piece int) int64 { return min(s.piece, s.cfg.Size-int64(piece)*s.piece) }

// placeAll gives all pieces a place as far as there is room, and returns how much has none.
func (s *Store) placeAll() (rest int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.pieces {
		if !s.placeLocked(i) {
			rest += s.sizeOf(i)
		}
	}
	return rest
}

// placeLocked gives a piece a place, unless it has one.
//
// +checklocks:s.mu
func (s *Store) placeLocked(i int) bool {
	if s.pieces[i].in != nil {
		return true
	}
	to, ok := s.roomLocked(i)
	if ok {
		s.pieces[i] = to
	}
	return ok
}

// roomLocked takes room for a piece.
//
// +checklocks:s.mu
func (s *Store) roomLocked(piece int) (place, bool) {
	size := s.sizeOf(piece)
	for _, h := range s.leases {
		for j := len(h.free) - 1; j >= 0 && !h.leaves; j-- {
			if f := h.free[j]; f.size >= size {
				h.free = slices.Delete(h.free, j, j+1)
				return place{h, f.at}, true
			}
		}
	}
	return place{}, false
}

// borrow adds a lease of up to n bytes. avoid: not of this node.
func (s *Store) borrow(ctx context.Context, n int64, avoid *fabric.NodeID) error {
	h := &held{ready: make(chan struct{})}
	defer close(h.ready)
	c := s.cfg.Base
	if c.Node != nil && avoid != nil && *c.Node == *avoid {
		return fmt.Errorf("%w: only node %d may lend, which wants its memory back", memory.ErrRefused, *avoid)
	}
	c.Size, c.Min, c.Avoid = n, min(n, s.piece), avoid
	c.OnRevoke = func(deadline time.Time) { s.revoked(h, deadline) }
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	l, err := s.cfg.Borrow(ctx, c)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: no answer within %v", memory.ErrRefused, s.cfg.Timeout)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.Join(fabric.ErrClosed, l.Close())
	}
	h.Lease = l
	for at := int64(0); at < l.Len(); at += s.piece {
		h.free = append(h.free, part{at, min(s.piece, l.Len()-at)})
	}
	slices.Reverse(h.free) // they are taken from the end
	s.leases = append(s.leases, h)
	return nil
}

// more borrows for a piece.
func (s *Store) more(piece int, avoid *fabric.NodeID) error {
	s.mu.Lock()
	without := int64(0)
	for i := range s.pieces {
		if in := s.pieces[i].in; in == nil || in.leaves {
			without += s.sizeOf(i)
		}
	}
	s.mu.Unlock()
	n := without
	if step := s.cfg.Step; step > 0 {
		n = min(step, without)
	}
	n = max(n, s.sizeOf(piece))
	return s.borrow(s.ctx, n, avoid)
}

// Used is how much of the Store has content; Borrowed is how much all leases have, and Smallest the
// smallest of them, 0 if there is none.
func (s *Store) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Borrowed is documented with Used.
func (s *Store) Borrowed() (all, smallest int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.leases {
		all += h.Len()
		if smallest == 0 || h.Len() < smallest {
			smallest = h.Len()
		}
	}
	return all, smallest
}

// Lenders are the nodes that have a part of the Store, each as often as it has lent one.
func (s *Store) Lenders() (nodes []fabric.NodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.leases {
		nodes = append(nodes, h.Lender())
	}
	return nodes
}

// Spill borrows another Step, if the Store is not borrowed whole.
func (s *Store) Spill() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	all, _ := s.Borrowed()
	if n := min(s.cfg.Step, s.cfg.Size-all); n > 0 {
		return s.borrow(s.ctx, n, nil)
	}
	return nil
}

// Close gives all leases back.
func (s *Store) Close() error {
	s.cancel()
	s.mu.Lock()
	s.closed = true
	leases := s.leases
	s.leases = nil
	s.mu.Unlock()
	var errs []error
	for _, h := range leases {
		if err := h.Lease.Close(); err != nil && !errors.Is(err, memory.ErrRevoked) && !errors.Is(err, memory.ErrLost) {
			errs = append(errs, err)
		}
	}
	s.moving.Wait()
	return errors.Join(errs...)
}

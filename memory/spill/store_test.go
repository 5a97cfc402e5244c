package spill

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/foreign"
	"exnet/internal/leaktest"
	"exnet/memory"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// market is lenders of a test.
type market struct {
	mu    sync.Mutex
	left  map[fabric.NodeID]int64 // +checklocks:mu
	lent  map[*lent]bool          // +checklocks:mu
	asked int                     // +checklocks:mu
}

// lent is a lease of a market.
type lent struct {
	m       *market
	node    fabric.NodeID
	content []byte
	revoke  func(time.Time)

	mu    sync.Mutex
	ended bool // +checklocks:mu
}

func newMarket(left ...int64) *market {
	m := &market{left: make(map[fabric.NodeID]int64), lent: make(map[*lent]bool)}
	for i, n := range left {
		m.left[fabric.NodeID(i)] = n
	}
	return m
}

// borrow is as memory.Borrow: the first node that has enough, or the first that has the minimum.
func (m *market) borrow(_ context.Context, c memory.Config) (Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	for _, want := range []int64{c.Size, c.Min} {
		for n := fabric.NodeID(0); int(n) < len(m.left); n++ {
			if c.Avoid != nil && *c.Avoid == n || m.left[n] < want {
				continue
			}
			l := &lent{m: m, node: n, content: make([]byte, min(c.Size, m.left[n])), revoke: c.OnRevoke}
			m.left[n] -= l.Len()
			m.lent[l] = true
			return l, nil
		}
	}
	return nil, memory.ErrRefused
}

func (l *lent) access(f func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return memory.ErrLost
	}
	f()
	return nil
}

func (l *lent) ReadAt(p []byte, off int64) (int, error) {
	return len(p), l.access(func() { copy(p, l.content[off:off+int64(len(p))]) })
}

func (l *lent) WriteAt(p []byte, off int64) (int, error) {
	return len(p), l.access(func() { copy(l.content[off:off+int64(len(p))], p) })
}

func (l *lent) View(off, n int64, f func(foreign.Memory)) bool {
	return l.access(func() { f(foreign.Of(l.content[off : off+n])) }) == nil
}

func (l *lent) Len() int64            { return int64(len(l.content)) }
func (l *lent) Lender() fabric.NodeID { return l.node }
func (l *lent) Until() time.Time      { return time.Time{} }

func (l *lent) Err() error { return l.access(func() {}) }

func (l *lent) Close() error {
	l.end()
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.m.lent[l] {
		delete(l.m.lent, l)
		l.m.left[l.node] += l.Len()
	}
	return nil
}

func (l *lent) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// any returns one of the leases, nil if there is none.
func (m *market) any() *lent {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.lent {
		return l
	}
	return nil
}

func (m *market) count() (leases, asked int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.lent), m.asked
}

// page is a page that says what it is.
func page(n, version int) []byte {
	b := bytes.Repeat([]byte{byte(version)}, pageSize)
	binary.LittleEndian.PutUint64(b, uint64(n))
	binary.LittleEndian.PutUint64(b[8:], uint64(version))
	return b
}

// At random, pages are written, read and discarded while lenders take their memory back, fail, and
// leases are given back. What is read is what was written last, or an error, and that only of pages
// that were with a lender that failed.
func TestStoreModel(t *testing.T) {
	const pages = 1024
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 36))
		m := newMarket(3<<20, 2<<20, 5<<20, 1<<20)
		s, err := New(t.Context(), Config{Size: pages * pageSize, Step: int64(r.IntN(3)) * 700 << 10 / pageSize * pageSize, Borrow: m.borrow})
		if err != nil {
			t.Fatal(err)
		}
		want := make(map[int]int) // page: version
		exposed := make(map[int]bool)
		moves, fails := 0, 0
		for step := range 3000 {
			n := r.IntN(pages)
			switch k := r.IntN(1000); {
			case k < 500:
				_, err := s.WriteAt(page(n, step+1), int64(n)*pageSize)
				for end := time.Now().Add(time.Minute); err != nil && fails > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
					// What was lost is given back to its lender in the background.
					_, err = s.WriteAt(page(n, step+1), int64(n)*pageSize)
				}
				if err != nil {
					t.Fatalf("seed %d: write: %v", seed, err)
				}
				want[n] = step + 1
				delete(exposed, n)
			case k < 950:
				got, expected := make([]byte, pageSize), make([]byte, pageSize)
				if v := want[n]; v > 0 {
					expected = page(n, v)
				}
				if _, err := s.ReadAt(got, int64(n)*pageSize); err != nil {
					if !exposed[n] || !errors.Is(err, memory.ErrLost) && !strings.Contains(err.Error(), "no other has room") {
						t.Fatalf("seed %d, step %d, page %d: %v", seed, step, n, err)
					}
				} else if !bytes.Equal(got, expected) {
					t.Fatalf("seed %d, step %d, page %d: version %d, want %d", seed, step, n, binary.LittleEndian.Uint64(got[8:]), want[n])
				}
			case k < 980:
				if err := s.Discard(int64(n)*pageSize, pageSize); err != nil {
					t.Fatal(err)
				}
				delete(want, n)
				delete(exposed, n)
			case k < 990:
				if l := m.any(); l != nil {
					l.revoke(time.Now().Add(time.Hour)) // returns when it has moved
					moves++
				}
			case k < 995:
				s.Release()
			case k < 997 && seed%2 == 0:
				if l := m.any(); l != nil {
					l.end()
					fails++
					for n := range want {
						exposed[n] = true // it may have been there
					}
				}
			}
		}
		if moves == 0 || seed%2 == 0 && fails == 0 {
			t.Errorf("seed %d: %d moves, %d failures", seed, moves, fails)
		}
		if n := int64(len(want)) * pageSize; seed%2 == 1 && s.Used() != n {
			t.Errorf("seed %d: %d used, want %d", seed, s.Used(), n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if n, _ := m.count(); n != 0 {
			t.Errorf("seed %d: %d leases are left", seed, n)
		}
	}
}

// All at once: the parts of several lenders are one; more than all have is refused, and nothing
// stays borrowed.
func TestStoreWhole(t *testing.T) {
	m := newMarket(1<<20, 1<<20, 2<<20)
	s, err := New(t.Context(), Config{Size: 4 << 20, Borrow: m.borrow})
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Lenders(); len(n) != 3 {
		t.Errorf("lenders %v", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	_, err = New(t.Context(), Config{Size: 8 << 20, Borrow: m.borrow})
	if !errors.Is(err, memory.ErrRefused) || !strings.Contains(err.Error(), "of 8 MiB all nodes together lend 4 MiB: ") {
		t.Errorf("more than there is: %v", err)
	}
	if n, _ := m.count(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// In steps: nothing is borrowed before it is needed; Spill borrows a step ahead, and Release gives
// back what others have room for.
func TestStoreSteps(t *testing.T) {
	m := newMarket(2<<20, 64<<20)
	s, err := New(t.Context(), Config{Size: 8 << 20, Step: 1 << 20, Borrow: m.borrow})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, leases int) {
		t.Helper()
		if n, _ := m.count(); n != leases {
			t.Errorf("%s: %d leases, want %d", what, n, leases)
		}
	}
	check("at first", 0)
	for n := range 256 { // 1 MiB
		if _, err := s.WriteAt(page(n, 1), int64(n)*pageSize); err != nil {
			t.Fatal(err)
		}
	}
	check("one step", 1)
	for range 2 {
		if err := s.Spill(); err != nil {
			t.Error(err)
		}
	}
	check("two steps ahead", 3)
	if n := s.Lenders(); len(n) != 3 || n[0] != 0 || n[1] != 0 || n[2] != 1 {
		t.Errorf("lenders %v", n)
	}
	for want := 2; want > 0; want-- {
		if !s.Release() {
			t.Error("not released")
		}
		check("after Release", want)
	}
	if s.Release() {
		t.Error("the only lease was released with what is there")
	}
	for n := range 256 {
		got := make([]byte, pageSize)
		if _, err := s.ReadAt(got, int64(n)*pageSize); err != nil || !bytes.Equal(got, page(n, 1)) {
			t.Fatalf("page %d: %v", n, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Who has no lender for what it writes hears ErrFull; who had memory that its lender took, and no
// other to move to, hears that when it reads.
func TestStoreNowhere(t *testing.T) {
	m := newMarket(1 << 20)
	s, err := New(t.Context(), Config{Size: 2 << 20, Step: 1 << 20, Borrow: m.borrow})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 512 {
		if _, err = s.WriteAt(page(n, 1), int64(n)*pageSize); err != nil {
			if n != 256 {
				t.Errorf("full at page %d", n)
			}
			break
		}
	}
	if !errors.Is(err, ErrFull) || !errors.Is(err, memory.ErrRefused) {
		t.Errorf("%v", err)
	}
	l := m.any()
	l.revoke(time.Now())
	if _, err := s.ReadAt(make([]byte, pageSize), 0); err != nil {
		t.Errorf("before the lender takes it: %v", err)
	}
	l.end()
	if _, err := s.ReadAt(make([]byte, pageSize), 0); err == nil || !strings.Contains(err.Error(), "no other has room") {
		t.Errorf("%v", err)
	}
	for _, off := range []int64{-pageSize, 1, 2 << 20} {
		if _, err := s.ReadAt(make([]byte, pageSize), off); !errors.Is(err, memory.ErrRange) {
			t.Errorf("at %d: %v", off, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// While a lender wants its memory back and the request for another lease has no answer, a write
// that has to borrow ends, too, and so does Close: nothing waits for ever.
func TestStoreUnanswered(t *testing.T) {
	m := newMarket(1<<20, 64<<20)
	var silent atomic.Bool
	asked := make(chan struct{}, 1000)
	cfg := Config{Size: 8 << 20, Step: 1 << 20, Borrow: func(ctx context.Context, c memory.Config) (Lease, error) {
		if silent.Load() {
			asked <- struct{}{}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return m.borrow(ctx, c)
	}}
	for _, timeout := range []time.Duration{20 * time.Millisecond, 0} { // 0: until Close
		cfg.Timeout = timeout
		silent.Store(false)
		s, err := New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.WriteAt(page(1, 1), 0); err != nil {
			t.Fatal(err)
		}
		silent.Store(true)
		revoked, written := make(chan struct{}), make(chan error, 1)
		l := m.any()
		go func() { l.revoke(time.Now()); close(revoked) }()
		<-asked // and changing is held
		go func() {
			_, err := s.WriteAt(page(1, 1), 4<<20)
			written <- err
		}()
		if timeout > 0 {
			if err := <-written; !errors.Is(err, memory.ErrRefused) && !strings.Contains(err.Error(), "no other has room") {
				t.Errorf("written: %v", err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-revoked
		if timeout == 0 {
			if err := <-written; err == nil {
				t.Error("written, after Close")
			}
		}
		if n, _ := m.count(); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	}
}

// With real lenders: one wants its memory back, and another gets what was there; it is not asked
// itself although it still lends.
func TestStoreOfNodes(t *testing.T) {
	lend := pool.Config{Limits: pool.Limits{Lend: 8 << 20}}
	f := pooltest.New(t, pool.Config{}, lend, lend)
	s, err := New(t.Context(), Config{Size: 12 << 20, Base: memory.Config{Socket: f.Socket(0)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for n := range 1000 {
		if _, err := s.WriteAt(page(n, 1), int64(3*n)*pageSize); err != nil {
			t.Fatal(err)
		}
	}
	f.Nodes[2].SetLimits(pool.Limits{Lend: 16 << 20})
	if n := f.Nodes[1].Revoke(func(pool.Lease) bool { return true }, time.Minute); n != 1 {
		t.Errorf("%d leases revoked", n)
	}
	for i := 0; len(f.Nodes[1].Status().Lent) > 0; i++ {
		if i == 3000 {
			t.Fatal("the lease is not returned")
		}
		time.Sleep(10 * time.Millisecond)
	}
	for n := range 1000 {
		got := make([]byte, pageSize)
		if _, err := s.ReadAt(got, int64(3*n)*pageSize); err != nil || !bytes.Equal(got, page(n, 1)) {
			t.Fatalf("page %d: %v", n, err)
		}
	}
	for _, n := range s.Lenders() {
		if n != 2 {
			t.Errorf("lender %d", n)
		}
	}
}

// A large Store is made at once, and its pieces are small enough to be moved while a program waits.
func TestStoreLarge(t *testing.T) {
	const size = 1 << 40
	m := &large{}
	s, err := New(t.Context(), Config{Size: size, Borrow: m.borrow})
	if err != nil {
		t.Fatal(err)
	}
	if s.piece > 16<<20 || m.asked != 1 {
		t.Errorf("pieces of %d, %d leases", s.piece, m.asked)
	}
	if rest := s.placeAll(); rest != 0 {
		t.Errorf("%d bytes have no place", rest)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// large lends any amount, of which nothing is used.
type large struct {
	lent
	size  int64
	asked int
}

func (l *large) borrow(_ context.Context, c memory.Config) (Lease, error) {
	l.size, l.asked = c.Size, l.asked+1
	return l, nil
}

func (l *large) Len() int64   { return l.size }
func (l *large) Close() error { return nil }

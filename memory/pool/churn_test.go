package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
	"exnet/memory"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

// Leases come and go, by eight borrowers at once: returned, revoked, whose time is over, whose
// borrower ends without a word, and who asks for too much. Nothing of them is left.
func TestLeasesComeAndGo(t *testing.T) {
	netnstest.CheckFDs(t)
	for name, start := range map[string]func(testing.TB, ...pool.Config) *pooltest.Fabric{"near": pooltest.New, "far": pooltest.NewFar} {
		t.Run(name, func(t *testing.T) { comeAndGo(t, start) })
	}
}

func comeAndGo(t *testing.T, start func(testing.TB, ...pool.Config) *pooltest.Fabric) {
	t.Helper()
	const all, borrowers = 32 << 20, 8
	leases := int64(100)
	if longtest.All() {
		leases = 1000
	}
	lend := pool.Config{Limits: pool.Limits{Lend: all}}
	f := start(t, pool.Config{}, lend, lend)
	var begun atomic.Int64
	var wg sync.WaitGroup
	for i := range borrowers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(36, uint64(i)))
			for begun.Add(1) <= leases {
				if err := oneLease(t.Context(), f, r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for n, s := range f.Nodes {
		idle(t, s)
		for len(s.Status().Borrowed) > 0 {
			time.Sleep(time.Millisecond)
		}
		t.Logf("node %d: %+v", n, s.Stats())
	}
	for n := range fabric.NodeID(3) { // all of it is there again, and is zeros
		if n == 0 {
			continue
		}
		s, err := memory.Borrow(t.Context(), memory.Config{Socket: f.Socket(0), Node: &n, Size: all})
		if err != nil {
			t.Fatal(err)
		}
		err = fillLease(s, 0, 1)
		if revoked := f.Nodes[n].Revoke(func(pool.Lease) bool { return true }, time.Minute); revoked != 1 {
			t.Errorf("node %d revokes %d leases", n, revoked)
		}
		if err := errors.Join(err, ended(s.Close())); err != nil {
			t.Error(err)
		}
	}
}

// oneLease has a lease, and ends it in some way.
func oneLease(ctx context.Context, f *pooltest.Fabric, r *rand.Rand) error {
	size := int64(1+r.IntN(256)) * memory.PageSize
	c := memory.Config{Socket: f.Socket(0), Size: size}
	switch r.IntN(8) {
	case 0:
		c.Time = time.Duration(1+r.IntN(5)) * time.Millisecond
	case 1:
		c.Size = 1 << 40
		if _, err := memory.Borrow(ctx, c); !errors.Is(err, memory.ErrRefused) {
			return fmt.Errorf("too much: %w", err)
		}
		return nil
	}
	s, err := memory.Borrow(ctx, c)
	if err != nil {
		return ended(err) // another one's revocation has met it, too
	}
	err = fillLease(s, 0, byte(1+r.IntN(255)))
	if r.IntN(4) == 0 {
		node := f.Nodes[s.Lender()]
		some := r.IntN(2)
		node.Revoke(func(l pool.Lease) bool { return l.Size == size || int(l.ID)%4 == some }, time.Millisecond)
	}
	return errors.Join(ended(err), ended(s.Close()))
}

// ended is nil for what may happen to a lease at any time.
func ended(err error) error {
	if errors.Is(err, memory.ErrRevoked) {
		return nil
	}
	return err
}

// fillLease writes v to every byte of a lease, which is old before.
func fillLease(s *memory.Segment, old, v byte) error {
	b, w := make([]byte, memory.PageSize), make([]byte, memory.PageSize)
	for i := range w {
		w[i] = v
	}
	for off := int64(0); off < s.Len(); off += memory.PageSize {
		if _, err := s.ReadAt(b, off); err != nil {
			return err
		}
		for i := range b {
			if b[i] != old {
				return fmt.Errorf("byte %d of a new lease is %d", off+int64(i), b[i])
			}
		}
		if _, err := s.WriteAt(w, off); err != nil {
			return err
		}
	}
	return nil
}

package memory_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/memory"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

// Before and during each step of a lease between hosts the link is cut for a moment, or the lender
// is killed and begins anew. What is read is what was written, a cut alone fails nothing that has
// begun, and neither node keeps anything of the lease.
func TestLeaseFaults(t *testing.T) {
	steps := []string{"borrow", "write", "read", "want", "return"}
	for _, killed := range []bool{false, true} {
		for at, step := range steps {
			for _, away := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, lender killed %v, away meanwhile %v", step, killed, away), func(t *testing.T) {
					leaseFault(t, at, killed, away)
				})
			}
		}
	}
}

// leaseFault has a lease with a fault at a step; away: the link is away as the step begins.
func leaseFault(t *testing.T, at int, killed, away bool) {
	const size = 8 << 20
	lend := pool.Config{Limits: pool.Limits{Lend: 64 << 20}, TTL: 5 * time.Second}
	f := pooltest.NewHosts(t, pool.Config{Renew: 50 * time.Millisecond}, lend)
	f.Join()
	fault := func(step int, run func() error) error {
		if step != at {
			return run()
		}
		done := make(chan error, 1)
		if away {
			f.Cut()
		}
		go func() { done <- run() }()
		if !away {
			f.Cut()
		}
		if killed {
			f.Restart(1)
		}
		f.Join()
		return <-done
	}
	over := func(what string, err error) bool {
		if err != nil && (!killed || !errors.Is(err, memory.ErrLost)) {
			t.Errorf("%s: %v", what, err)
		}
		return err != nil
	}
	gone := func() {
		t.Helper()
		waitUntil(t, "both nodes have forgotten it", func() bool {
			return len(f.Nodes[1].Status().Lent) == 0 && len(f.Nodes[0].Status().Borrowed) == 0
		})
	}
	var s *memory.Segment
	wanted := make(chan struct{}, 1)
	borrow := func() (err error) {
		node := fabric.NodeID(1)
		s, err = memory.Borrow(t.Context(), memory.Config{Socket: f.Socket(0), Node: &node, Size: size, OnRevoke: func(time.Time) { wanted <- struct{}{} }})
		return err
	}
	if at == 0 {
		waitUntil(t, "the nodes know each other", func() bool { return borrow() == nil })
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	s = nil
	_ = fault(0, borrow) // it may be refused: nothing has begun
	if s == nil {
		waitUntil(t, "a lease", func() bool { return borrow() == nil })
	}
	t.Cleanup(func() { _ = s.Close() })
	data, got := bytes.Repeat([]byte("12345678"), size/8), make([]byte, size)
	if over("write", fault(1, func() error { _, err := s.WriteAt(data, 0); return err })) {
		_ = s.Close()
		gone()
		return
	}
	if err := fault(2, func() error { _, err := s.ReadAt(got, 0); return err }); over("read", err) {
		_ = s.Close()
		gone()
		return
	}
	if !bytes.Equal(got, data) {
		t.Error("other bytes are read than were written")
	}
	lender := f.Nodes[1]
	err := fault(3, func() error {
		go lender.Revoke(func(pool.Lease) bool { return true }, time.Minute)
		select {
		case <-wanted:
		case <-s.Done():
		}
		return nil
	})
	over("want", err)
	err = fault(4, s.Close)
	if !errors.Is(err, memory.ErrRevoked) {
		over("return", err)
	}
	gone()
}

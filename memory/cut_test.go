package memory_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/memory"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

// The link between borrower and lender is cut again and again while a program reads and writes. No
// operation fails, and what is read is what was written.
func TestLeaseOverCuts(t *testing.T) {
	f := pooltest.NewHosts(t, pool.Config{}, pool.Config{Limits: pool.Limits{Lend: 64 << 20}})
	f.Join()
	s := borrowOnce(t, f, 16<<20)
	const workers, part, cuts = 4, 4 << 20, 12
	var all sync.WaitGroup
	end := make(chan struct{})
	rounds := make(chan struct{}, 1)
	for i := range int64(workers) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 9))
			want, got := make([]byte, part), make([]byte, part)
			for {
				select {
				case <-end:
					return
				default:
				}
				from := random.IntN(part - 1)
				piece := want[from : from+1+random.IntN(part-from-1)]
				for j := range piece {
					piece[j] = byte(random.Uint32())
				}
				_, err := s.WriteAt(piece, i*part+int64(from))
				if _, rerr := s.ReadAt(got, i*part); errors.Join(err, rerr) != nil || !bytes.Equal(got, want) {
					t.Errorf("worker %d: other bytes, or %v", i, errors.Join(err, rerr))
					return
				}
				select {
				case rounds <- struct{}{}:
				default:
				}
			}
		})
	}
	for range cuts {
		for range 3 { // something is done by this link
			if t.Failed() {
				break
			}
			select {
			case <-rounds:
			case <-time.After(time.Minute):
				t.Error("nothing moves")
			}
		}
		f.Cut()
		time.Sleep(2 * time.Millisecond)
		f.Join()
	}
	close(end)
	all.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	waitUntil(t, "the memory is given back", func() bool { return len(f.Nodes[1].Status().Lent) == 0 })
}

// While there is no link, an operation waits. A lender that wants the memory back takes it, and the
// operation fails when there is a link again; so does one whose lender has begun anew.
func TestLeaseEndsInCut(t *testing.T) {
	for _, how := range []string{"revoked", "lender anew"} {
		t.Run(how, func(t *testing.T) {
			const stands = 300 * time.Millisecond
			f := pooltest.NewHosts(t, pool.Config{Renew: stands / 15}, pool.Config{Limits: pool.Limits{Lend: 64 << 20}, TTL: stands})
			f.Join()
			s := borrowOnce(t, f, 1<<20)
			f.Cut()
			done := make(chan error, 1)
			go func() {
				_, err := s.WriteAt(make([]byte, 4096), 0)
				done <- err
			}()
			time.Sleep(3 * stands)
			select {
			case err := <-done:
				t.Fatalf("without a link: %v", err)
			default:
			}
			if n := len(f.Nodes[1].Status().Lent); n != 1 {
				t.Fatalf("%d leases while there is no link", n)
			}
			want := memory.ErrRevoked
			if how == "revoked" {
				f.Nodes[1].Revoke(func(pool.Lease) bool { return true }, time.Millisecond)
				waitUntil(t, "the memory is taken", func() bool { return len(f.Nodes[1].Status().Lent) == 0 })
			} else {
				want = memory.ErrLost
				f.Restart(1)
			}
			f.Join()
			if err := <-done; !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			<-s.Done()
		})
	}
}

// borrowOnce borrows on node 0 when the nodes know each other.
func borrowOnce(t *testing.T, f *pooltest.Hosts, size int64) (s *memory.Segment) {
	t.Helper()
	node := fabric.NodeID(1)
	waitUntil(t, "a lease", func() bool {
		got, err := memory.Borrow(t.Context(), memory.Config{Socket: f.Socket(0), Node: &node, Size: size})
		if err == nil {
			s = got
			t.Cleanup(func() { _ = s.Close() })
		}
		return err == nil
	})
	return s
}

func waitUntil(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}

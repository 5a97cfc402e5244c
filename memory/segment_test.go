package memory_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/internal/leaktest"
	"exnet/memory"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// kinds are the ways to a lender: on this host, and on another one.
var kinds = map[string]func(testing.TB, ...pool.Config) *pooltest.Fabric{"near": pooltest.New, "far": pooltest.NewFar}

// each runs a test for each kind.
func each(t *testing.T, f func(*testing.T, func(testing.TB, ...pool.Config) *pooltest.Fabric)) {
	for name, start := range kinds {
		t.Run(name, func(t *testing.T) { f(t, start) })
	}
}

// lending is a node that lends n bytes.
func lending(n int64) pool.Config { return pool.Config{Limits: pool.Limits{Lend: n}} }

func borrow(t *testing.T, f *pooltest.Fabric, cfg memory.Config) *memory.Segment {
	t.Helper()
	cfg.Socket = f.Socket(0)
	s, err := memory.Borrow(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// lent waits until a node has lent that much.
func lent(t *testing.T, s *pool.Server, want int64) {
	t.Helper()
	for {
		var n int64
		for _, l := range s.Status().Lent {
			n += l.Size
		}
		if n == want {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%d bytes are lent, want %d", n, want)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestBorrow(t *testing.T) { each(t, testBorrow) }

func testBorrow(t *testing.T, start func(testing.TB, ...pool.Config) *pooltest.Fabric) {
	f := start(t, pool.Config{}, lending(1<<20))
	s := borrow(t, f, memory.Config{Size: 1 << 20})
	if s.Len() != 1<<20 || s.Lender() != 1 || !s.Until().IsZero() || s.Err() != nil {
		t.Errorf("%d bytes of node %d until %v: %v", s.Len(), s.Lender(), s.Until(), s.Err())
	}
	lent(t, f.Nodes[1], 1<<20)
	all := make([]byte, s.Len())
	if _, err := s.ReadAt(all, 0); err != nil || !bytes.Equal(all, make([]byte, s.Len())) {
		t.Errorf("a fresh lease is not zeros: %v", err)
	}
	data := bytes.Repeat([]byte("another node's"), 1000)
	if _, err := s.WriteAt(data, 4001); err != nil {
		t.Error(err)
	}
	got := make([]byte, len(data))
	if _, err := s.ReadAt(got, 4001); err != nil || !bytes.Equal(got, data) || s.Fence() != nil {
		t.Errorf("read back something else: %v", err)
	}
	for _, c := range []struct{ off, n int64 }{{-1, 1}, {1 << 20, 1}, {1<<20 - 1, 2}, {1 << 62, 1}, {0, 1<<20 + 1}} {
		if _, err := s.ReadAt(make([]byte, c.n), c.off); !errors.Is(err, memory.ErrRange) {
			t.Errorf("read %d bytes at %d: %v", c.n, c.off, err)
		}
		if _, err := s.WriteAt(make([]byte, c.n), c.off); !errors.Is(err, memory.ErrRange) {
			t.Errorf("write %d bytes at %d: %v", c.n, c.off, err)
		}
		if err := s.Discard(c.off, c.n); !errors.Is(err, memory.ErrRange) {
			t.Errorf("discard %d bytes at %d: %v", c.n, c.off, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	lent(t, f.Nodes[1], 0)
	if _, err := s.ReadAt(got, 0); !errors.Is(err, fabric.ErrClosed) || s.Close() != nil {
		t.Errorf("after Close: %v", err)
	}
}

// Many at once read and write pieces of all sizes, more than there are slots for, and each finds
// what it wrote.
func TestManyAtOnce(t *testing.T) { each(t, testManyAtOnce) }

func testManyAtOnce(t *testing.T, start func(testing.TB, ...pool.Config) *pooltest.Fabric) {
	const goroutines, each = 12, 4 << 20
	f := start(t, pool.Config{}, pool.Config{Limits: pool.Limits{Lend: goroutines * each}})
	s := borrow(t, f, memory.Config{Size: goroutines * each})
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			mine, p := make([]byte, each), make([]byte, each)
			for i := range 12 {
				n := 1 + r.IntN(1<<(10+i))
				at := r.IntN(each - n + 1)
				for j := range n {
					mine[at+j] = byte(i*g + j*j>>5)
				}
				if _, err := s.WriteAt(mine[at:at+n], int64(g*each+at)); err != nil {
					t.Error(err)
				}
				if _, err := s.ReadAt(p[at:at+n], int64(g*each+at)); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(p[at:at+n], mine[at:at+n]) {
					t.Errorf("%d bytes at %d are not what was written", n, at)
				}
			}
			if _, err := s.ReadAt(p, int64(g*each)); err != nil || !bytes.Equal(p, mine) {
				t.Errorf("all of a part: %v, or other bytes", err)
			}
		})
	}
	all.Wait()
}

// Discard at all kinds of boundaries leaves exactly the rest.
func TestDiscard(t *testing.T) { each(t, testDiscard) }

func testDiscard(t *testing.T, start func(testing.TB, ...pool.Config) *pooltest.Fabric) {
	f := start(t, pool.Config{}, lending(1<<20))
	const size = 16 * memory.PageSize
	s := borrow(t, f, memory.Config{Size: size})
	want := make([]byte, size)
	for _, c := range [][2]int64{{0, 0}, {0, size}, {1, 1}, {1, 4094}, {1, 4096}, {4095, 4098}, {4096, 4096}, {100, 8192}, {8192, 8193}, {size - 1, 1}, {size, 0}} {
		for i := range want {
			want[i] = byte(rand.Int())
		}
		if _, err := s.WriteAt(want, 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Discard(c[0], c[1]); err != nil {
			t.Fatal(err)
		}
		clear(want[c[0] : c[0]+c[1]])
		got := make([]byte, size)
		if _, err := s.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes at %d: %v", c[1], c[0], err)
		}
	}
}

func TestRefused(t *testing.T) { each(t, testRefused) }

func testRefused(t *testing.T, start func(testing.TB, ...pool.Config) *pooltest.Fabric) {
	f := start(t, lending(1<<20), lending(8<<20), pool.Config{Limits: pool.Limits{Lend: 16 << 20, PerUser: 4 << 20}}, pool.Config{})
	node := func(n fabric.NodeID) *fabric.NodeID { return &n }
	for _, c := range []struct {
		cfg  memory.Config
		want error
		text string
	}{
		{memory.Config{Size: 0}, memory.ErrRange, "memory: not within the segment: fabric: invalid argument: a size of 0 bytes: use a multiple of 4096"},
		{memory.Config{Size: 4097}, memory.ErrRange, ""},
		{memory.Config{Size: 4096, Min: 1}, memory.ErrRange, ""},
		{memory.Config{Size: 4096, Min: 8192}, memory.ErrRange, ""},
		{memory.Config{Size: 4096, Huge: true}, memory.ErrRange, ""},
		{memory.Config{Size: 4096, Time: -1}, fabric.ErrInvalid, ""},
		{memory.Config{Size: 9 << 20}, memory.ErrRefused, "memory: refused: 9 MiB is more than there is: node 1 has 8 MiB left"},
		{memory.Config{Size: 9 << 20, Node: node(2)}, memory.ErrRefused, "memory: refused: 9 MiB is more than node 2 lends to this node or user: 4 MiB is left of the limit"},
		{memory.Config{Size: 4096, Node: node(3)}, memory.ErrRefused, "memory: refused: node 3 lends no memory: start it with --lend SIZE"},
		{memory.Config{Size: 4096, Node: node(7)}, memory.ErrRefused, "memory: refused: node 7 is not there"},
	} {
		c.cfg.Socket = f.Socket(0)
		_, err := memory.Borrow(t.Context(), c.cfg)
		if !errors.Is(err, c.want) || c.text != "" && err.Error() != c.text {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
	if _, err := memory.Borrow(t.Context(), memory.Config{Socket: "/nowhere", Size: 4096}); !errors.Is(err, fabric.ErrNoRoute) {
		t.Errorf("without a node: %v", err)
	}
	// What one node does not have, the next one has; and less than asked for, if that will do.
	if s := borrow(t, f, memory.Config{Size: 8 << 20}); s.Lender() != 1 {
		t.Errorf("node %d", s.Lender())
	}
	if s := borrow(t, f, memory.Config{Size: 1 << 20}); s.Lender() != 2 {
		t.Errorf("node %d", s.Lender())
	}
	if s := borrow(t, f, memory.Config{Size: 8 << 20, Min: 1 << 20}); s.Lender() != 2 || s.Len() != 3<<20 {
		t.Errorf("node %d: %d bytes", s.Lender(), s.Len())
	}
	if s := borrow(t, f, memory.Config{Size: 4096, Node: node(0)}); s.Lender() != 0 {
		t.Errorf("node %d", s.Lender())
	}
}

// Memory comes from the node with the shortest round trip, though another one has fewer hops, or
// lends more. What delays some of the questions to a node makes it no farther. Neither does a
// difference that may be chance: then hops decide, and then what is left.
func TestNearest(t *testing.T) {
	const us = time.Microsecond
	for name, c := range map[string]struct {
		trips [][]time.Duration // of the questions to each node; the last is that of all that follow
		hops  []int
		lend  []int64
		want  fabric.NodeID
	}{
		"fewer hops, longer way":    {[][]time.Duration{{900 * us}, {100 * us}}, []int{1, 2}, []int64{8, 4}, 2},
		"some questions delayed":    {[][]time.Duration{{500 * us}, {9000 * us, 8000 * us, 100 * us, 7000 * us}}, []int{1, 1}, []int64{8, 4}, 2},
		"chance, hops decide":       {[][]time.Duration{{150 * us}, {100 * us}, {199 * us}}, []int{1, 2, 2}, []int64{4, 8, 8}, 1},
		"chance, what is left":      {[][]time.Duration{{100 * us}, {190 * us}}, []int{1, 1}, []int64{4, 8}, 2},
		"a chain is not all near":   {[][]time.Duration{{100 * us}, {190 * us}, {360 * us}}, []int{2, 2, 1}, []int64{4, 8, 8}, 2},
		"the nearest lends nothing": {[][]time.Duration{{100 * us}, {150 * us}, {240 * us}}, []int{1, 2, 1}, []int64{0, 8, 4}, 3},
	} {
		for kind, start := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				var mu sync.Mutex
				asked := make([]int, len(c.trips))
				borrower := pool.Config{
					RoundTrip: func(n fabric.NodeID, ask func()) time.Duration {
						ask()
						mu.Lock()
						defer mu.Unlock()
						trips, i := c.trips[n-1], asked[n-1]
						asked[n-1]++
						return trips[min(i, len(trips)-1)]
					},
					Nodes: func() (all []pool.Neighbor) {
						for i, hops := range c.hops {
							all = append(all, pool.Neighbor{Node: fabric.NodeID(i + 1), Hops: hops, Far: kind == "far"})
						}
						return all
					},
				}
				cfgs := []pool.Config{borrower}
				for _, n := range c.lend {
					cfgs = append(cfgs, lending(n<<20))
				}
				if s := borrow(t, start(t, cfgs...), memory.Config{Size: 1 << 20}); s.Lender() != c.want {
					t.Errorf("node %d lends, want %d", s.Lender(), c.want)
				}
			})
		}
	}
}

// A lease is revoked while many read and write: all of them end with ErrRevoked, and its lender has
// the memory back.
func TestRevoke(t *testing.T) { each(t, testRevoke) }

func testRevoke(t *testing.T, start func(testing.TB, ...pool.Config) *pooltest.Fabric) {
	f := start(t, pool.Config{}, lending(1<<20))
	for _, ask := range []bool{false, true} {
		deadline := make(chan time.Time, 1)
		cfg, within := memory.Config{Size: 1 << 20}, time.Hour
		if ask {
			within = 100 * time.Millisecond
			cfg.OnRevoke = func(at time.Time) { deadline <- at } // and it does nothing
		}
		s := borrow(t, f, cfg)
		var all sync.WaitGroup
		began := make(chan struct{}, 8)
		for i := range 8 {
			all.Go(func() {
				p := make([]byte, 64<<10)
				var err error
				for first := true; err == nil; first = false {
					if i%2 == 0 {
						_, err = s.ReadAt(p, int64(i)<<16)
					} else {
						_, err = s.WriteAt(p, int64(i)<<16)
					}
					if first {
						began <- struct{}{}
					}
				}
				if !errors.Is(err, memory.ErrRevoked) || !errors.Is(err, fabric.ErrProtection) {
					t.Errorf("asked %v: %v", ask, err)
				}
			})
		}
		for range 8 {
			<-began
		}
		if n := f.Nodes[1].Revoke(func(l pool.Lease) bool { return l.Node == 0 }, within); n != 1 {
			t.Errorf("%d leases", n)
		}
		all.Wait()
		lent(t, f.Nodes[1], 0)
		<-s.Done()
		if err := s.Close(); !errors.Is(err, memory.ErrRevoked) {
			t.Errorf("Close: %v", err)
		}
		if ask {
			<-deadline
		}
	}
	if st := f.Nodes[1].Stats(); st.Revoked != 2 || st.Forced != 1 || st.Returned != 1 {
		t.Errorf("%+v", st)
	}
}

// A borrower that returns its lease in time saves what it has there.
func TestRevokeReturns(t *testing.T) { each(t, testRevokeReturns) }

func testRevokeReturns(t *testing.T, start func(testing.TB, ...pool.Config) *pooltest.Fabric) {
	f := start(t, pool.Config{}, lending(1<<20))
	saved := make(chan []byte, 1)
	var s *memory.Segment
	ready := make(chan struct{})
	s = borrow(t, f, memory.Config{Size: 4096, OnRevoke: func(time.Time) {
		<-ready
		p := make([]byte, 5)
		_, _ = s.ReadAt(p, 100)
		_ = s.Close()
		saved <- p
	}})
	if _, err := s.WriteAt([]byte("saved"), 100); err != nil {
		t.Fatal(err)
	}
	close(ready)
	f.Nodes[1].Revoke(func(pool.Lease) bool { return true }, time.Hour)
	if got := <-saved; string(got) != "saved" {
		t.Errorf("%q", got)
	}
	lent(t, f.Nodes[1], 0)
	if st := f.Nodes[1].Stats(); st.Forced != 0 || st.Returned != 1 {
		t.Errorf("%+v", st)
	}
}

func TestTime(t *testing.T) { each(t, testTime) }

func testTime(t *testing.T, start func(testing.TB, ...pool.Config) *pooltest.Fabric) {
	f := start(t, pool.Config{}, pool.Config{Limits: pool.Limits{Lend: 1 << 20}, MaxTime: time.Hour, Revoke: time.Millisecond})
	s := borrow(t, f, memory.Config{Size: 4096, Time: 20 * time.Millisecond})
	long := borrow(t, f, memory.Config{Size: 4096, Time: 100 * time.Hour})
	if left := time.Until(long.Until()); left > time.Hour || left < 50*time.Minute {
		t.Errorf("%v", left)
	}
	<-s.Done()
	if !errors.Is(s.Err(), memory.ErrRevoked) || time.Now().Before(s.Until()) {
		t.Errorf("%v, until %v", s.Err(), s.Until())
	}
	lent(t, f.Nodes[1], 4096)
}

// A lender that ends takes the content with it; a borrower's node that ends leaves nothing.
func TestNodesEnd(t *testing.T) { each(t, testNodesEnd) }

func testNodesEnd(t *testing.T, start func(testing.TB, ...pool.Config) *pooltest.Fabric) {
	f := start(t, pool.Config{}, lending(1<<20), lending(1<<20))
	first, second := fabric.NodeID(1), fabric.NodeID(2)
	a := borrow(t, f, memory.Config{Size: 4096, Node: &first})
	b := borrow(t, f, memory.Config{Size: 4096, Node: &second})
	f.Stop(1)
	<-a.Done()
	if _, err := a.ReadAt(make([]byte, 1), 0); !errors.Is(err, memory.ErrLost) || !errors.Is(err, fabric.ErrPeerDown) {
		t.Errorf("the lender has ended: %v", err)
	}
	if _, err := b.ReadAt(make([]byte, 1), 0); err != nil {
		t.Errorf("another one: %v", err)
	}
	f.Stop(0)
	<-b.Done()
	lent(t, f.Nodes[2], 0)
}

// A thousand leases come and go, and nothing is left.
func TestThousand(t *testing.T) { each(t, testThousand) }

func testThousand(t *testing.T, start func(testing.TB, ...pool.Config) *pooltest.Fabric) {
	f := start(t, pool.Config{}, lending(1<<20))
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 125 {
				s, err := memory.Borrow(t.Context(), memory.Config{Socket: f.Socket(0), Size: 16 * memory.PageSize})
				if err != nil {
					t.Error(err)
					return
				}
				p := []byte{0xff}
				if _, err := s.ReadAt(p, 12345); err != nil || p[0] != 0 {
					t.Errorf("worker %d, lease %d: %d, %v", w, i, p[0], err)
				}
				if _, err := s.WriteAt([]byte{byte(i) | 1}, 12345); err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	lent(t, f.Nodes[1], 0)
	if st := f.Nodes[1].Stats(); st.Granted != 1000 || st.Returned != 1000 {
		t.Errorf("%+v", st)
	}
}

func TestCancel(t *testing.T) { each(t, testCancel) }

func testCancel(t *testing.T, start func(testing.TB, ...pool.Config) *pooltest.Fabric) {
	f := start(t, pool.Config{}, lending(1<<20))
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := memory.Borrow(ctx, memory.Config{Socket: f.Socket(0), Size: 4096}); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	lent(t, f.Nodes[1], 0)
}

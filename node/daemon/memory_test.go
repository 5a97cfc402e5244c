package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/identity"
	"exnet/internal/ctxend"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/memory"
	"exnet/node/control"
)

// borrowIn borrows as a program in a namespace does.
func borrowIn(t *testing.T, ns *netns.NS, cfg memory.Config) (s *memory.Segment, err error) {
	t.Helper()
	err = ns.Do(func() (err error) {
		s, err = memory.Borrow(t.Context(), cfg)
		return err
	})
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
	}
	return s, err
}

// A program borrows memory of the node of another namespace, all see it, and it comes back.
func TestRootMemory(t *testing.T) {
	netnstest.CheckFDs(t)
	requireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	nsA, nsB := netnstest.New(t), netnstest.New(t)
	a := start(t, dir, nsA, "10.2.0.1/24")
	if _, err := borrowIn(t, nsA, memory.Config{Size: 4096}); !errors.Is(err, memory.ErrRefused) || !strings.Contains(err.Error(), "exn-tun up --lend SIZE") {
		t.Errorf("nobody lends: %v", err)
	}
	b := startWith(t, nsB, Config{Dir: dir, Lend: Lend{LendLimits: control.LendLimits{Lend: 64 << 20}, Time: time.Hour}})
	var s *memory.Segment
	eventually(t, "a lease", func() (ok bool) {
		got, err := borrowIn(t, nsA, memory.Config{Size: 1 << 20})
		if err == nil {
			s = got
		}
		return err == nil // they may not be linked yet
	})
	data := bytes.Repeat([]byte("far away"), 100)
	got := make([]byte, len(data))
	_, err := s.WriteAt(data, 1<<20-int64(len(data)))
	if _, rerr := s.ReadAt(got, 1<<20-int64(len(data))); errors.Join(err, rerr) != nil || !bytes.Equal(got, data) || s.Lender() != 2 {
		t.Errorf("node %d: %v", s.Lender(), errors.Join(err, rerr))
	}
	for _, at := range []*running{a, b} {
		st, err := at.Status()
		if err != nil || st.Memory == nil {
			t.Fatalf("%+v, %v", st, err)
		}
		all, other := st.Memory.Borrowed, 2
		if at == b {
			all, other = st.Memory.Lent, 1
		}
		if len(all) != 1 || all[0].Size != 1<<20 || all[0].Node != other || all[0].Until == nil || all[0].PID == 0 {
			t.Errorf("node %d: %+v", st.Node, st.Memory)
		}
	}
	node := fabric.NodeID(1)
	if _, err := borrowIn(t, nsA, memory.Config{Size: 4096, Node: &node}); !errors.Is(err, memory.ErrRefused) {
		t.Errorf("its own node lends nothing: %v", err)
	}
	if _, err := b.Leases(control.LeaseRequest{Want: control.LeaseGrant, Grant: control.LendLimits{Lend: 1 << 20}}); err != nil {
		t.Error(err)
	}
	if _, err := borrowIn(t, nsA, memory.Config{Size: 4096}); !errors.Is(err, memory.ErrRefused) || !strings.Contains(err.Error(), "node 2 has 0 left") {
		t.Errorf("all is lent: %v", err)
	}
	if _, err := b.Leases(control.LeaseRequest{Want: control.LeaseRevoke, ID: 99}); err == nil {
		t.Error("a lease that is not there was revoked")
	}
	l, err := b.Leases(control.LeaseRequest{Want: control.LeaseRevoke})
	if err != nil || l.Revoked != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	<-s.Done()
	if _, err := s.ReadAt(got, 0); !errors.Is(err, memory.ErrRevoked) {
		t.Errorf("%v", err)
	}
	eventually(t, "the memory", func() bool {
		l, err := b.Leases(control.LeaseRequest{Want: control.LeaseList})
		return err == nil && len(l.Lent) == 0
	})
}

// Leases asks a node for its leases, or for a change.
func (r *running) Leases(req control.LeaseRequest) (*control.Leases, error) {
	a := r.answerRequest(control.Request{Op: control.OpLease, Lease: &req})
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return a.Leases, nil
}

func TestLendConfig(t *testing.T) {
	for text, want := range map[string]string{
		"[lend]\nmemory = \"4G\"\nnode = \"1G\"\nuser = 8192\ntime = \"8h\"\n": "{{4294967296 1073741824 8192} 8h0m0s}",
		"[lend]\nmemory = \"4096\"\n":                                          "{{4096 0 0} 0s}",
		"[lend]\nmemory = \"4x\"\n":                                            `"4x" is not a size`,
		"[lend]\nmemory = 4097\n":                                              "lend 4097 bytes: use a multiple of 4096",
		"[lend]\nnode = 4096\n":                                                "say how much with lend",
		"[lend]\nmemory = 4096\ntime = \"soon\"\n":                             "use a time such as 8h",
		"[lend]\nmemory = 4096\ntime = \"1ms\"\n":                              "use a time such as 8h",
		"[lend]\nmemory = \"9999999999999999999999\"\n":                        "is not a size",
	} {
		cfg, err := parsed(text)
		if err == nil {
			cfg, err = cfg.WithDefaults()
		}
		got := fmt.Sprint(cfg.Lend)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// A program borrows memory of a node of another host, over TLS, many operations at a time; the node
// that lends it takes it back, and its end is seen.
func TestRootMemoryOfHosts(t *testing.T) {
	requireTUN(t)
	ca, err := identity.Create(identity.Name{Fabric: "lab", Authority: true}, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ns := netnstest.New(t)
	begin := func(n fabric.NodeID, in *netns.NS, lend int64, join ...string) *running {
		key, trust := keyOf(t, ca, n)
		return startWith(t, in, Config{
			Dir: filepath.Join(t.TempDir(), "lab"), Addrs: prefixes(fmt.Sprintf("10.2.0.%d/24", n)),
			Hosts: Hosts{Listen: "127.0.0.1:0", Key: key, Trust: trust, Join: join}, Lend: Lend{LendLimits: control.LendLimits{Lend: lend}},
		})
	}
	one := begin(1, ns, 0)
	two := begin(2, netnstest.New(t), 64<<20, one.mesh.Addr().String())
	var s *memory.Segment
	eventually(t, "a lease of another host", func() bool {
		got, err := borrowIn(t, ns, memory.Config{Size: 32 << 20})
		if err == nil {
			s = got
		}
		return err == nil
	})
	const piece = 1 << 20
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			want, got := bytes.Repeat([]byte{byte(i + 1)}, piece), make([]byte, piece)
			_, err := s.WriteAt(want, int64(i)*piece)
			if _, rerr := s.ReadAt(got, int64(i)*piece); errors.Join(err, rerr) != nil || !bytes.Equal(got, want) {
				t.Errorf("%d: %v", i, errors.Join(err, rerr))
			}
		})
	}
	all.Wait()
	if err := s.Discard(0, 31*piece); err != nil {
		t.Error(err)
	}
	got := make([]byte, 3*4096)
	if _, err := s.ReadAt(got, 31*piece-4096); err != nil || !bytes.Equal(got, append(make([]byte, 4096), bytes.Repeat([]byte{32}, 2*4096)...)) {
		t.Errorf("after Discard: %v", err)
	}
	if l, err := two.Leases(control.LeaseRequest{Want: control.LeaseRevoke}); err != nil || l.Revoked != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	<-s.Done()
	if _, err := s.ReadAt(got, 0); !errors.Is(err, memory.ErrRevoked) {
		t.Errorf("%v", err)
	}
	eventually(t, "the memory", func() bool {
		l, err := two.Leases(control.LeaseRequest{Want: control.LeaseList})
		return err == nil && len(l.Lent) == 0
	})
	other, err := borrowIn(t, ns, memory.Config{Size: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	two.stop()
	<-other.Done()
	if _, err := other.ReadAt(got, 0); !errors.Is(err, memory.ErrLost) {
		t.Errorf("the lender has ended: %v", err)
	}
}

// delayed passes connections on to a TCP address. What comes by it is kept for as long as wait
// says, each way. It ends with the test.
func delayed(t *testing.T, to string, wait *atomic.Int64) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ended, end := context.WithCancel(context.Background())
	pass := func(from, to net.Conn) {
		defer from.Close()
		defer to.Close()
		for b := make([]byte, 64<<10); ; {
			n, err := from.Read(b)
			if d := time.Duration(wait.Load()); d > 0 {
				select {
				case <-time.After(d):
				case <-ended.Done():
					return
				}
			}
			if _, werr := to.Write(b[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	all.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			stop := ctxend.Do(ended, func() { in.Close(); out.Close() })
			all.Go(func() { defer stop(); pass(in, out) })
			all.Go(func() { pass(out, in) })
		}
	})
	t.Cleanup(func() { end(); ln.Close(); all.Wait() })
	return ln.Addr().String()
}

// Of two nodes of other hosts, the nearer one lends, though the other one has more: all are one hop
// away, but the link to that one takes a minute there and back.
func TestRootMemoryOfNearest(t *testing.T) {
	requireTUN(t)
	ns := netnstest.New(t)
	begin := func(n int, in *netns.NS, lend int64, join ...string) *running {
		id := fabric.NodeID(n)
		return startWith(t, in, Config{
			Dir: filepath.Join(t.TempDir(), "lab"), Node: &id, Addrs: prefixes(fmt.Sprintf("10.2.0.%d/24", n)),
			Hosts: Hosts{Listen: "127.0.0.1:0", Plaintext: true, Join: join}, Lend: Lend{LendLimits: control.LendLimits{Lend: lend}},
		})
	}
	one := begin(1, ns, 0)
	var wait atomic.Int64
	begin(2, netnstest.New(t), 64<<20, delayed(t, one.mesh.Addr().String(), &wait))
	begin(3, netnstest.New(t), 8<<20, one.mesh.Addr().String())
	for _, n := range []fabric.NodeID{2, 3} {
		eventually(t, fmt.Sprint("a lease of node ", n), func() bool {
			s, err := borrowIn(t, ns, memory.Config{Size: 4096, Node: &n})
			return err == nil && s.Close() == nil
		})
	}
	wait.Store(int64(30 * time.Second))
	s, err := borrowIn(t, ns, memory.Config{Size: 1 << 20})
	wait.Store(0)
	if err != nil {
		t.Fatal(err)
	}
	if s.Lender() != 3 {
		t.Errorf("node %d lends, want 3", s.Lender())
	}
}

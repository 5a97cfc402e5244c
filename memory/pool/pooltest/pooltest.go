// Package pooltest runs lenders and borrowers' nodes in one process, for tests.
//
// # Architecture
//
//	Fabric ─ node 0, 1, … ─ each a pool.Server with a socket for processes, and a way to the others
//
// # Concurrency
//
// A Fabric is for one test; its methods may be called from many goroutines.
//
// # Limits
//
// All nodes believe each other.
package pooltest

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
	"exnet/memory/pool"
	"exnet/node/rpc/far"
)

// Fabric is nodes that know each other.
type Fabric struct {
	Nodes []*pool.Server

	t    testing.TB
	dir  string
	all  sync.WaitGroup
	mu   sync.Mutex
	dead map[fabric.NodeID]bool // +checklocks:mu
	lns  []*net.UnixListener
}

// New starts a node for each of the configurations. It sets Node, Dial and CheckPeer, and Nodes and
// RoundTrip unless they are set: all nodes are equally near. They end with the test.
func New(t testing.TB, cfgs ...pool.Config) *Fabric {
	t.Helper()
	return start(t, nil, cfgs)
}

// NewFar is New of nodes of different hosts, as far as their Servers know: they talk, and move
// data, through the fabric.
func NewFar(t testing.TB, cfgs ...pool.Config) *Fabric {
	t.Helper()
	return start(t, fabrictest.New(t, len(cfgs)), cfgs)
}

func start(t testing.TB, cards []*nic.NIC, cfgs []pool.Config) *Fabric {
	t.Helper()
	f := &Fabric{t: t, dir: t.TempDir(), dead: make(map[fabric.NodeID]bool)}
	var engines []*far.Engine
	for i, cfg := range cfgs {
		cfg.Node = fabric.NodeID(i)
		if cfg.Nodes == nil {
			cfg.Nodes = func() (near []pool.Neighbor) {
				for n := range cfgs {
					if n != i {
						near = append(near, pool.Neighbor{Node: fabric.NodeID(n), Hops: 1, Far: cards != nil})
					}
				}
				return near
			}
		}
		if cfg.RoundTrip == nil {
			cfg.RoundTrip = func(_ fabric.NodeID, ask func()) time.Duration { ask(); return 0 }
		}
		cfg.Dial = func(n fabric.NodeID) (*net.UnixConn, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.dead[n] || int(n) >= len(cfgs) {
				return nil, fmt.Errorf("node %d: %w", n, fabric.ErrNoRoute)
			}
			return dial(f.path(int(n), "peers"))
		}
		cfg.CheckPeer = func(*net.UnixConn, fabric.NodeID) error { return nil }
		if cards != nil {
			e, err := far.New(cards[i], far.Config{VPID: far.MemoryVPID, Hear: func(from fabric.NodeID, session uint64, b []byte) {
				f.mu.Lock()
				dead := f.dead[from]
				f.mu.Unlock()
				if !dead {
					f.Nodes[i].Hear(from, session, b)
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			cfg.Far, cfg.NIC = e, cards[i]
			engines = append(engines, e)
		}
		s := pool.New(cfg)
		f.Nodes = append(f.Nodes, s)
		f.serve(i, "peers", s.Peer)
		f.serve(i, "processes", s.Process)
	}
	ctx, cancel := context.WithCancel(context.Background())
	for _, e := range engines {
		f.all.Go(func() { _ = e.Run(ctx) }) // it returns nil
	}
	t.Cleanup(func() {
		for i := range f.Nodes {
			f.Stop(fabric.NodeID(i))
		}
		cancel()
		f.all.Wait()
		for _, e := range engines {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return f
}

// Socket is the name of a node's socket for processes.
func (f *Fabric) Socket(n int) string { return f.path(n, "processes") }

// Stop ends a node.
func (f *Fabric) Stop(n fabric.NodeID) {
	f.mu.Lock()
	was := f.dead[n]
	f.dead[n] = true
	lns := slices.Clone(f.lns[2*n : 2*n+2])
	f.mu.Unlock()
	if was {
		return
	}
	for _, ln := range lns {
		ln.Close()
	}
	f.Nodes[n].Close()
	for _, s := range f.Nodes { // as their links say
		s.FarDown(n, math.MaxUint64)
	}
}

func (f *Fabric) path(n int, kind string) string { return socketIn(f.dir, n, kind) }

func dial(path string) (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
}

func (f *Fabric) serve(n int, kind string, serve func(*net.UnixConn) error) {
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: f.path(n, kind), Net: "unixpacket"})
	if err != nil {
		f.t.Fatal(err)
	}
	f.lns = append(f.lns, ln)
	f.all.Go(func() { accept(&f.all, ln, serve) })
}

package pooltest

import (
	"context"
	"net"
	"sync"
	"testing"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
	"exnet/memory/pool"
	"exnet/node/rpc/far"
)

// Hosts are two nodes of different hosts, as in a daemon each, whose link can be cut. Processes
// reach node 0. Its methods are for one goroutine.
type Hosts struct {
	Nodes [2]*pool.Server

	step  func()
	t     testing.TB
	dir   string
	cfgs  [2]pool.Config
	cards [2]*nic.NIC
	ports [2]*far.Engine
	stop  [2]func()
	cut   func()
}

// NewHosts starts both nodes, without a link. They end with the test.
func NewHosts(t testing.TB, cfgs ...pool.Config) *Hosts {
	t.Helper()
	return NewSteppingHosts(t, func() {}, cfgs...)
}

// NewSteppingHosts is NewHosts of nodes that call step before each message that they send, and
// before each that they hear.
func NewSteppingHosts(t testing.TB, step func(), cfgs ...pool.Config) *Hosts {
	t.Helper()
	h := &Hosts{step: step, t: t, dir: t.TempDir(), cfgs: [2]pool.Config(cfgs), cut: func() {}}
	for i := range h.Nodes {
		h.start(i)
	}
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: h.Socket(0), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() { accept(&all, ln, h.Nodes[0].Process) })
	t.Cleanup(func() {
		h.cut()
		ln.Close()
		for _, stop := range h.stop {
			stop()
		}
		all.Wait()
	})
	return h
}

// Socket is the name of node 0's socket for processes.
func (h *Hosts) Socket(n int) string { return socketIn(h.dir, n, "processes") }

func (h *Hosts) start(i int) {
	h.t.Helper()
	h.cards[i] = fabrictest.NewNIC(h.t, fabric.NodeID(i))
	var s *pool.Server
	e, err := far.New(h.cards[i], far.Config{
		VPID: far.MemoryVPID, Resume: far.Resume,
		Hear: func(from fabric.NodeID, session uint64, b []byte) {
			h.step()
			s.Hear(from, session, b)
		},
		Ended: func(n fabric.NodeID, session uint64) { s.FarDown(n, session) },
	})
	if err != nil {
		h.t.Fatal(err)
	}
	cfg := h.cfgs[i]
	cfg.Node, cfg.Far, cfg.NIC = fabric.NodeID(i), steppingWay{e, h.step}, h.cards[i]
	cfg.Nodes = func() []pool.Neighbor { return []pool.Neighbor{{Node: fabric.NodeID(1 - i), Hops: 1, Far: true}} }
	s = pool.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	h.Nodes[i], h.ports[i] = s, e
	h.stop[i] = sync.OnceFunc(func() {
		s.Close()
		cancel()
		if err := <-done; err != nil {
			h.t.Error(err)
		}
		if err := e.Close(); err != nil {
			h.t.Error(err)
		}
	})
}

// steppingWay calls step before each message that is sent.
type steppingWay struct {
	*far.Engine
	step func()
}

func (w steppingWay) Send(to fabric.NodeID, session uint64, b []byte) error {
	w.step()
	return w.Engine.Send(to, session, b)
}

// Join links the nodes.
func (h *Hosts) Join() {
	h.t.Helper()
	x, y := fabrictest.JoinStream(h.t, h.cards[0], h.cards[1], fabrictest.StreamConfig{Conns: 2}, nil)
	downs := [2]func(){h.ports[0].Linked(1), h.ports[1].Linked(0)}
	h.cut = sync.OnceFunc(func() {
		x.Close()
		y.Close()
		<-x.Done()
		<-y.Done()
		downs[0]()
		downs[1]()
	})
}

// Cut ends the link.
func (h *Hosts) Cut() { h.cut() }

// GiveUp has a node forget the other one, and the leases between them.
func (h *Hosts) GiveUp(i int) { h.ports[i].Left(fabric.NodeID(1 - i)) }

// Restart has a node end, while there is no link, and another one begin in its place.
func (h *Hosts) Restart(i int) {
	h.t.Helper()
	h.stop[i]()
	if err := h.cards[i].Close(); err != nil {
		h.t.Error(err)
	}
	h.start(i)
	h.t.Cleanup(func() { // before its NIC
		h.cut()
		h.stop[i]()
	})
}

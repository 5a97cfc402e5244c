package exn

import (
	"sync"
	"testing"
	"time"

	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/foreign"
)

// gate is a link that holds GETs back until it is opened.
type gate struct {
	mu   sync.Mutex
	held []func() // guarded by mu
	open bool     // guarded by mu
}

type gatedPort struct {
	link.Port
	gate *gate
}

func (g *gate) wrap(p link.Port) link.Port { return gatedPort{p, g} }

func (p gatedPort) Get(r link.Get, s link.Sink) {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	run := func() { p.Port.Get(r, s) }
	if p.gate.open {
		go run()
		return
	}
	p.gate.held = append(p.gate.held, run)
}

func (g *gate) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.held)
}

// release lets the oldest n GETs run, in goroutines of their own.
func (g *gate) release(n int) {
	g.mu.Lock()
	batch := g.held[:n]
	g.held = append([]func(){}, g.held[n:]...)
	g.mu.Unlock()
	var wg sync.WaitGroup
	for _, run := range batch {
		wg.Go(run)
	}
	wg.Wait()
}

// When a node's transfers are used up its mailbox waits with its interrupt
// masked, and goes on as soon as a transfer ends: no wake-up is lost, and no
// frame.
func TestStarved(t *testing.T) {
	const senders, each = 6, 40
	cfg := Config{StallTime: time.Minute, TransferTimeout: time.Minute}
	net := newNet(t, senders, cfg)
	g := new(gate)
	rx := net.add(cfg, g.wrap)
	var mu sync.Mutex
	got := make(map[fabric.NodeID]map[uint32]int)
	rx.onFrame = func(src fabric.NodeID, _ exteth.Offload, f foreign.Frame) error {
		frame := f.Private().Head()
		n, ok := number(frame)
		if !ok {
			t.Error("a frame is mixed up")
		}
		mu.Lock()
		defer mu.Unlock()
		if got[src] == nil {
			got[src] = make(map[uint32]int)
		}
		got[src][n]++
		return nil
	}
	for _, n := range net.nodes {
		n.start(t)
	}
	for i := range uint32(each) {
		for _, n := range net.nodes[:senders] {
			if err := n.TransmitCopy(exteth.Offload{}, n.frame(net.mac(rx.id), i, 1000)); err != nil {
				t.Fatal(err)
			}
			// Eager frames, which wait behind the adverts.
			if err := n.TransmitCopy(exteth.Offload{}, n.frame(net.mac(rx.id), each+i, 100)); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "all transfers are under way", func() bool { return g.waiting() == exteth.MaxTransfers })
	if rx.Stats().Port.RxNoTransfer == 0 {
		t.Error("no advert waits: the test tests nothing")
	}
	for range 20 { // a few at a time, while messages still come
		g.release(min(3, g.waiting()))
	}
	g.mu.Lock()
	g.open = true
	g.mu.Unlock()
	g.release(g.waiting())
	eventually(t, "all frames", func() bool {
		mu.Lock()
		defer mu.Unlock()
		total := 0
		for _, frames := range got {
			total += len(frames)
		}
		return total == senders*2*each
	})
	for src, frames := range got {
		for n, times := range frames {
			if times != 1 {
				t.Errorf("frame %d of node %d came %d times", n, src, times)
			}
		}
	}
	for _, n := range net.nodes {
		n.checkBuffers(t)
	}
}

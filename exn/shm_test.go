package exn

import (
	"sync"
	"testing"
	"time"

	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/foreign"
)

// shmNet makes interfaces that run, joined by links of a kind.
func shmNet(tb testing.TB, l fabrictest.Link, nodes int, cfg Config) []*testNode {
	tb.Helper()
	var list []*testNode
	for i, card := range l.New(tb, nodes) {
		n := &testNode{id: fabric.NodeID(i), nic: card, ready: make(chan struct{}, 1)}
		cfg.NIC = card
		cfg.OnReady = func() {
			select {
			case n.ready <- struct{}{}:
			default:
			}
		}
		var err error
		if n.Interface, err = New(cfg); err != nil {
			tb.Fatal(err)
		}
		n.SetReceiver(n)
		tb.Cleanup(func() {
			n.down()
			n.Close()
		})
		list = append(list, n)
	}
	return list
}

// Frames of all sizes, both ways at once and to the group, arrive complete and in
// order, and all buffers come back.
func TestSHMLink(t *testing.T) {
	for _, l := range []fabrictest.Link{{Name: "goroutine", New: fabrictest.NewSHM}, {Name: "driver", New: fabrictest.NewDriven}} {
		t.Run(l.Name, func(t *testing.T) { testSHMLink(t, l) })
	}
}

func testSHMLink(t *testing.T, l fabrictest.Link) {
	const frames = 3000
	nodes := shmNet(t, l, 3, Config{Buffers: 64, StallTime: time.Minute, TransferTimeout: time.Minute})
	sizes := []int{60, 120, 121, 480, 481, 1514, 9014, 60000}
	type key struct{ to, from fabric.NodeID }
	var mu sync.Mutex
	got := make(map[key]int)
	groups := make(map[fabric.NodeID]int)
	for _, n := range nodes {
		n.onFrame = func(src fabric.NodeID, _ exteth.Offload, f foreign.Frame) error {
			frame := f.Private().Head()
			if _, ok := number(frame); !ok {
				t.Error("wrong data")
			}
			mu.Lock()
			defer mu.Unlock()
			if frame[0]&1 != 0 {
				groups[n.id]++
				return nil
			}
			got[key{n.id, src}]++
			return nil
		}
		n.start(t)
	}
	var wg sync.WaitGroup
	for i, n := range nodes[:2] {
		to := nodes[1-i]
		wg.Go(func() {
			for k := range uint32(frames) {
				f := n.frame(to.MAC(), k, sizes[int(k)%len(sizes)])
				for {
					if b := n.Alloc(); b != nil && !n.Stopped() {
						copy(b.Mem()[exteth.Headroom-exteth.EthernetHeaderLen:], f)
						b.SetPacket(len(f) - exteth.EthernetHeaderLen)
						if err := n.Transmit(b); err != nil {
							t.Error(err)
							return
						}
						break
					} else if b != nil {
						n.Free(b)
					}
					<-n.ready
				}
			}
		})
	}
	wg.Wait()
	if err := nodes[2].TransmitCopy(exteth.Offload{}, nodes[2].frame([6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 1, 300)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all frames", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return got[key{0, 1}] == frames && got[key{1, 0}] == frames && groups[0] == 1 && groups[1] == 1
	})
	for _, n := range nodes {
		n.checkBuffers(t)
		s := n.cfg.NIC.Stats()
		if s.VELO.BadSlot+s.VELO.BadFlow+s.RMA.Failed+s.RMA.Overruns != 0 {
			t.Errorf("node %d: %+v", n.id, s)
		}
	}
}

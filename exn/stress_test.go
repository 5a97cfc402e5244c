package exn

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/foreign"
	"exnet/napi"
)

// tally counts the frames that arrive by their checksum.
type tally struct {
	mu   sync.Mutex
	sums map[uint32]int // guarded by mu; sent less received
}

func (c *tally) add(frame []byte, n int) {
	sum := crc32.ChecksumIEEE(frame)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sums == nil {
		c.sums = make(map[uint32]int)
	}
	if c.sums[sum] += n; c.sums[sum] == 0 {
		delete(c.sums, sum)
	}
}

func (c *tally) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sums)
}

// send sends a frame once the interface takes some.
func (n *testNode) send(tb testing.TB, frame []byte) {
	for n.Stopped() {
		time.Sleep(20 * time.Microsecond)
	}
	for {
		err := n.TransmitCopy(exteth.Offload{}, frame)
		if err == nil {
			return
		}
		if err != ErrNoBuffer {
			tb.Error(err)
			return
		}
		time.Sleep(20 * time.Microsecond)
	}
}

// post posts a frame once the interface takes some, as txloop does.
func (n *testNode) post(tb testing.TB, frame []byte) {
	b := n.Alloc()
	for b == nil || n.Stopped() {
		n.Flush()
		time.Sleep(20 * time.Microsecond)
		if b == nil {
			b = n.Alloc()
		}
	}
	b.SetPacket(copy(b.Mem()[exteth.Headroom-exteth.EthernetHeaderLen:], frame) - exteth.EthernetHeaderLen)
	if err := n.Post(b); err != nil {
		tb.Error(err)
	}
}

// Every frame arrives once and unharmed, whatever goes on beside it: several
// goroutines on every node, to every node and to the group, with hardly any
// credits, in every mode of polling.
func TestStress(t *testing.T) {
	for _, tt := range []struct {
		name string
		napi napi.Config
		coal napi.Coalesce
	}{
		{"mode=napi", napi.Config{}, napi.Coalesce{}},
		{"mode=napi,inline=4", napi.Config{InlineBudget: 4}, napi.Coalesce{}},
		{"mode=napi,inline=0", napi.Config{InlineBudget: -1}, napi.Coalesce{}},
		{"mode=napi,coalesce", napi.Config{}, napi.Coalesce{Frames: 8, Delay: 100 * time.Microsecond}},
		{"mode=interrupt", napi.Config{Mode: napi.ModeInterrupt}, napi.Coalesce{}},
		{"mode=busy", napi.Config{Mode: napi.ModeBusyPoll}, napi.Coalesce{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stress(t, Config{
				Buffers: 64, Mailbox: velo.Config{Slots: 64, Credits: 24}, StallTime: time.Minute, TransferTimeout: time.Minute,
				NAPI: tt.napi, Coalesce: tt.coal, VELOBudget: 16, RMABudget: 8,
			}, nil)
		})
	}
}

func stress(t *testing.T, cfg Config, wrap func(link.Port) link.Port) {
	const nodes, goroutines, frames = 3, 2, 300
	net := newNet(t, 0, cfg)
	var open tally
	for range nodes {
		n := net.add(cfg, wrap)
		n.onFrame = func(src fabric.NodeID, _ exteth.Offload, f foreign.Frame) error {
			frame := f.Private().Head()
			open.add(frame, -1)
			if arp.MAC(frame[6:12]) != net.mac(src) {
				return fmt.Errorf("frame of %x from node %d", frame[6:12], src)
			}
			return nil
		}
	}
	for _, n := range net.nodes {
		n.start(t)
	}
	var wg sync.WaitGroup
	for _, n := range net.nodes {
		for g := range goroutines {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(n.id), uint64(g)))
				defer n.Flush()
				for i := range frames {
					size := 60 + rng.IntN(900)
					if i%16 == 0 {
						size = 60 + rng.IntN(20000)
					}
					dst, copies := net.mac(fabric.NodeID(1+rng.IntN(nodes))), 1
					if i%32 == 1 {
						dst, copies = arp.Broadcast(), nodes-1
					}
					f := n.frame(dst, rng.Uint32(), size)
					open.add(f, copies)
					if g == 0 {
						n.send(t, f)
					} else if n.post(t, f); rng.IntN(8) == 0 {
						n.Flush()
					}
				}
			})
		}
	}
	wg.Wait()
	for deadline := time.Now().Add(3 * time.Minute); open.open() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			for _, n := range net.nodes {
				s := n.Stats()
				t.Logf("node %d: stopped %v, backlog %d\n%+v\n%+v\n%+v", n.id, n.Stopped(), n.backlog.Load(), s.Counters, s.Port, s.NAPI)
			}
			t.Fatalf("%d frames have not arrived, or arrived too often", open.open())
		}
	}
	for _, n := range net.nodes {
		n.checkBuffers(t)
		s := n.Stats()
		if p := s.Port; p.RxRefused+p.RxGetFailed+p.RxOrphan+p.RxBadMessage+p.RxBadAdvert+p.RxBadSize+p.RxBadOffload+p.RxExcess+p.Unmatched+p.TxTimeout != 0 {
			t.Errorf("node %d: %+v", n.id, p)
		}
		if s.Counters.TxStalled+s.Counters.TxStalls != 0 {
			t.Errorf("node %d: %+v", n.id, s.Counters)
		}
	}
}

// lateLink completes every GET in a goroutine of its own, a little later, in
// pieces of one RMA packet.
type lateLink struct {
	link.Port
	pending *sync.WaitGroup
}

type lateGet struct {
	link.Sink
	data   []byte
	status fabric.Status
}

func (g *lateGet) Data(off int, p foreign.Memory) error {
	g.data = p.AppendTo(g.data[:off])
	return nil
}

func (g *lateGet) Done(s fabric.Status) { g.status = s }

func (l lateLink) Get(g link.Get, s link.Sink) {
	l.pending.Go(func() {
		held := &lateGet{Sink: s}
		l.Port.Get(g, held)
		time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
		for off := 0; off < len(held.data); off += rma.MTU {
			if s.Data(off, foreign.Of(held.data[off:min(off+rma.MTU, len(held.data))])) != nil {
				break
			}
		}
		s.Done(held.status)
	})
}

// The same over a link that takes its time, where GETs wait for a transfer.
func TestStressLateLink(t *testing.T) {
	var pending sync.WaitGroup
	defer pending.Wait()
	stress(t, Config{Buffers: 64, Mailbox: velo.Config{Slots: 128, Credits: 64}, StallTime: time.Minute, TransferTimeout: time.Minute},
		func(p link.Port) link.Port { return lateLink{p, &pending} })
}

// A receiver may send while it receives, to whom it likes: no lock is held, and
// the goroutine that sent first comes back.
func TestReplies(t *testing.T) {
	net := newNet(t, 3, Config{StallTime: time.Minute, TransferTimeout: time.Minute, Buffers: 512})
	var arrived atomic.Uint64
	const start, hops = 20, 100
	for _, n := range net.nodes {
		n.onFrame = func(_ fabric.NodeID, _ exteth.Offload, f foreign.Frame) error {
			frame := f.Private().Head()
			arrived.Add(1)
			hop, ok := number(frame)
			if !ok {
				t.Error("a frame is mixed up")
			}
			if hop == hops {
				return nil
			}
			// On to the next node, each time by the other protocol.
			size := 100
			if hop%2 == 0 {
				size = 1000
			}
			return n.TransmitCopy(exteth.Offload{}, n.frame(net.mac(n.id%3+1), hop+1, size))
		}
	}
	for _, n := range net.nodes {
		n.start(t)
	}
	for range start {
		a := net.nodes[0]
		if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), 1, 100)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all replies", func() bool { return arrived.Load() == start*hops })
	for _, n := range net.nodes {
		n.checkBuffers(t)
	}
}

// Nodes come and go while the others have traffic.
func TestStressLoss(t *testing.T) {
	cfg := small()
	cfg.StallTime = 5 * time.Millisecond
	cfg.TransferTimeout = 0 // what a node that left has not fetched comes back soon
	net := newNet(t, 4, cfg)
	const last = 4711
	var seen [5]atomic.Bool
	for _, n := range net.nodes {
		n.onFrame = func(_ fabric.NodeID, _ exteth.Offload, f foreign.Frame) error {
			frame := f.Private().Head()
			if num, ok := number(frame); !ok {
				t.Error("a frame is mixed up")
			} else if num == last {
				seen[n.id].Store(true)
			}
			return nil
		}
		n.start(t)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, n := range net.nodes[:3] {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n.id), 0))
			for {
				select {
				case <-stop:
					return
				default:
				}
				dst := net.mac(fabric.NodeID(1 + rng.IntN(4)))
				if rng.IntN(20) == 0 {
					dst = arp.Broadcast()
				}
				// An error says that the node is away.
				_ = n.TransmitCopy(exteth.Offload{}, n.frame(dst, 1, 60+rng.IntN(3000)))
			}
		})
	}
	for range 20 {
		if err := net.fabric.Detach(net.nodes[3].nic); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		if err := net.fabric.Attach(net.nodes[3].nic); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	close(stop)
	wg.Wait()
	// Every node still gets what is sent to it.
	for _, n := range net.nodes {
		for _, to := range net.nodes {
			eventually(t, fmt.Sprintf("a frame from node %d to node %d", n.id, to.id), func() bool {
				_ = n.TransmitCopy(exteth.Offload{}, n.frame(net.mac(to.id), last, 600))
				return seen[to.id].Swap(false)
			})
		}
	}
}

package exteth

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"testing"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link"
	"exnet/fabric/link/mem"
	"exnet/foreign"
)

// testNet is a fabric with a Port on every node. Nothing is polled but by the
// test.
type testNet struct {
	tb     testing.TB
	fabric *mem.Fabric
	nodes  []*testNode // node i has the ID i+1
	raws   int
}

// testNode is a node that keeps what it receives.
type testNode struct {
	*Port
	id  fabric.NodeID
	nic mem.NIC

	frames fabrictest.Frames[Offload] // a slow link delivers in goroutines of its own
	mu     sync.Mutex
	refuse error // guarded by mu; ReceiveFrame's answer

	credit, buffer, work int // calls of OnCredit, OnBuffer, OnWork
}

type gotFrame = fabrictest.Frame[Offload]

// ReceiveFrame implements Receiver.
func (n *testNode) ReceiveFrame(src fabric.NodeID, off Offload, frame foreign.Frame) error {
	n.frames.Keep(src, off, frame)
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refuse
}

func newNet(tb testing.TB, nodes int, cfg Config) *testNet {
	tb.Helper()
	net := &testNet{tb: tb, fabric: mem.NewFabric()}
	for range nodes {
		net.add(cfg, nil)
	}
	return net
}

// add adds a node, whose way to the others goes through wrap if that is not nil.
func (net *testNet) add(cfg Config, wrap func(link.Port) link.Port) *testNode {
	net.tb.Helper()
	n := &testNode{id: fabric.NodeID(len(net.nodes) + 1)}
	card, at := fabrictest.Join(net.tb, net.fabric, n.id, wrap)
	n.nic = at
	cfg.Receiver = n
	cfg.OnCredit = func(fabric.NodeID) { n.credit++ }
	cfg.OnBuffer = func() { n.buffer++ }
	cfg.OnWork = func() { n.work++ }
	var err error
	if n.Port, err = Open(card, cfg); err != nil {
		net.tb.Fatal(err)
	}
	net.tb.Cleanup(func() { n.Close() }) // a test may have closed it
	net.nodes = append(net.nodes, n)
	return n
}

// settle polls all nodes until none has anything to do.
func (net *testNet) settle() {
	for again := true; again; {
		again = false
		for _, n := range net.nodes {
			again = n.poll() || again
		}
	}
}

// poll polls a node as package napi does, once round.
func (n *testNode) poll() bool {
	messages, _ := n.PollVELO(64)
	notifications, _ := n.PollRMA(64)
	return notifications > 0 || messages > 0
}

// buf returns a buffer with a frame of random bytes, size of them.
func (n *testNode) buf(tb testing.TB, size int) *TxBuffer {
	tb.Helper()
	b := n.Alloc()
	if b == nil {
		tb.Fatal("no free buffer")
	}
	b.SetPacket(size - EthernetHeaderLen)
	random(b.Frame())
	return b
}

func random(b []byte) {
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
}

// free counts the free buffers of a node.
func (n *testNode) free() int {
	n.pool.mu.Lock()
	defer n.pool.mu.Unlock()
	count := 0
	for b := n.pool.free; b != nil; b = b.next {
		count++
	}
	return count
}

// checkIdle fails the test unless all buffers and transfers of all nodes are
// free.
func (net *testNet) checkIdle() {
	net.tb.Helper()
	for _, n := range net.nodes {
		if free := n.free(); free != n.cfg.Buffers {
			net.tb.Errorf("node %d: %d of %d buffers are free", n.id, free, n.cfg.Buffers)
		}
		if lent := n.outstanding.Load(); lent != 0 {
			net.tb.Errorf("node %d: %d buffers are lent", n.id, lent)
		}
		transfers := 0
		for t := n.sink.free; t != nil; t = t.next {
			transfers++
		}
		if transfers != MaxTransfers {
			net.tb.Errorf("node %d: %d of %d transfers are free", n.id, transfers, MaxTransfers)
		}
	}
}

// checkFrames fails the test unless got are exactly the frames want from src.
func checkFrames(tb testing.TB, got []gotFrame, src fabric.NodeID, want ...[]byte) {
	tb.Helper()
	if len(got) != len(want) {
		tb.Errorf("%d frames from node %d, want %d", len(got), src, len(want))
		return
	}
	for i, g := range got {
		if g.Src != src || !bytes.Equal(g.Bytes, want[i]) {
			tb.Errorf("frame %d is of node %d, %v; want node %d, %v", i, g.Src, digest(g.Bytes), src, digest(want[i]))
		}
	}
}

func digest(b []byte) string { return fmt.Sprintf("%d bytes %08x", len(b), crc32.ChecksumIEEE(b)) }

// checkStats fails the test unless the counters named are as in want, and all
// others 0 but those in ignore.
func checkStats(tb testing.TB, s Stats, want map[string]uint64) {
	tb.Helper()
	for name, v := range s.All() {
		if v != want[name] {
			tb.Errorf("%s is %d, want %d", name, v, want[name])
		}
		delete(want, name)
	}
	for name := range want {
		tb.Errorf("no counter %s", name)
	}
}

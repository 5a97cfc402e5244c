package exn

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link"
	"exnet/fabric/link/mem"
	"exnet/foreign"
)

// testNet is a fabric of Interfaces.
type testNet struct {
	tb     testing.TB
	fabric *mem.Fabric
	nodes  []*testNode // node i has the ID i+1
}

type testNode struct {
	*Interface
	id  fabric.NodeID
	nic mem.NIC

	ready chan struct{} // a token after OnReady
	stop  func()        // ends Run

	frames  fabrictest.Frames[exteth.Offload]
	onFrame func(fabric.NodeID, exteth.Offload, foreign.Frame) error // instead of keeping frames; set before start
}

type gotFrame = fabrictest.Frame[exteth.Offload]

func (n *testNode) ReceiveFrame(src fabric.NodeID, off exteth.Offload, frame foreign.Frame) error {
	if n.onFrame != nil {
		return n.onFrame(src, off, frame)
	}
	n.frames.Keep(src, off, frame)
	return nil
}

// newNet makes a fabric of interfaces that do not run yet.
func newNet(tb testing.TB, nodes int, cfg Config) *testNet {
	tb.Helper()
	net := &testNet{tb: tb, fabric: mem.NewFabric()}
	for range nodes {
		net.add(cfg, nil)
	}
	return net
}

// startNet makes a fabric of interfaces that run.
func startNet(tb testing.TB, nodes int, cfg Config) *testNet {
	tb.Helper()
	net := newNet(tb, nodes, cfg)
	for _, n := range net.nodes {
		n.start(tb)
	}
	return net
}

// add adds a node, whose way to the others goes through wrap if that is not nil.
func (net *testNet) add(cfg Config, wrap func(link.Port) link.Port) *testNode {
	net.tb.Helper()
	n := &testNode{id: fabric.NodeID(len(net.nodes) + 1), ready: make(chan struct{}, 1)}
	cfg.NIC, n.nic = fabrictest.Join(net.tb, net.fabric, n.id, wrap)
	cfg.OnReady = func() {
		select {
		case n.ready <- struct{}{}:
		default:
		}
	}
	var err error
	if n.Interface, err = New(cfg); err != nil {
		net.tb.Fatal(err)
	}
	n.SetReceiver(n)
	net.tb.Cleanup(func() {
		n.down()
		n.Close() // a test may have closed it
	})
	net.nodes = append(net.nodes, n)
	return n
}

// start runs the interface until down.
func (n *testNode) start(tb testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("node %d: Run: %v", n.id, err)
		}
	})
	// Until it runs, nothing is received.
	for n.Stats().NAPI.Sources[0].Polls == 0 {
		time.Sleep(50 * time.Microsecond)
	}
}

func (n *testNode) down() {
	if n.stop != nil {
		n.stop()
	}
}

// frame returns a frame of size bytes from n to a MAC address, numbered, with a
// pattern that depends on the number.
func (n *testNode) frame(dst arp.MAC, number uint32, size int) []byte {
	f := make([]byte, size)
	copy(f, dst[:])
	src := n.MAC()
	copy(f[6:], src[:])
	f[12], f[13] = 0x88, 0xb5 // local experimental
	binary.BigEndian.PutUint32(f[14:], number)
	for i := 18; i < size; i++ {
		f[i] = byte(number) + byte(i)
	}
	return f
}

// number checks a frame's pattern and returns its number.
func number(frame []byte) (uint32, bool) {
	n := binary.BigEndian.Uint32(frame[14:])
	for i := 18; i < len(frame); i++ {
		if frame[i] != byte(n)+byte(i) {
			return n, false
		}
	}
	return n, true
}

func (net *testNet) mac(id fabric.NodeID) arp.MAC { return arp.DefaultPrefix().MAC(id) }

// eventually waits until a condition holds.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("timeout: %s", what)
		}
	}
}

// checkBuffers waits until all buffers of a node are free.
func (n *testNode) checkBuffers(tb testing.TB) {
	tb.Helper()
	var held []*exteth.TxBuffer
	defer func() {
		for _, b := range held {
			n.Free(b)
		}
	}()
	eventually(tb, "all buffers are free", func() bool {
		for len(held) < n.cfg.Buffers {
			b := n.Alloc()
			if b == nil {
				return false
			}
			held = append(held, b)
		}
		return true
	})
	if b := n.Alloc(); b != nil {
		tb.Errorf("node %d has a buffer too many", n.id)
	}
	if n.backlog.Load() != 0 || n.Stopped() {
		tb.Errorf("node %d: backlog %d, stopped %v", n.id, n.backlog.Load(), n.Stopped())
	}
}

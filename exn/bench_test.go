package exn

import (
	"fmt"
	"testing"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/foreign"
)

// pair is two running interfaces, the second of which takes frames and keeps
// none.
func pair(tb testing.TB) (a *testNode, frames *int) {
	net := newNet(tb, 2, Config{StallTime: time.Minute})
	frames = new(int)
	net.nodes[1].onFrame = func(fabric.NodeID, exteth.Offload, foreign.Frame) error {
		*frames++ // in the sender's goroutine
		return nil
	}
	for _, n := range net.nodes {
		n.start(tb)
	}
	return net.nodes[0], frames
}

// transmit sends a frame of size bytes, headers set, without a copy.
func (n *testNode) transmit(tb testing.TB, dst arp.MAC, size int) {
	b := n.Alloc()
	if b == nil {
		tb.Fatal("no free buffer")
	}
	b.SetPacket(size - exteth.EthernetHeaderLen)
	copy(b.Frame(), dst[:])
	if err := n.Transmit(b); err != nil {
		tb.Fatal(err)
	}
}

// No frame costs an allocation, from Alloc in the one interface to the receiver
// of the other and back.
func TestAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, tt := range []struct {
		name string
		dst  arp.MAC
		size int
	}{
		{"eager", arp.DefaultPrefix().MAC(2), 64},
		{"eager", arp.DefaultPrefix().MAC(2), 480},
		{"rendezvous", arp.DefaultPrefix().MAC(2), 1500},
		{"rendezvous", arp.DefaultPrefix().MAC(2), 65535},
		{"group", arp.Broadcast(), 300},
	} {
		t.Run(fmt.Sprintf("%s/size=%d", tt.name, tt.size), func(t *testing.T) {
			a, frames := pair(t)
			const runs = 5000
			if got := testing.AllocsPerRun(runs, func() { a.transmit(t, tt.dst, tt.size) }); got != 0 {
				t.Errorf("%v allocations per frame", got)
			}
			if *frames != runs+1 {
				t.Errorf("%d frames arrived of %d", *frames, runs+1)
			}
		})
	}
	t.Run("copy", func(t *testing.T) {
		a, _ := pair(t)
		f := a.frame(arp.DefaultPrefix().MAC(2), 1, 200)
		if got := testing.AllocsPerRun(1000, func() {
			if err := a.TransmitCopy(exteth.Offload{}, f[:14], f[14:]); err != nil {
				t.Fatal(err)
			}
		}); got != 0 {
			t.Errorf("%v allocations per frame", got)
		}
	})
}

// A frame from Transmit to the far receiver, which runs in the sender's
// goroutine, and beside it the control: a plain copy of as many bytes.
func BenchmarkTransmit(b *testing.B) {
	for _, size := range []int{64, 480, 1500, 9000, 65535} {
		b.Run(fmt.Sprintf("path=exn/size=%d", size), func(b *testing.B) {
			a, _ := pair(b)
			dst := arp.DefaultPrefix().MAC(2)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				a.transmit(b, dst, size)
			}
		})
		b.Run(fmt.Sprintf("path=copy/size=%d", size), func(b *testing.B) {
			src, dst := make([]byte, size), make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				copy(dst, src)
			}
		})
	}
}

// The same to the broadcast group of several nodes.
func BenchmarkBroadcast(b *testing.B) {
	for _, nodes := range []int{2, 8} {
		b.Run(fmt.Sprintf("nodes=%d/size=100", nodes), func(b *testing.B) {
			net := newNet(b, nodes, Config{StallTime: time.Minute})
			for _, n := range net.nodes {
				n.onFrame = func(fabric.NodeID, exteth.Offload, foreign.Frame) error { return nil }
				n.start(b)
			}
			b.ReportAllocs()
			for b.Loop() {
				net.nodes[0].transmit(b, arp.Broadcast(), 100)
			}
		})
	}
}

// Another peer that takes nothing costs little: with its frame in a queue, all
// frames go by the queues.
func BenchmarkBesideStalled(b *testing.B) {
	for _, stalled := range []bool{false, true} {
		b.Run(fmt.Sprintf("stalled=%v/size=100", stalled), func(b *testing.B) {
			cfg := small()
			cfg.Buffers = 256
			cfg.StallTime = 300 * time.Millisecond // more than it takes to fill the queue, on a busy machine, too
			net := newNet(b, 3, cfg)
			net.nodes[1].onFrame = func(fabric.NodeID, exteth.Offload, foreign.Frame) error { return nil }
			a := net.nodes[0]
			a.start(b)
			net.nodes[1].start(b)
			if stalled {
				a.feed(b, net.mac(3), 0, 100)
				eventually(b, "the stall", func() bool { return a.Stats().TxStalls == 1 && !a.Stopped() })
			}
			b.ReportAllocs()
			for b.Loop() {
				a.transmit(b, net.mac(2), 100)
			}
		})
	}
}

package exteth

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"exnet/fabric"
)

// sizes are frame lengths around every boundary: the Ethernet header, one to
// four VELO messages, and multiples of the RMA MTU of 496 bytes.
func sizes() []int {
	list := []int{14, 15, 33, 34, 64, 119, 120, 121, 239, 240, 241, 359, 360, 361, 479, 480, 481, 482}
	for _, k := range []int{1, 2, 3, 4, 30, 131, 132} {
		for _, d := range []int{-14, -1, 0, 1, 14} {
			list = append(list, k*496+d)
		}
	}
	list = append(list, 1500, 1514, 9000, 9014, 65535, defaultMaxFrame-1, defaultMaxFrame)
	slices.Sort(list)
	return slices.Compact(list)
}

// Every frame arrives as it was sent, eagerly or by rendezvous, and to a group
// (frame-format.md, section 2).
func TestSizes(t *testing.T) {
	net := newNet(t, 3, Config{})
	a, b, c := net.nodes[0], net.nodes[1], net.nodes[2]
	var eager, rendezvous uint64
	for _, size := range sizes() {
		buf := a.buf(t, size)
		want := bytes.Clone(buf.Frame())
		if err := a.Send(b.id, buf); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		net.settle()
		checkFrames(t, b.frames.Take(), a.id, want)
		if size <= DefaultEagerThreshold {
			eager++
		} else {
			rendezvous++
		}
	}
	if got := a.Stats(); got.TxEager != eager || got.TxRendezvous != rendezvous {
		t.Errorf("sent %d eager and %d by rendezvous, want %d and %d", got.TxEager, got.TxRendezvous, eager, rendezvous)
	}
	if got := b.Stats(); got.RxEager != eager || got.RxRendezvous != rendezvous || got.RxBytes != a.Stats().TxBytes {
		t.Errorf("received %d eager and %d by rendezvous, %d bytes; want %d, %d, %d",
			got.RxEager, got.RxRendezvous, got.RxBytes, eager, rendezvous, a.Stats().TxBytes)
	}
	for _, size := range sizes() {
		buf := a.buf(t, size)
		want := bytes.Clone(buf.Frame())
		for {
			err := a.SendGroup(fabric.GroupBroadcast, buf, false)
			net.settle()
			if err == nil {
				break
			}
			if !errors.Is(err, ErrAgain) {
				t.Fatalf("%d bytes: %v", size, err)
			}
		}
		checkFrames(t, b.frames.Take(), a.id, want)
		checkFrames(t, c.frames.Take(), a.id, want)
	}
	net.checkIdle()
}

func TestFrameSize(t *testing.T) {
	net := newNet(t, 2, Config{MaxFrame: 1514})
	a := net.nodes[0]
	for _, size := range []int{13, 1515} {
		if err := a.Send(2, a.buf(t, size)); !errors.Is(err, ErrFrameSize) {
			t.Errorf("Send of %d bytes: %v, want ErrFrameSize", size, err)
		}
		if err := a.SendGroup(63, a.buf(t, size), false); !errors.Is(err, ErrFrameSize) {
			t.Errorf("SendGroup of %d bytes: %v, want ErrFrameSize", size, err)
		}
	}
	checkStats(t, a.Stats(), map[string]uint64{"tx_bad_size": 4})
	net.checkIdle()
}

// The longest frame, 8 MB, arrives whole.
func TestLongestFrame(t *testing.T) {
	net := newNet(t, 2, Config{MaxFrame: MaxFrame, Buffers: 2})
	a, b := net.nodes[0], net.nodes[1]
	buf := a.buf(t, MaxFrame)
	want := bytes.Clone(buf.Frame())
	if err := a.Send(b.id, buf); err != nil {
		t.Fatal(err)
	}
	net.settle()
	checkFrames(t, b.frames.Take(), a.id, want)
	net.checkIdle()
}

// The threshold decides by the frame, header included.
func TestEagerThreshold(t *testing.T) {
	for _, threshold := range []int{MinEagerThreshold, 240, 481, 2000} {
		t.Run(fmt.Sprintf("threshold=%d", threshold), func(t *testing.T) {
			net := newNet(t, 2, Config{EagerThreshold: threshold})
			a, b := net.nodes[0], net.nodes[1]
			for i, size := range []int{threshold, threshold + 1} {
				buf := a.buf(t, size)
				want := bytes.Clone(buf.Frame())
				if err := a.Send(b.id, buf); err != nil {
					t.Fatal(err)
				}
				net.settle()
				checkFrames(t, b.frames.Take(), a.id, want)
				if got := a.Stats(); got.TxEager != 1 || got.TxRendezvous != uint64(i) {
					t.Errorf("after %d bytes: %d eager, %d by rendezvous", size, got.TxEager, got.TxRendezvous)
				}
			}
		})
	}
}

// Messages of several senders lie mixed in the mailbox, and so do a sender's
// own frames to the node and to the group.
func TestInterleavedSenders(t *testing.T) {
	net := newNet(t, 5, Config{EagerThreshold: 2000})
	rx := net.nodes[0]
	want := make(map[fabric.NodeID][][]byte)
	for round := range 20 {
		for _, n := range net.nodes[1:] {
			for _, group := range []bool{false, true} {
				buf := n.buf(t, 200+round*50+int(n.id))
				want[n.id] = append(want[n.id], bytes.Clone(buf.Frame()))
				// As p.Send does it, but a message at a time in turn with the
				// other senders, which only a link of several nodes can do.
				if err := sendOne(n, rx.id, buf, group); err != nil {
					t.Fatal(err)
				}
			}
		}
		net.settle()
	}
	got := make(map[fabric.NodeID][][]byte)
	for _, g := range rx.frames.Take() {
		got[g.Src] = append(got[g.Src], g.Bytes)
	}
	for id := range want {
		if len(got[id]) != len(want[id]) {
			t.Errorf("%d frames of node %d, want %d", len(got[id]), id, len(want[id]))
			continue
		}
		for i := range want[id] {
			if !slices.ContainsFunc(got[id], func(f []byte) bool { return bytes.Equal(f, want[id][i]) }) {
				t.Errorf("frame %d of node %d is missing", i, id)
			}
		}
	}
	net.checkIdle()
}

func sendOne(n *testNode, to fabric.NodeID, b *TxBuffer, group bool) error {
	if group {
		return n.SendGroup(fabric.GroupBroadcast, b, false)
	}
	return n.Send(to, b)
}

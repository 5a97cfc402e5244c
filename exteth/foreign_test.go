package exteth

import (
	"bytes"
	"testing"

	"exnet/fabric"
	"exnet/foreign"
	"exnet/internal/foreigntest"
)

// receiver is a Receiver that is one function.
type receiver func(frame foreign.Frame)

// ReceiveFrame implements Receiver.
func (r receiver) ReceiveFrame(_ fabric.NodeID, _ Offload, frame foreign.Frame) error {
	r(frame)
	return nil
}

// A frame's sender that changes each byte as soon as it was read changes nothing of
// what was received. A Receiver that reads the rest twice is found.
func TestFrameIsReadOnce(t *testing.T) {
	for _, tt := range []struct {
		name   string
		slow   bool // the GET comes in pieces
		repeat int
		again  bool
	}{{"whole", false, 1, false}, {"pieces", true, 1, false}, {"planted fault", false, 2, true}} {
		t.Run(tt.name, func(t *testing.T) {
			net := newNet(t, 1, Config{})
			l := new(slowLink)
			var b *testNode
			if tt.slow {
				b = net.add(Config{}, l.wrap)
			} else {
				b = net.add(Config{}, nil)
			}
			var got []byte
			b.cfg.Receiver = receiver(func(f foreign.Frame) {
				for range tt.repeat {
					got = f.AppendTo(got[:0])
				}
			})
			a := net.nodes[0]
			for _, size := range []int{DefaultEagerThreshold + 1, 9014, 65549} {
				buf := a.buf(t, size)
				want := bytes.Clone(buf.Frame())
				reads := foreigntest.Watch(t, foreigntest.Flip)
				if err := a.Send(b.id, buf); err != nil {
					t.Fatal(err)
				}
				net.settle()
				for l.waiting() > 0 {
					l.complete(1)
					net.settle()
				}
				reads.Stop()
				read, again := reads.Bytes()
				if read == 0 || again > 0 != tt.again || bytes.Equal(got, want) == tt.again {
					t.Errorf("frame of %d bytes: %d read, %d of them again, received as sent: %v", size, read, again, bytes.Equal(got, want))
				}
			}
		})
	}
}

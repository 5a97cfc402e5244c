package exn

import (
	"errors"

	"exnet/exteth"
	"exnet/fabric"
	"exnet/foreign"
)

// Gate looks at the packets that go to one other node. It returns nil for one that may go;
// otherwise what takes a function that sends it, to be called later and from any goroutine,
// or returns false: it is dropped. It borrows packet until return.
type Gate func(packet []byte) (hold func(send func()) bool)

// ErrHeld says that a frame was to wait for what others have sent before, and was dropped.
var ErrHeld = errors.New("exn: too many frames wait")

// SetGate has g look at the packets from now on; nil: all may go.
func (i *Interface) SetGate(g Gate) {
	if g == nil {
		i.gate.Store(nil)
		return
	}
	i.gate.Store(&g)
}

// sendTo sends a frame to a node, when it may go. It takes b.
func (i *Interface) sendTo(node fabric.NodeID, b *exteth.TxBuffer) error {
	if g := i.gate.Load(); g != nil {
		if hold := (*g)(b.Packet()); hold != nil {
			return i.hold(hold, node, b)
		}
	}
	i.tapped(TX, b.Offload, foreign.Private(b.Frame()))
	return i.send(queueKey{node: node}, b)
}

// hold is sendTo for a frame that waits.
func (i *Interface) hold(hold func(func()) bool, node fabric.NodeID, b *exteth.TxBuffer) error {
	held := hold(func() {
		i.tapped(TX, b.Offload, foreign.Private(b.Frame()))
		_ = i.send(queueKey{node: node}, b) // if it is dropped that is counted
		i.Flush()
	})
	if !held {
		i.Free(b)
		return ErrHeld
	}
	return nil
}

package exn

import (
	"encoding/binary"
	"errors"
	"slices"

	"exnet/exteth"
	"exnet/fabric"
	"exnet/foreign"
)

// Gate decides whether a packet to another node may be sent now. It returns nil if so.
// Otherwise it returns hold, which takes a function that sends the packet later, from any
// goroutine; if hold returns false, the packet is dropped. A Gate borrows packet until
// return.
type Gate func(packet []byte) (hold func(send func()) bool)

// ErrHeld says that a frame was dropped because the Gate holds too many already.
var ErrHeld = errors.New("exn: too many frames wait")

// SetGate installs g for the packets sent from now on. With nil, all are sent at once.
func (i *Interface) SetGate(g Gate) {
	if g == nil {
		i.gate.Store(nil)
		return
	}
	i.gate.Store(&g)
}

// Filter reports whether a packet from another node may be received; its sender repeats it if not.
// packet is its beginning. A Filter borrows packet until return.
type Filter func(from fabric.NodeID, packet []byte) bool

// SetFilter installs f for the packets received from now on. With nil, all are received.
func (i *Interface) SetFilter(f Filter) {
	if f == nil {
		i.filter.Store(nil)
		return
	}
	i.filter.Store(&f)
}

// filteredOut reports whether the Filter keeps a frame out that begins with head.
func (i *Interface) filteredOut(src fabric.NodeID, head []byte) bool {
	f := i.filter.Load()
	return f != nil && len(head) > exteth.EthernetHeaderLen && !(*f)(src, head[exteth.EthernetHeaderLen:])
}

// sendTo sends a frame to a node as soon as the Gate allows it. It takes b.
func (i *Interface) sendTo(node fabric.NodeID, b *exteth.TxBuffer) error {
	if g := i.gate.Load(); g != nil {
		if hold := (*g)(b.Packet()); hold != nil {
			return i.holdFrame(hold, node, b)
		}
	}
	i.showTap(TX, b.Offload, foreign.Private(b.Frame()))
	return i.sendOrQueue(queueKey{node: node}, b)
}

// Deliver hands the host a packet as if it had come from a node. It borrows packet until return.
// The error is the receiver's.
func (i *Interface) Deliver(src fabric.NodeID, off exteth.Offload, packet []byte) error {
	own, from := i.MAC(), i.cfg.MACPrefix.MAC(src)
	etherType := uint16(etherTypeIPv4)
	if packet[0]>>4 == 6 {
		etherType = etherTypeIPv6
	}
	frame := binary.BigEndian.AppendUint16(append(own[:], from[:]...), etherType)
	return i.receiveFrame(src, off, foreign.Private(append(frame, packet...)))
}

// holdFrame gives the Gate's hold function what sends a copy of the frame later: a frame may be
// held for minutes, and its buffer is for the frames of all. It takes b.
func (i *Interface) holdFrame(hold func(func()) bool, node fabric.NodeID, b *exteth.TxBuffer) error {
	off, class, frame := b.Offload, b.Class, slices.Clone(b.Frame())
	i.Free(b)
	held := hold(func() {
		b, err := i.copyFrame(off, frame)
		if err != nil { // there is no buffer, as if the peer were stalled
			i.stats.TxStalled.Add(1)
			return
		}
		b.Class = class
		i.showTap(TX, b.Offload, foreign.Private(b.Frame()))
		_ = i.sendOrQueue(queueKey{node: node}, b) // a drop is counted
		i.Flush()
	})
	if !held {
		return ErrHeld
	}
	return nil
}

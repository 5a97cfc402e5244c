package exn

import (
	"errors"
	"fmt"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
)

// Errors of Transmit.
var (
	// ErrNoBuffer says that all buffers are in use; wait for OnReady. It wraps
	// fabric.ErrAgain.
	ErrNoBuffer = fmt.Errorf("exn: no free transmit buffer: %w", fabric.ErrAgain)
	// ErrTooLong says that a frame is longer than the MTU allows.
	ErrTooLong = errors.New("exn: frame exceeds the MTU")
	// ErrTooShort says that a frame is shorter than its Ethernet header.
	ErrTooShort = errors.New("exn: frame is shorter than its header")
)

// Alloc returns a buffer for one frame, or nil when all are in use; then the
// interface is stopped until OnReady.
func (i *Interface) Alloc() *exteth.TxBuffer { return i.port.Alloc() }

// Free gives back a buffer unsent.
func (i *Interface) Free(b *exteth.TxBuffer) { i.port.Free(b) }

// Transmit sends the frame in b to the node of its destination MAC address, or
// to a fabric group when that is a multicast address. It takes b. An error says
// that the frame was dropped. A frame that its peer has no credit for is queued,
// as all group frames are; if it is dropped later, that is only counted.
func (i *Interface) Transmit(b *exteth.TxBuffer) error {
	err := i.Post(b)
	i.port.Flush()
	return err
}

// Flush lets the receivers of the frames that were posted know of them.
func (i *Interface) Flush() { i.port.Flush() }

// Post is Transmit for a frame that others follow at once. Its receiver may
// learn of it only by Flush, which the caller calls when it has no more frames
// at hand.
func (i *Interface) Post(b *exteth.TxBuffer) error {
	if n := len(b.Packet()); n > i.MTU() && b.Offload.GSOType == exteth.GSONone {
		i.stats.TxTooLong.Add(1)
		i.Free(b)
		return fmt.Errorf("%w: packet of %d bytes, MTU %d", ErrTooLong, n, i.MTU())
	}
	dst := arp.MAC(b.Frame()[:6])
	if dst.IsMulticast() {
		return i.send(queueKey{group: true}, b)
	}
	node, err := i.cfg.MACPrefix.Node(dst)
	if err != nil {
		i.stats.TxUnknownMAC.Add(1)
		i.Free(b)
		return err
	}
	return i.send(queueKey{node: node}, b)
}

// TransmitCopy sends the frame given in parts. It copies them.
func (i *Interface) TransmitCopy(off exteth.Offload, parts ...[]byte) error {
	b := i.Alloc()
	if b == nil {
		return ErrNoBuffer
	}
	at := exteth.Headroom - exteth.EthernetHeaderLen
	room := b.Mem()[at:]
	n := 0
	for _, p := range parts {
		if len(p) > len(room)-n {
			i.stats.TxTooLong.Add(1)
			i.Free(b)
			return fmt.Errorf("%w: frame of more than %d bytes", ErrTooLong, len(room))
		}
		n += copy(room[n:], p)
	}
	if n < exteth.EthernetHeaderLen {
		i.stats.TxTooShort.Add(1)
		i.Free(b)
		return fmt.Errorf("%w: %d bytes", ErrTooShort, n)
	}
	b.Offload = off
	b.SetPacket(n - exteth.EthernetHeaderLen)
	return i.Transmit(b)
}

// groupOf returns the fabric group of a multicast MAC address.
func groupOf(arp.MAC) fabric.GroupID { return fabric.GroupBroadcast }

// send sends b now, if nothing waits for its peer. Group frames all go through their queue:
// one that was sent in part must not be overtaken by another.
func (i *Interface) send(to queueKey, b *exteth.TxBuffer) error {
	if !to.group && i.clear(to) {
		if err := i.port.Post(to.node, b); !errors.Is(err, exteth.ErrAgain) {
			return err
		}
		// The peer may not know yet of what took its credit.
		i.port.Flush()
	}
	return i.enqueue(i.queue(to), b)
}

func (i *Interface) sendNow(to queueKey, b *exteth.TxBuffer, skip bool) error {
	if to.group {
		return i.port.SendGroup(groupOf(arp.MAC(b.Frame()[:6])), b, skip)
	}
	return i.port.Send(to.node, b)
}

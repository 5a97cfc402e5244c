package exn

import (
	"encoding/binary"
	"errors"
	"fmt"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/foreign"
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

// Transmit sends the frame in b to the node of its destination MAC address, or to a fabric group
// when that is a multicast address. It takes b. An error says that the frame was dropped. A
// multicast frame that no other node is a member for is dropped without an error: an Ethernet would
// not know. A frame that its peer has no credit for is queued, as all group frames are; if it is
// dropped later, that is only counted.
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
	if n := len(b.Packet()); n > i.MTU()+i.tagLen(b.Frame()) && b.Offload.GSOType == exteth.GSONone {
		i.stats.TxTooLong.Add(1)
		i.Free(b)
		return fmt.Errorf("%w: packet of %d bytes, MTU %d", ErrTooLong, n, i.MTU())
	}
	dst := arp.MAC(b.Frame()[:6])
	if dst.IsMulticast() {
		if _, ok := i.groupOf(b.Frame()); !ok {
			i.stats.TxNoMembers.Add(1)
			i.Free(b)
			return nil
		}
		i.tapped(TX, b.Offload, foreign.Private(b.Frame()))
		return i.send(queueKey{group: true}, b)
	}
	b.Class = classOf(b.Frame())
	node, err := i.cfg.MACPrefix.Node(dst)
	if err != nil && i.stations != nil {
		i.tapped(TX, b.Offload, foreign.Private(b.Frame()))
		return i.postForeign(dst, b)
	}
	if err != nil {
		i.stats.TxUnknownMAC.Add(1)
		i.Free(b)
		return err
	}
	return i.sendTo(node, b)
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

// Where the destination address of an IP packet is in its frame, and what tells
// that the frame is for an IP group: EtherType and the beginning of the MAC
// address (RFC 1112 section 6.4, RFC 2464 section 7).
const (
	etherTypeOff  = 12
	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
	etherTypeVLAN = 0x8100
	etherTypeQinQ = 0x88a8
	vlanTagLen    = 4
	groupMAC4     = 0x01
	groupMAC6     = 0x33
	v4DstOff      = exteth.EthernetHeaderLen + 16
	v4DstEnd      = v4DstOff + 4
	v6DstOff      = exteth.EthernetHeaderLen + 24
	v6DstEnd      = v6DstOff + 16
)

// tagLen is the length of a frame's VLAN tag (IEEE 802.1Q), which the MTU does not count.
func (i *Interface) tagLen(frame []byte) int {
	if i.stations == nil {
		return 0
	}
	switch binary.BigEndian.Uint16(frame[etherTypeOff:]) {
	case etherTypeVLAN, etherTypeQinQ:
		return vlanTagLen
	}
	return 0
}

// classOf returns the DSCP of a frame's IP packet (RFC 2474, 3); 0 if it has none.
func classOf(frame []byte) fabric.Class {
	if len(frame) < exteth.EthernetHeaderLen+2 {
		return 0
	}
	first, second := frame[exteth.EthernetHeaderLen], frame[exteth.EthernetHeaderLen+1]
	switch binary.BigEndian.Uint16(frame[etherTypeOff:]) {
	case etherTypeIPv4:
		return fabric.Class(second >> 2)
	case etherTypeIPv6:
		return fabric.Class(first&0xf<<2 | second>>6)
	}
	return 0
}

// groupOf returns the fabric group for a frame with a multicast MAC address;
// false: no other node is a member. The IP group decides, and not the MAC
// address, which 32 IPv4 groups and many more of IPv6 have in common. What is for
// no IP group (broadcast, ARP) is for everybody.
func (i *Interface) groupOf(frame []byte) (fabric.GroupID, bool) {
	if i.cfg.Groups == nil || len(frame) < exteth.EthernetHeaderLen {
		return fabric.GroupBroadcast, true
	}
	var dst []byte
	switch etherType := binary.BigEndian.Uint16(frame[etherTypeOff:]); {
	case etherType == etherTypeIPv4 && frame[0] == groupMAC4 && len(frame) >= v4DstEnd:
		dst = frame[v4DstOff:v4DstEnd]
	case etherType == etherTypeIPv6 && frame[0] == groupMAC6 && len(frame) >= v6DstEnd:
		dst = frame[v6DstOff:v6DstEnd]
	default:
		return fabric.GroupBroadcast, true
	}
	g, ok := i.cfg.Groups.Lookup(dst)
	if !ok || g == fabric.GroupBroadcast {
		return g, ok
	}
	return g, len(i.cfg.NIC.Routes().Members(g)) > 0
}

// send sends b now, if nothing waits for its peer. Group frames all go through
// one queue, whichever their groups: one that was sent in part must not be
// overtaken by another, as receivers put the group frames of a node together
// one after the other.
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
		// Perhaps not the group that Post saw: members come and go. If part of
		// the frame was sent, those that get only the rest drop it.
		g, ok := i.groupOf(b.Frame())
		if !ok {
			i.stats.TxNoMembers.Add(1)
			i.Free(b)
			return nil
		}
		return i.port.SendGroup(g, b, skip)
	}
	return i.port.Send(to.node, b)
}

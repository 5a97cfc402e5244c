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
	// ErrNoBuffer says that all buffers are in use: wait for Config.OnReady. It wraps
	// fabric.ErrAgain.
	ErrNoBuffer = fmt.Errorf("exn: no free transmit buffer: %w", fabric.ErrAgain)
	// ErrTooLong says that a frame is longer than the MTU allows.
	ErrTooLong = errors.New("exn: frame exceeds the MTU")
	// ErrTooShort says that a frame is shorter than its Ethernet header.
	ErrTooShort = errors.New("exn: frame is shorter than its header")
)

// Alloc returns a buffer for one frame, or nil when all are in use; then wait for
// Config.OnReady.
func (i *Interface) Alloc() *exteth.TxBuffer { return i.port.Alloc() }

// Free returns a buffer unsent.
func (i *Interface) Free(b *exteth.TxBuffer) { i.port.Free(b) }

// Transmit sends the frame in b to the node of its destination MAC address, or to a fabric group
// if that is a multicast address. It takes b. An error says that the frame was dropped. A multicast
// frame whose group has no other member is dropped without an error, as an Ethernet would do. A
// frame without credit is queued, and so are all group frames; a later drop is only counted.
func (i *Interface) Transmit(b *exteth.TxBuffer) error {
	err := i.Post(b)
	i.port.Flush()
	return err
}

// Flush interrupts the receivers of the frames that were posted.
func (i *Interface) Flush() { i.port.Flush() }

// Post is Transmit for a frame that others follow at once. Its receiver may not
// notice it before Flush, which the caller calls when it has no more frames.
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
		i.showTap(TX, b.Offload, foreign.Private(b.Frame()))
		return i.sendOrQueue(queueKey{group: true}, b)
	}
	b.Class = classOf(b.Frame())
	node, err := i.cfg.MACPrefix.Node(dst)
	if err != nil && i.stations != nil {
		i.showTap(TX, b.Offload, foreign.Private(b.Frame()))
		return i.postForeign(dst, b)
	}
	if err != nil {
		i.stats.TxUnknownMAC.Add(1)
		i.Free(b)
		return err
	}
	return i.sendTo(node, b)
}

// TransmitCopy sends the frame that parts add up to. It copies them. Its errors are those
// of Transmit, ErrNoBuffer and ErrTooShort.
func (i *Interface) TransmitCopy(off exteth.Offload, parts ...[]byte) error {
	b, err := i.copyFrame(off, parts...)
	if err != nil {
		return err
	}
	return i.Transmit(b)
}

// copyFrame copies the frame that parts add up to into a buffer.
func (i *Interface) copyFrame(off exteth.Offload, parts ...[]byte) (*exteth.TxBuffer, error) {
	b := i.Alloc()
	if b == nil {
		return nil, ErrNoBuffer
	}
	at := exteth.Headroom - exteth.EthernetHeaderLen
	room := b.Mem()[at:]
	n := 0
	for _, p := range parts {
		if len(p) > len(room)-n {
			i.stats.TxTooLong.Add(1)
			i.Free(b)
			return nil, fmt.Errorf("%w: frame of more than %d bytes", ErrTooLong, len(room))
		}
		n += copy(room[n:], p)
	}
	if n < exteth.EthernetHeaderLen {
		i.stats.TxTooShort.Add(1)
		i.Free(b)
		return nil, fmt.Errorf("%w: %d bytes", ErrTooShort, n)
	}
	b.Offload = off
	b.SetPacket(n - exteth.EthernetHeaderLen)
	return b, nil
}

// Offsets and values in a frame: EtherType, the first byte of the MAC address of an IP
// group (RFC 1112 section 6.4, RFC 2464 section 7), and the IP destination address.
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

// tagLen returns the length of a frame's VLAN tag (IEEE 802.1Q), which does not count
// towards the MTU; 0 without Config.Ethernet.
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

// groupOf returns the fabric group for a frame with a multicast MAC address, or
// false if no other node is a member. The IP group decides, not the MAC address,
// which 32 IPv4 groups and many more IPv6 groups share. A frame to no IP group
// (broadcast, ARP) goes to all nodes.
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

// sendOrQueue sends b now, if no frame waits for its peer; otherwise it queues b. The frames
// of all groups go through one queue: none may overtake one that was sent in part,
// because receivers reassemble the group frames of a node one at a time.
func (i *Interface) sendOrQueue(to queueKey, b *exteth.TxBuffer) error {
	if to.group || !i.noneQueued(to) {
		return i.enqueue(i.queueOf(to), b)
	}
	err := i.port.Post(to.node, b)
	switch {
	case errors.Is(err, exteth.ErrAgain):
		// The frames that took the peer's credit may not be announced to it yet.
		i.port.Flush()
		return i.enqueue(i.queueOf(to), b)
	case exteth.Unreached(err) && i.onUnreached(to.node, err):
		return i.enqueue(i.queueOf(to), b)
	case exteth.Unreached(err):
		i.Free(b)
	}
	return err
}

func (i *Interface) sendNow(to queueKey, b *exteth.TxBuffer, skip bool) error {
	if to.group {
		// This may not be the group that Post saw: members come and go. If part of
		// the frame was sent, a member that gets only the rest drops it.
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

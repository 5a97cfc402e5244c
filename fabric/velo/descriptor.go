package velo

import (
	"encoding/binary"
	"fmt"
	"io"

	"exnet/fabric"
	"exnet/fabric/link"
)

const (
	// SlotSize is the size of a slot of a mailbox.
	SlotSize = 128
	// StatusSize is the size of the status word at the beginning of a slot.
	StatusSize = 8
	// MaxPayload is the rest of the slot: the largest message.
	MaxPayload = SlotSize - StatusSize

	// DescriptorSize is the size of a software descriptor.
	DescriptorSize = 8

	// MaxType is the largest message type tag (4 bits).
	MaxType = 15
)

// The payload of a link's slot has the size of a mailbox slot's.
var _ [MaxPayload]byte = [link.VELOPayload]byte{}

// Descriptor is the software descriptor of a message (figure 3.4), without the
// length, which is the payload's:
//
//	 31 30 29   26 25          16 15                            0
//	┌──┬──┬───────┬──────────────┬───────────────────────────────┐
//	│MC│ Q│ res.  │ VPID      10 │ node or multicast group    16 │ bits 0..31
//	├──┴──┴────┬──┴──────────────┼───────────────┬──┬───┬────────┤
//	│ class lo │ length       12 │ user tag    8 │r.│hi │ MTT  4 │ bits 32..63
//	└──────────┴─────────────────┴───────────────┴──┴───┴────────┘
//	 31      28 27             16 15            8 7 6 5 4 3      0
//
// The text of the thesis does not give the width of the user tag; exnet uses 8 bits.
// Q (quiet) and the class are additions of exnet. The class has its upper 2 bits
// apart from its lower 4.
type Descriptor struct {
	Dst       fabric.NodeID  // ignored if Multicast
	Group     fabric.GroupID // ignored unless Multicast
	Multicast bool
	VPID      fabric.VPID  // mailbox on the target
	Tag       uint8        // user tag
	Type      uint8        // message type tag (MTT), 0 to MaxType
	Class     fabric.Class // chooses the route; ignored if Multicast, which keeps its tree

	// Quiet raises no interrupt. The sender calls Interrupt or InterruptGroup after
	// its last message, even if that one was refused: a refused multicast may have
	// left slots that the targets must skip.
	Quiet bool
}

// Positions of the fields of a descriptor.
const (
	descVPIDShift   = 16
	descMCBit       = 1 << 31
	descQuietBit    = 1 << 30
	descTypeShift   = 32
	descTagShift    = 40
	descLengthShift = 48
	descClassShift  = 60 // the lower 4 bits
	descUpperShift  = 36 // the upper 2 bits

	vpidMask   = 1<<10 - 1
	lengthMask = 1<<12 - 1
	lowerBits  = 4 // of a class
	lowerMask  = 1<<lowerBits - 1
	upperMask  = 1<<2 - 1
)

// checkSend reports whether d describes a message of n bytes that can be sent.
func (d *Descriptor) checkSend(n int) error {
	switch {
	case n < 1 || n > MaxPayload:
		return fmt.Errorf("velo: message of %d bytes: use 1 to %d: %w", n, MaxPayload, fabric.ErrInvalid)
	case !d.VPID.Valid():
		return fmt.Errorf("velo: VPID %d: %w", d.VPID, fabric.ErrInvalid)
	case d.Type > MaxType:
		return fmt.Errorf("velo: message type %d: %w", d.Type, fabric.ErrInvalid)
	case !d.Class.Valid():
		return fmt.Errorf("velo: class %d: %w", d.Class, fabric.ErrInvalid)
	case d.Multicast && !d.Group.Valid():
		return fmt.Errorf("velo: group %d: %w", d.Group, fabric.ErrInvalid)
	}
	return nil
}

// AppendBinary appends the encoding of d for a payload of n bytes to b, as a
// little-endian quad word.
func (d Descriptor) AppendBinary(b []byte, n int) ([]byte, error) {
	if err := d.checkSend(n); err != nil {
		return b, err
	}
	w := uint64(d.VPID)<<descVPIDShift | uint64(d.Type)<<descTypeShift |
		uint64(d.Tag)<<descTagShift | uint64(n)<<descLengthShift |
		uint64(d.Class&lowerMask)<<descClassShift | uint64(d.Class>>lowerBits)<<descUpperShift
	if d.Quiet {
		w |= descQuietBit
	}
	if d.Multicast {
		w |= uint64(d.Group) | descMCBit
	} else {
		w |= uint64(d.Dst)
	}
	return binary.LittleEndian.AppendUint64(b, w), nil
}

// UnmarshalBinary decodes the first DescriptorSize bytes of b and returns the
// length of the payload. Reserved bits are ignored. It leaves d unchanged on
// error.
func (d *Descriptor) UnmarshalBinary(b []byte) (n int, err error) {
	if len(b) < DescriptorSize {
		return 0, fmt.Errorf("velo: descriptor of %d bytes: %w", len(b), io.ErrUnexpectedEOF)
	}
	w := binary.LittleEndian.Uint64(b)
	v := Descriptor{
		VPID:  fabric.VPID(w >> descVPIDShift & vpidMask),
		Tag:   uint8(w >> descTagShift),
		Type:  uint8(w >> descTypeShift & MaxType),
		Quiet: w&descQuietBit != 0,
		Class: fabric.Class(w>>descClassShift&lowerMask | w>>descUpperShift&upperMask<<lowerBits),
	}
	if node := uint16(w); w&descMCBit != 0 {
		if node >= fabric.Groups {
			return 0, fmt.Errorf("velo: group %d: %w", node, fabric.ErrInvalid)
		}
		v.Multicast, v.Group = true, fabric.GroupID(node)
	} else {
		v.Dst = fabric.NodeID(node)
	}
	n = int(w >> descLengthShift & lengthMask)
	if err := v.checkSend(n); err != nil {
		return 0, err
	}
	*d = v
	return n, nil
}

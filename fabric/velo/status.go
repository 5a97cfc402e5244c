package velo

import (
	"encoding/binary"
	"fmt"
	"io"

	"exnet/fabric"
)

// Status is the status word that the NIC writes to the beginning of a slot:
//
//	 31 30  29      26 25          16 15                            0
//	┌──┬───┬──────────┬──────────────┬───────────────────────────────┐
//	│MC│res│ MTT    4 │ src VPID  10 │ source node                16 │ bits 0..31
//	├──┼───┴──────────┴──────┬───────┴──────────┬────────────────────┤
//	│ P│ flow             16 │ length         7 │ user tag         8 │ bits 32..63
//	└──┴─────────────────────┴──────────────────┴────────────────────┘
//	 31 30                 15 14               8 7                  0
//
// The thesis gives the size (8 bytes) and place; the layout is exnet's. P is the
// phase bit of the ring, not part of the Status. Flow is the number that the target's
// NIC assigned to this pair of mailboxes, for the return of credits.
type Status struct {
	Src       fabric.NodeID // node that sent the message
	SrcVPID   fabric.VPID   // its mailbox: send an answer there
	Flow      uint16        // for the NIC's use
	Len       uint8         // bytes of payload
	Tag       uint8         // user tag
	Type      uint8         // message type tag
	Multicast bool          // sent to a group
}

// Positions of the fields of a status word.
const (
	statusVPIDShift = 16
	statusTypeShift = 26
	statusMCBit     = 1 << 31
	statusTagShift  = 32
	statusLenShift  = 40
	statusFlowShift = 47
	phaseBit        = 1 << 63

	statusLenMask = 1<<7 - 1
)

func (s Status) word() uint64 {
	w := uint64(s.Src) | uint64(s.SrcVPID)<<statusVPIDShift | uint64(s.Type)<<statusTypeShift |
		uint64(s.Tag)<<statusTagShift | uint64(s.Len)<<statusLenShift | uint64(s.Flow)<<statusFlowShift
	if s.Multicast {
		w |= statusMCBit
	}
	return w
}

func statusOf(w uint64) Status {
	return Status{
		Src:       fabric.NodeID(w),
		SrcVPID:   fabric.VPID(w >> statusVPIDShift & vpidMask),
		Flow:      uint16(w >> statusFlowShift),
		Len:       uint8(w >> statusLenShift & statusLenMask),
		Tag:       uint8(w >> statusTagShift),
		Type:      uint8(w >> statusTypeShift & MaxType),
		Multicast: w&statusMCBit != 0,
	}
}

// WordLen returns the length in a status word: 0 if the slot was abandoned. For links,
// which carry status words and may count them.
func WordLen(w uint64) int { return int(w >> statusLenShift & statusLenMask) }

// WordFrom returns a status word with the source and the flow number that a link
// vouches for, in place of those that the peer wrote.
func WordFrom(w uint64, src fabric.NodeID, flow uint16) uint64 {
	return w&^(1<<16-1|(1<<16-1)<<statusFlowShift|phaseBit) | uint64(src) | uint64(flow)<<statusFlowShift
}

// WordMulticast reports whether a status word belongs to a message to a group.
func WordMulticast(w uint64) bool { return w&statusMCBit != 0 }

// isValid reports whether s could be the status of a message. It does not check that
// the flow belongs to the source.
func (s Status) isValid() bool {
	return s.Len >= 1 && s.Len <= MaxPayload && s.SrcVPID.Valid()
}

// AppendBinary appends the encoding of s, phase bit 0, to b as a little-endian
// quad word.
func (s Status) AppendBinary(b []byte) ([]byte, error) {
	if !s.isValid() || s.Type > MaxType {
		return b, fmt.Errorf("velo: status %+v: %w", s, fabric.ErrInvalid)
	}
	return binary.LittleEndian.AppendUint64(b, s.word()), nil
}

// UnmarshalBinary decodes the first StatusSize bytes of b. The phase bit and the
// reserved bit are ignored. It leaves s unchanged on error.
func (s *Status) UnmarshalBinary(b []byte) error {
	if len(b) < StatusSize {
		return fmt.Errorf("velo: status of %d bytes: %w", len(b), io.ErrUnexpectedEOF)
	}
	v := statusOf(binary.LittleEndian.Uint64(b))
	if !v.isValid() {
		return fmt.Errorf("velo: status %+v: %w", v, fabric.ErrInvalid)
	}
	*s = v
	return nil
}

package exteth

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"exnet/fabric"
	"exnet/fabric/atu"
)

// Message types of EXT-Eth, in the message type tag (MTT) of a VELO message.
const (
	// TypeEager carries 120 bytes of a frame; more follow.
	TypeEager uint8 = 1
	// TypeEagerLast carries the last bytes of a frame, 1 to 120.
	TypeEagerLast uint8 = 2
	// TypeAdvert announces a frame that the receiver is to GET.
	TypeAdvert uint8 = 3
)

// User tag of an eager message:
//
//	 7     6     5 .. 0
//	┌─────┬─────┬───────┐
//	│FIRST│CSUM │ index │
//	└─────┴─────┴───────┘
//
// FIRST marks the first message of a frame. CSUM says that the frame's transport
// checksum was not computed; the frame's headers tell where it is. index counts the
// messages of the frame modulo 64, to detect a gap.
const (
	tagFirst     uint8 = 1 << 7
	tagChecksum  uint8 = 1 << 6
	tagIndexMask uint8 = 1<<6 - 1
)

// Offsets of the fields of an Advert (big endian).
const (
	advertNLAOff     = 0                             // uint64
	advertLengthOff  = 8                             // uint32
	advertOffloadOff = 12                            // OffloadLen bytes
	advertClassOff   = advertOffloadOff + OffloadLen // uint8
	// AdvertLen is the length of an encoded Advert: NLA 8 + length 4 +
	// offload 10 + class 1 + reserved 1 (zero when sent, ignored when received).
	AdvertLen = 8 + 4 + OffloadLen + 1 + 1
)

// MaxFrame is the most that an Advert can announce: one RMA transaction, 8 MB
// (thesis section 5.4.3).
const MaxFrame = 8 << 20

// ErrAdvert says that an advert announces a frame of impossible length.
var ErrAdvert = errors.New("exteth: impossible length of an advertised frame")

// Advert is the message that begins a rendezvous (figure 5.9): it describes
// the GET source buffer.
type Advert struct {
	NLA     atu.NLA // where the frame begins in the sender's memory
	Length  uint32  // bytes of frame, Ethernet header included
	Offload Offload
	Class   fabric.Class // traffic class of the frame, which the GET uses
}

// AppendBinary appends the AdvertLen bytes of a to b. Its errors are ErrAdvert and
// fabric.ErrInvalid, wrapped.
func (a Advert) AppendBinary(b []byte) ([]byte, error) {
	if err := a.check(); err != nil {
		return b, err
	}
	b = binary.BigEndian.AppendUint64(b, uint64(a.NLA))
	b = binary.BigEndian.AppendUint32(b, a.Length)
	b = a.Offload.AppendWire(b)
	return append(b, uint8(a.Class), 0), nil
}

// UnmarshalBinary decodes the first AdvertLen bytes of b. On error it leaves a
// unchanged; the error wraps io.ErrUnexpectedEOF if b is too short, or ErrAdvert.
func (a *Advert) UnmarshalBinary(b []byte) error {
	if len(b) < AdvertLen {
		return fmt.Errorf("exteth: advert of %d bytes: %w", len(b), io.ErrUnexpectedEOF)
	}
	v := Advert{
		NLA:    atu.NLA(binary.BigEndian.Uint64(b[advertNLAOff:])),
		Length: binary.BigEndian.Uint32(b[advertLengthOff:]),
	}
	if err := v.Offload.ParseWire(b[advertOffloadOff:]); err != nil {
		return err
	}
	v.Class = fabric.Class(b[advertClassOff]) & (fabric.Classes - 1)
	if err := v.check(); err != nil {
		return err
	}
	*a = v
	return nil
}

// String returns the address and length of the advert, for logs and traces.
func (a Advert) String() string {
	return fmt.Sprintf("advert %v +%d", a.NLA, a.Length)
}

func (a Advert) check() error {
	if a.Length < EthernetHeaderLen || a.Length > MaxFrame {
		return fmt.Errorf("%w: %d bytes, want %d to %d", ErrAdvert, a.Length, EthernetHeaderLen, MaxFrame)
	}
	if !a.Class.Valid() {
		return fmt.Errorf("exteth: advert of class %d: %w", a.Class, fabric.ErrInvalid)
	}
	return nil
}

package relay

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"

	"exnet/directsockets/segment"
	"exnet/fabric/atu"
)

// kind is the type of a VELO message. Those up to kindLast are the tags of a segment's
// messages. The zero kind is invalid. In ControlVPID there is kindNote only.
type kind uint8

const (
	kindBack     = kind(segment.TagRMAAvail) // 4
	kindLast     = kind(segment.TagPromote)  // 7
	kindMark     = kindLast + 1
	kindSelect   = kindLast + 2
	kindOpen     = kindLast + 3
	kindAttached = kindLast + 4
	kindDrop     = kindLast + 5
	kindBye      = kindLast + 6
	kindFence    = kindLast + 7
	kindStage    = kindLast + 8
	kindNote     = kindLast + 8
)

// User tags.
const (
	tagMore   = 0 // of a NOTE
	tagEnd    = 1
	tagGone   = 0 // of a DROP: nobody has the connection any more
	tagRefuse = 1 // the server's program takes no such segment
	tagOrphan = 2 // the client has taken its offer back
	tagComes  = 1 // of an RMA_INFO: its data comes by a PUT of which the completer tells
	tagJoined = 2 // and that of some that follow; the length of the PUT precedes it
	tagJoins  = 1 // of a SELECT: who says it takes those
	tagAnswer = 0 // of a STAGE: an ANSWER
	tagBatch  = 1
	tagTaken  = 2
	tagLend   = 3
	tagRule   = 0 // of an OPEN: a rule sends the connection through the fabric
	tagRDMA   = 1 // its link does
)

// Offsets.
const (
	backConsumedOff = 0 // uint64
	backFreedOff    = 8 // uint64
	backLen         = 16

	markFlagsOff = 0 // uint8
	markByteOff  = 4 // uint32
	markSlotOff  = 8 // uint64
	markLen      = 16

	idLen = 4 // SELECT, DROP, FENCE: uint32

	openIDOff     = 0  // uint32
	openNLAOff    = 4  // uint64
	openSlotsOff  = 12 // uint32
	openRingOff   = 16 // uint32
	openOfferOff  = 20 // uint32
	openNonceOff  = 24 // 16 bytes
	openClientOff = 40 // 16 bytes
	openServerOff = 56 // 16 bytes
	openPortsOff  = 72 // uint16, client's, then server's
	openLen       = 76

	batchPlaceOff = 0 // uint32
	batchOffOff   = 4 // uint32
	batchLenOff   = 8 // uint32
	batchLen      = 12

	lendLen = 8 // uint64

	answerIDOff     = 0 // uint32
	answerNumberOff = 4 // uint32
	answerLen       = 8

	attachedIDOff  = 0 // uint32
	attachedFarOff = 4 // uint32
	attachedNLAOff = 8 // uint64
	attachedLen    = 16
)

// Flags of a MARK.
const (
	markFrozen = 1 << iota
	markRolled
	markStands
	markClosed
	markReset
)

// back is what a program has consumed.
type back struct{ consumed, freed uint64 }

func (b back) append(p []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(p, b.consumed), b.freed)
}

func parseBack(p []byte) (b back, err error) {
	if err := want(p, backLen); err != nil {
		return b, err
	}
	return back{binary.LittleEndian.Uint64(p[backConsumedOff:]), binary.LittleEndian.Uint64(p[backFreedOff:])}, nil
}

func appendMark(p []byte, m segment.Mark) []byte {
	flags := uint8(0)
	for i, set := range [...]bool{m.Frozen, m.Rolled, m.Stands, m.Closed, m.Reset} {
		if set {
			flags |= 1 << i
		}
	}
	p = append(p, flags, 0, 0, 0)
	p = binary.LittleEndian.AppendUint32(p, m.Off)
	return binary.LittleEndian.AppendUint64(p, m.Slot)
}

func parseMark(p []byte) (m segment.Mark, err error) {
	if err := want(p, markLen); err != nil {
		return m, err
	}
	f := p[markFlagsOff]
	return segment.Mark{
		Frozen: f&markFrozen != 0, Rolled: f&markRolled != 0, Stands: f&markStands != 0,
		Closed: f&markClosed != 0, Reset: f&markReset != 0,
		Off: binary.LittleEndian.Uint32(p[markByteOff:]), Slot: binary.LittleEndian.Uint64(p[markSlotOff:]),
	}, nil
}

func parseID(p []byte) (uint32, error) {
	if err := want(p, idLen); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(p), nil
}

// parseAnswer parses the answer to a FENCE: whose, and its number.
func parseAnswer(p []byte) (id, number uint32, err error) {
	if err := want(p, answerLen); err != nil {
		return 0, 0, err
	}
	return binary.LittleEndian.Uint32(p[answerIDOff:]), binary.LittleEndian.Uint32(p[answerNumberOff:]), nil
}

// batch says that messages were put into a place.
type batch struct{ place, off, n uint32 }

func (b batch) append(p []byte) []byte {
	return appendID(appendID(appendID(p, b.place), b.off), b.n)
}

func parseBatch(p []byte) (b batch, err error) {
	if err := want(p, batchLen); err != nil {
		return b, err
	}
	return batch{binary.LittleEndian.Uint32(p[batchPlaceOff:]), binary.LittleEndian.Uint32(p[batchOffOff:]), binary.LittleEndian.Uint32(p[batchLenOff:])}, nil
}

func appendNLA(p []byte, a atu.NLA) []byte { return binary.LittleEndian.AppendUint64(p, uint64(a)) }

// parseNLA parses where a node takes batches.
func parseNLA(p []byte) (atu.NLA, error) {
	if err := want(p, lendLen); err != nil {
		return 0, err
	}
	return atu.NLA(binary.LittleEndian.Uint64(p)), nil
}

// open asks a node to be the other end of a connection.
type open struct {
	id    uint32 // of who asks
	nla   atu.NLA
	size  segment.Config
	offer uint32
	info  segment.Info
}

func (o *open) append(p []byte) []byte {
	p = binary.LittleEndian.AppendUint32(p, o.id)
	p = binary.LittleEndian.AppendUint64(p, uint64(o.nla))
	p = binary.LittleEndian.AppendUint32(p, uint32(o.size.Slots))
	p = binary.LittleEndian.AppendUint32(p, uint32(o.size.Ring))
	p = binary.LittleEndian.AppendUint32(p, o.offer)
	p = append(p, o.info.Nonce[:]...)
	client, server := o.info.Client.Addr().As16(), o.info.Server.Addr().As16()
	p = append(append(p, client[:]...), server[:]...)
	p = binary.LittleEndian.AppendUint16(p, o.info.Client.Port())
	return binary.LittleEndian.AppendUint16(p, o.info.Server.Port())
}

func parseOpen(p []byte) (o open, err error) {
	if err := want(p, openLen); err != nil {
		return o, err
	}
	end := func(off, i int) netip.AddrPort {
		addr := netip.AddrFrom16([16]byte(p[off:])).Unmap()
		return netip.AddrPortFrom(addr, binary.LittleEndian.Uint16(p[openPortsOff+2*i:]))
	}
	return open{
		id:    binary.LittleEndian.Uint32(p[openIDOff:]),
		nla:   atu.NLA(binary.LittleEndian.Uint64(p[openNLAOff:])),
		size:  segment.Config{Slots: int(binary.LittleEndian.Uint32(p[openSlotsOff:])), Ring: int(binary.LittleEndian.Uint32(p[openRingOff:]))},
		offer: binary.LittleEndian.Uint32(p[openOfferOff:]),
		info:  segment.Info{Nonce: [16]byte(p[openNonceOff:]), Client: end(openClientOff, 0), Server: end(openServerOff, 1)},
	}, nil
}

// attached says that the server's program has the segment.
type attached struct {
	id, far uint32
	nla     atu.NLA
}

func (a attached) append(p []byte) []byte {
	p = binary.LittleEndian.AppendUint32(p, a.id)
	p = binary.LittleEndian.AppendUint32(p, a.far)
	return binary.LittleEndian.AppendUint64(p, uint64(a.nla))
}

func parseAttached(p []byte) (a attached, err error) {
	if err := want(p, attachedLen); err != nil {
		return a, err
	}
	return attached{
		id: binary.LittleEndian.Uint32(p[attachedIDOff:]), far: binary.LittleEndian.Uint32(p[attachedFarOff:]),
		nla: atu.NLA(binary.LittleEndian.Uint64(p[attachedNLAOff:])),
	}, nil
}

// want checks the length of a payload.
func want(p []byte, n int) error {
	if len(p) < n {
		return fmt.Errorf("%w: %d bytes instead of %d: %w", errPeer, len(p), n, io.ErrUnexpectedEOF)
	}
	if len(p) > n {
		return fmt.Errorf("%w: %d bytes instead of %d", errPeer, len(p), n)
	}
	return nil
}

// joinedLen is how long an RMA_INFO with tagJoined is, at most.
const joinedLen = idLen + segment.MaxVELO

// unjoin returns an RMA_INFO as the segment has it, and of how many bytes the PUT is that it
// waits for, if that is said.
func unjoin(tag uint8, p []byte) (info []byte, n int) {
	if tag != tagJoined || len(p) < idLen {
		return p, 0
	}
	return p[idLen:], int(binary.LittleEndian.Uint32(p))
}

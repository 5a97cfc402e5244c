package segment

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"sync/atomic"

	"exnet/foreign"
	"exnet/internal/shm"
)

// Offsets of the fields of the header (SPEC 2.1, little endian).
const (
	headMagicOff   = 0  // 8 bytes
	headVersionOff = 8  // uint32
	headSlotsOff   = 12 // uint32
	headRingOff    = 16 // uint64
	headSizeOff    = 24 // uint64
	headNonceOff   = 32 // 16 bytes
	headAddrOff    = 48 // 16 bytes: address of side 0, then of side 1
	headPortOff    = 80 // uint16: port of side 0, then of side 1
	headDeviceOff  = 84 // uint8

	headLen = 85

	magic = "EXT-DS\x00\x01"

	// Version is the version of the layout. Sides of different versions stay on TCP.
	Version = 1
)

// Where things lie in a segment (SPEC 2).
const (
	ctrlOff   = 512 // control block of side 0, then of side 1
	ctrlLen   = 512
	stampsOff = 1536 // of side 0, then of side 1
	stamps    = 128  // words of each
	queuesOff = 4096
)

// stamped is the longest payload that has its stamp after it in the slot (SPEC 2.4).
const stamped = MaxVELO - 8

// stampAt is where in the payload's part of the slot the stamp lies after n bytes.
func stampAt(n int) int { return (n + 7) &^ 7 }

// Offsets in a control block (SPEC 2.2). Each group has a pair of cache lines.
const (
	consumedOff = 0 // uint64
	freedOff    = 8 // uint64

	attentionOff    = 128 // uint32
	cpuOff          = 132 // uint32
	stateOff        = 136 // uint32
	flagsOff        = 140 // uint32
	fallbackSlotOff = 144 // uint64
	fallbackOffOff  = 152 // uint32
	classOff        = 156 // uint32
	cutOff          = 160 // uint32
	timeoutOff      = 164 // uint32

	sinkSeqOff    = 256 // uint64
	sinkSlotOff   = 264 // uint64
	sinkRegionOff = 272 // uint32
	sinkLenOff    = 276 // uint32
	sinkOffOff    = 280 // uint64

	claimSeqOff = 384 // uint64
)

// The attention word of a control block.
//
//	 31                        8  7   6   5   4   3   2   1   0
//	┌───────────────────────────┬───┬───┬───┬───┬───┬───┬───┬───┐
//	│ number of the arming      │OFF│STA│ROL│RST│CLO│FRO│ATX│ARX│
//	└───────────────────────────┴───┴───┴───┴───┴───┴───┴───┴───┘
const (
	armRX          = 1 << 0
	armTX          = 1 << 1
	fallenBackFlag = 1 << 2
	closedFlag     = 1 << 3
	resetFlag      = 1 << 4
	returnedFlag   = 1 << 5
	standsFlag     = 1 << 6
	offFlag        = 1 << 7
	numberShift    = 8
	flagsMask      = 1<<numberShift - 1 - armRX - armTX

	endFlags = fallenBackFlag | closedFlag | resetFlag | offFlag
)

// State is how far a side has come with a segment.
type State uint32

const (
	StateNone      State = iota
	StateOffered         // side 0, before the hand-over
	StateAttached        // side 1 looks at the segment; side 0, a node's: so does the client on the other host
	StateWithdrawn       // side 0 has taken its offer back; side 1 does not want such a segment
)

func (s State) String() string {
	switch s {
	case StateNone:
		return "none"
	case StateOffered:
		return "offered"
	case StateAttached:
		return "attached"
	case StateWithdrawn:
		return "withdrawn"
	}
	return fmt.Sprintf("state %d", uint32(s))
}

// classBits are those of the word class that count.
const classBits = 1<<6 - 1

// Bits of the word flags.
const (
	flagExpedited = 1 << 0
	flagZCopy     = 1 << 1
	flagRelayed   = 1 << 2 // a node's, in place of a program on another host
	flagFences    = 1 << 3
	flagHardware  = 1 << 4 // RDMA hardware joins the two hosts: the reason for RELAYED
	flagHeeds     = 1 << 6 // looks at cut
	flagLate      = 1 << 7 // a node's that resets since nothing was acknowledged for so long
	flagPauses    = 1 << 8 // understands PAUSE
	flagHolds     = 1 << 9 // a node's that has not told the far program that PAUSE was consumed
)

// The status word of a slot.
//
//	 63        48 47     40 39   32 31                     0
//	┌────────────┬─────────┬───────┬────────────────────────┐
//	│ zero       │ length  │ tag   │ lap: count / slots + 1 │
//	└────────────┴─────────┴───────┴────────────────────────┘
//
// The upper 16 bits are ignored when read.
type word uint64

const (
	tagShift = 32
	lenShift = 40
)

func wordOf(lap uint32, tag Tag, n int) word {
	return word(lap) | word(tag)<<tagShift | word(n)<<lenShift
}

func (w word) lap() uint32 { return uint32(w) }
func (w word) tag() Tag    { return Tag(w >> tagShift) }
func (w word) len() int    { return int(uint8(w >> lenShift)) }

// Tag says what a message is (SPEC 3). The zero Tag is invalid.
type Tag uint8

const (
	TagVELO     Tag = iota + 1 // data; more of the same send follows
	TagVELOLast                // data, the last of a send
	TagRMAInfo                 // data is in a ring or a region
	TagRMAAvail                // no message on shared memory
	TagShutdown                // end of this direction
	TagDemote                  // the direction continues on the shadow
	TagPromote                 // first message
	TagRegion                  // a region was sent on the doorbell
	TagPause                   // the direction continues on the shadow, and may be promoted again
)

// MaxVELO is how much data a VELO message carries, in bytes.
const MaxVELO = foreign.SlotSize - 8

// Offsets of the fields of an RMA_INFO, in the payload.
const (
	rmaModeOff    = 0  // uint8
	rmaLenOff     = 4  // uint32
	rmaPlaceOff   = 8  // uint64
	rmaAdvanceOff = 16 // uint64
	rmaRegionOff  = 24 // uint32
	rmaLen        = 28

	promoteLen = 8

	regionNumberOff = 0 // uint32
	regionSizeOff   = 8 // uint64
	regionLen       = 16
)

// Modes of an RMA_INFO.
const (
	modePut  = 1 // data in the ring
	modeGet  = 2 // data in a region of the sender
	modeSink = 3 // data in the receiver's sink

	maxRMA = 8 << 20 // bytes that one RMA_INFO announces
)

// control is a control block as its words.
type control struct {
	consumed, freed              *atomic.Uint64
	attention, cpu, state, flags *atomic.Uint32
	fallbackSlot                 *atomic.Uint64
	fallbackOff, class, cut      *atomic.Uint32
	timeout                      *atomic.Uint32
	sinkSeq, sinkSlot            *atomic.Uint64
	sinkRegion, sinkLen          *atomic.Uint32
	sinkOff, claimSeq            *atomic.Uint64
}

func controlOf(mem foreign.Memory, side Side) control {
	base := ctrlOff + int(side)*ctrlLen
	word := func(off int) *atomic.Uint64 { return &mem.Words(base+off, 1)[0] }
	half := func(off int) *atomic.Uint32 { return &mem.Words32(base+off, 1)[0] }
	return control{
		consumed: word(consumedOff), freed: word(freedOff),
		attention: half(attentionOff), cpu: half(cpuOff), state: half(stateOff), flags: half(flagsOff),
		fallbackSlot: word(fallbackSlotOff), fallbackOff: half(fallbackOffOff), class: half(classOff), cut: half(cutOff), timeout: half(timeoutOff),
		sinkSeq: word(sinkSeqOff), sinkSlot: word(sinkSlotOff),
		sinkRegion: half(sinkRegionOff), sinkLen: half(sinkLenOff), sinkOff: word(sinkOffOff),
		claimSeq: word(claimSeqOff),
	}
}

// header is the decoded header of a segment.
type header struct {
	slots, ring, size int
	info              Info
}

// sizeOf is the size of a segment and where its first ring begins.
func sizeOf(slots, ring int) (size, rings int) {
	rings = (queuesOff + 2*slots*foreign.SlotSize + shm.PageSize - 1) &^ (shm.PageSize - 1)
	return rings + 2*ring, rings
}

func (h *header) encode(b *[headLen]byte) {
	copy(b[headMagicOff:], magic)
	binary.LittleEndian.PutUint32(b[headVersionOff:], Version)
	binary.LittleEndian.PutUint32(b[headSlotsOff:], uint32(h.slots))
	binary.LittleEndian.PutUint64(b[headRingOff:], uint64(h.ring))
	binary.LittleEndian.PutUint64(b[headSizeOff:], uint64(h.size))
	copy(b[headNonceOff:], h.info.Nonce[:])
	for i, a := range []netip.AddrPort{h.info.Client, h.info.Server} {
		addr := a.Addr().As16()
		copy(b[headAddrOff+16*i:], addr[:])
		binary.LittleEndian.PutUint16(b[headPortOff+2*i:], a.Port())
	}
	b[headDeviceOff] = h.info.Device()
}

// decode decodes the header of a segment of size bytes. It leaves h unchanged on
// error.
func (h *header) decode(b *[headLen]byte, size int) error {
	if string(b[headMagicOff:headVersionOff]) != magic {
		return fmt.Errorf("%w: not the segment of a direct socket", ErrSegment)
	}
	if v := binary.LittleEndian.Uint32(b[headVersionOff:]); v != Version {
		return fmt.Errorf("%w: version %d, not %d", ErrSegment, v, Version)
	}
	slots, ring := binary.LittleEndian.Uint32(b[headSlotsOff:]), binary.LittleEndian.Uint64(b[headRingOff:])
	if slots > maxSlots || ring > maxRing || (Config{Slots: int(slots), Ring: int(ring)}).check() != nil {
		return fmt.Errorf("%w: %d slots, ring of %d bytes", ErrSegment, slots, ring)
	}
	want, _ := sizeOf(int(slots), int(ring))
	if said := binary.LittleEndian.Uint64(b[headSizeOff:]); said != uint64(size) || want != size {
		return fmt.Errorf("%w: %d bytes, header says %d, its queues and rings %d", ErrSegment, size, said, want)
	}
	var ends [2]netip.AddrPort
	for i := range ends {
		addr := netip.AddrFrom16([16]byte(b[headAddrOff+16*i:])).Unmap()
		ends[i] = netip.AddrPortFrom(addr, binary.LittleEndian.Uint16(b[headPortOff+2*i:]))
	}
	info := Info{Nonce: [16]byte(b[headNonceOff:]), Client: ends[0], Server: ends[1]}
	if got := b[headDeviceOff]; got != info.Device() {
		return fmt.Errorf("%w: virtual device %d of port %d", ErrSegment, got, info.Server.Port())
	}
	*h = header{slots: int(slots), ring: int(ring), size: size, info: info}
	return nil
}

func log2(n int) uint { return uint(bits.TrailingZeros64(uint64(n))) }

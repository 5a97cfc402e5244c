package shm

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"

	"exnet/fabric"
	"exnet/internal/shm"
)

// Offsets in a segment, which one side of a link writes and the other reads.
// Everything is little endian. See the picture in doc.go.
const (
	headOff   = 0    // slots of the peer's ring that were read
	eventsOff = 8    // counts what the peer should look at: credit, space
	spaceOff  = 16   // counts the requests for space in the own ring
	armedOff  = 128  // not 0: number of a ring of the bell that is wanted
	boundOff  = 136  // not 0: 1 + the CPU that the driver's thread is bound to
	askedOff  = 256  // number of the last probe
	echoOff   = 264  // of the peer's that was answered
	takenOff  = 272  // bytes of transfers that were read from the peer's arena
	boxOff    = 4096 // per VPID: credits of the open mailbox, or 0
	ackOff    = 8192 // per flow of the peer: messages consumed
	wantOff   = ackOff + 8*MaxFlows
	loanOff   = wantOff + 8*MaxFlows        // regions lent to the peer
	readOff   = loanOff + loanWords*8*Loans // per loan of the peer: what is being read
	ringOff   = readOff + 8*Loans

	// RingSlots is how many messages fit on the way to a peer.
	RingSlots = 1024

	segmentSize = ringOff + RingSlots*shm.SlotSize // = 4096 + 4096 + 8*4096 + 8*4096 + 4*8*1024 + 8*1024 + 1024*128

	// Loans is how many lent regions a peer can be shown at a time. It asks for the
	// others.
	Loans = 1024

	// MaxFlows is how many pairs of mailboxes may open a flow over a link in its
	// life, in each direction.
	MaxFlows = 4096
)

// Words of a loan.
const (
	loanNLA   = 0 // address of the first byte, or 0; written last
	loanPlace = 1 // offset in the arena
	loanSize  = 2
	loanVPID  = 3
	loanWords = 4
)

// view is a segment as its words.
type view struct {
	head, events, space, armed, bound *atomic.Uint64
	asked, echo, taken                *atomic.Uint64

	box, ack, want, loan, read []atomic.Uint64
}

// viewOf makes a view of a segment, of which words gives n at off.
func viewOf(words func(off, n int) []atomic.Uint64) view {
	word := func(off int) *atomic.Uint64 { return &words(off, 1)[0] }
	return view{
		head: word(headOff), events: word(eventsOff), space: word(spaceOff), armed: word(armedOff), bound: word(boundOff),
		asked: word(askedOff), echo: word(echoOff), taken: word(takenOff),
		box:  words(boxOff, fabric.VPIDs),
		ack:  words(ackOff, MaxFlows),
		want: words(wantOff, MaxFlows),
		loan: words(loanOff, loanWords*Loans),
		read: words(readOff, Loans),
	}
}

// The status word of a slot. That of a VELO message is the word of velo's docs,
// with the kind in place of the source node and the link's flow number in place of
// the mailbox's. Others have the kind only.
//
//	 63 62                47 46    40 39     31      16 15            0
//	┌──┬────────────────────┬────────┬─────────────────┬───────────────┐
//	│ P│ flow            16 │ length │ velo's own      │ kind          │
//	└──┴────────────────────┴────────┴─────────────────┴───────────────┘
const (
	phaseBit  = 1 << 63
	kindMask  = 1<<16 - 1
	flowShift = 47
	flowMask  = 1<<16 - 1
	lenShift  = 40
	lenMask   = 1<<7 - 1
)

// phaseAt is the phase bit of the slot at pos: 1 in the first lap.
func phaseAt(pos uint64) uint64 {
	if pos&RingSlots == 0 {
		return phaseBit
	}
	return 0
}

// kind is what a slot carries. The zero kind is invalid.
type kind uint16

const (
	kindVELO    kind = iota + 1
	kindOpen         // opens a flow
	kindDown         // the mailbox of a flow is closed
	kindGet          // GET request
	kindPut          // PUT request
	kindAnswer       // GET: where the data is; PUT: how it ended
	kindRelease      // GET: the data has been read
	kindRead         // GET of a loan: the data has been read
)

// Offsets of the fields of a message that is not VELO's, in the payload.
const (
	msgIDOff     = 0  // uint16: operation, or flow
	msgFromOff   = 2  // uint16: VPID
	msgToOff     = 4  // uint16: VPID
	msgFlagsOff  = 6  // uint8
	msgStatusOff = 7  // uint8: fabric.Status
	msgLenOff    = 8  // uint32
	msgRemoteOff = 16 // uint64: NLA
	msgPlaceOff  = 24 // uint64: offset in the sender's arena
	msgInlineOff = 32 // data of a small PUT
	msgLen       = shm.SlotSize - 8

	maxInline = 64
)

const (
	flagNotify    = 1 << iota // responder or completer writes a notification
	flagImmediate             // immediate PUT
	flagInline                // the data is in the message
)

// message is what a slot that is not VELO's carries.
type message struct {
	kind     kind
	id       uint16
	from, to fabric.VPID
	flags    uint8
	status   fabric.Status
	n        int
	remote   uint64
	place    uint64
	inline   [maxInline]byte
}

func (m *message) put(b *[msgLen]byte) {
	binary.LittleEndian.PutUint16(b[msgIDOff:], m.id)
	binary.LittleEndian.PutUint16(b[msgFromOff:], uint16(m.from))
	binary.LittleEndian.PutUint16(b[msgToOff:], uint16(m.to))
	b[msgFlagsOff], b[msgStatusOff] = m.flags, uint8(m.status)
	binary.LittleEndian.PutUint32(b[msgLenOff:], uint32(m.n))
	binary.LittleEndian.PutUint64(b[msgRemoteOff:], m.remote)
	binary.LittleEndian.PutUint64(b[msgPlaceOff:], m.place)
	if m.flags&flagInline != 0 {
		copy(b[msgInlineOff:], m.inline[:m.n])
	}
}

// get decodes b, a copy of what the peer wrote.
func (m *message) get(k kind, b *[msgLen]byte) {
	m.kind = k
	m.id = binary.LittleEndian.Uint16(b[msgIDOff:])
	m.from = fabric.VPID(binary.LittleEndian.Uint16(b[msgFromOff:]))
	m.to = fabric.VPID(binary.LittleEndian.Uint16(b[msgToOff:]))
	m.flags, m.status = b[msgFlagsOff], fabric.Status(b[msgStatusOff])
	m.n = int(binary.LittleEndian.Uint32(b[msgLenOff:]))
	m.remote = binary.LittleEndian.Uint64(b[msgRemoteOff:])
	m.place = binary.LittleEndian.Uint64(b[msgPlaceOff:])
	if m.flags&flagInline != 0 {
		copy(m.inline[:], b[msgInlineOff:])
	}
}

// hello is the first message on the socket. The descriptors of segment and arena
// come with it.
type hello struct {
	version  uint32
	node     fabric.NodeID
	features uint16
	segment  uint64 // size
	arena    uint64 // size
}

// Offsets of the fields of a hello (little endian).
const (
	helloMagicOff    = 0
	helloVersionOff  = 8
	helloNodeOff     = 12
	helloFeaturesOff = 14
	helloSegmentOff  = 16
	helloArenaOff    = 24
	helloLen         = 32

	helloMagic = "exnetshm"
	// Version is the version of the link. Sides of different versions do not talk.
	Version = 1
)

// AppendBinary appends the encoding of h to b.
func (h hello) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, helloMagic...)
	b = binary.LittleEndian.AppendUint32(b, h.version)
	b = binary.LittleEndian.AppendUint16(b, uint16(h.node))
	b = binary.LittleEndian.AppendUint16(b, h.features)
	b = binary.LittleEndian.AppendUint64(b, h.segment)
	return binary.LittleEndian.AppendUint64(b, h.arena), nil
}

// UnmarshalBinary decodes the first helloLen bytes of b. Features are ignored:
// there are none yet. It leaves h unchanged on error.
func (h *hello) UnmarshalBinary(b []byte) error {
	if len(b) < helloLen {
		return fmt.Errorf("%w: hello of %d bytes: %w", ErrHello, len(b), io.ErrUnexpectedEOF)
	}
	if string(b[:helloVersionOff]) != helloMagic {
		return fmt.Errorf("%w: the other end is not an exnet node", ErrHello)
	}
	*h = hello{
		version:  binary.LittleEndian.Uint32(b[helloVersionOff:]),
		node:     fabric.NodeID(binary.LittleEndian.Uint16(b[helloNodeOff:])),
		features: binary.LittleEndian.Uint16(b[helloFeaturesOff:]),
		segment:  binary.LittleEndian.Uint64(b[helloSegmentOff:]),
		arena:    binary.LittleEndian.Uint64(b[helloArenaOff:]),
	}
	return nil
}

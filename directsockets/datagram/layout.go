package datagram

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"exnet/directsockets/broker/wire"
	"exnet/foreign"
	"exnet/internal/shm"
)

// Offsets of the header (SPEC 10.1).
const (
	magic   = "EXT-DG\x00\x01"
	version = 1

	headVersionOff = 8  // uint32
	headRingOff    = 16 // uint64
	headSizeOff    = 24 // uint64
	headNonceOff   = 32 // 16 bytes
	headEndsOff    = 48
	headLen        = headEndsOff + wire.EndsLen

	txOff   = 512
	rxOff   = 1024
	ringOff = 4096
)

// Offsets in the control blocks.
const (
	byKernelOff = 0  // S: uint64
	droppedOff  = 8  // S: uint64
	busyOff     = 64 // S: uint32
	txFlagsOff  = 68 // S: uint32, the upper half of the word at busyOff

	consumedOff = 0  // D: uint64
	armedOff    = 64 // D: uint32
	rxFlagsOff  = 68 // D: uint32
	takenOff    = 72 // D: uint64
	dryOff      = 80 // D: uint64
	boundOff    = 88 // D: uint32
	stateOff    = 92 // D: uint32
)

// Flags of the two sides.
const (
	flagLeft   = 1 // S
	flagAfter  = 2 // D
	flagClosed = 4 // D
	flagFinal  = 8 // D: consumed says all that it takes
)

// Values of armed but 0.
const (
	armedAll  = 1 // all by the kernel
	armedBell = 2 // one by the kernel, which wakes the receiver; the others through the segment
)

// States of D.
const (
	stateAttached  = 2
	stateWithdrawn = 3
)

// The first word of a record (SPEC 10.2).
//
//	 63      56 55      48 47         32 31    24 23   17 16           0
//	┌──────────┬──────────┬─────────────┬────────┬───────┬──────────────┐
//	│ TTL      │ TOS      │ 0           │ tag    │ AFTER │ length       │
//	└──────────┴──────────┴─────────────┴────────┴───────┴──────────────┘
const (
	lengthMask = 1<<17 - 1
	afterBit   = 1 << 17
	zeroMask   = 0x7f << 17 &^ afterBit
	tagShift   = 24
	tosShift   = 48
	ttlShift   = 56

	tagDatagram = 1
	tagWrap     = 2
	align       = 64
	recordHead  = 16
	afterLen    = 8 // bytes of AFTER, before the payload
	// MaxLen is the longest datagram.
	MaxLen = 65507
	// perRecord is what a datagram counts to the bound beside its record.
	perRecord = 640
)

// Sizes of a ring.
const (
	minRing, maxRing = 128 << 10, 4 << 20
	// DefaultRing is that of Create.
	DefaultRing = 512 << 10
)

// ErrSegment says that a descriptor is no segment of a flow. Let the kernel carry its datagrams.
var ErrSegment = errors.New("datagram: not the segment of a flow")

// Info identifies a flow.
type Info struct {
	Nonce [16]byte
	// From and To are the addresses of S, and of D as S addresses it.
	From, To netip.AddrPort
}

// NewNonce returns a nonce for a new flow.
func NewNonce() (n [16]byte) {
	rand.Read(n[:])
	return n
}

// Segment is the memory of a flow.
type Segment struct {
	*shm.Foreign
	info Info
	ring int
}

// Create makes the segment of a flow, as its sender does. ring 0: DefaultRing.
func Create(info Info, ring int) (*Segment, error) {
	if ring == 0 {
		ring = DefaultRing
	}
	if ring < minRing || ring > maxRing || ring&(ring-1) != 0 {
		return nil, fmt.Errorf("%w: ring of %d bytes: take a power of two, %d..%d", ErrSegment, ring, minRing, maxRing)
	}
	mem, err := shm.CreateShared("exnet-dg", ringOff+ring)
	if err != nil {
		return nil, err
	}
	var head [headLen]byte
	copy(head[:], magic)
	binary.LittleEndian.PutUint32(head[headVersionOff:], version)
	binary.LittleEndian.PutUint64(head[headRingOff:], uint64(ring))
	binary.LittleEndian.PutUint64(head[headSizeOff:], uint64(ringOff+ring))
	copy(head[headNonceOff:], info.Nonce[:])
	wire.AppendEnds(head[:headEndsOff], info.From, info.To)
	mem.Memory().Fill(head[:])
	s := &Segment{mem, info, ring}
	s.halfAt(rxOff + armedOff).Store(1)
	s.wordAt(txOff + byKernelOff).Store(1)
	return s, nil
}

// Map maps the segment that a descriptor names, which it borrows. The caller compares Info with
// what it knows of the flow.
func Map(fd int) (*Segment, error) {
	mem, err := shm.MapShared(fd, ringOff+minRing, ringOff+maxRing, shm.SharedSeals, true)
	if errors.Is(err, shm.ErrSegment) {
		return nil, fmt.Errorf("%w: %v", ErrSegment, err)
	}
	if err != nil {
		return nil, err
	}
	var head [headLen]byte
	mem.Memory().CopyTo(head[:]) // the one time that it is read
	s := &Segment{Foreign: mem}
	if err := s.checkHead(&head); err != nil {
		mem.Retire()
		return nil, err
	}
	return s, nil
}

func (s *Segment) checkHead(head *[headLen]byte) error {
	if string(head[:len(magic)]) != magic || binary.LittleEndian.Uint32(head[headVersionOff:]) != version {
		return fmt.Errorf("%w: another magic or version", ErrSegment)
	}
	ring, size := binary.LittleEndian.Uint64(head[headRingOff:]), binary.LittleEndian.Uint64(head[headSizeOff:])
	if ring < minRing || ring > maxRing || ring&(ring-1) != 0 || size != uint64(s.Len()) || size != ringOff+ring {
		return fmt.Errorf("%w: %d bytes, the header says %d with a ring of %d", ErrSegment, s.Len(), size, ring)
	}
	s.ring = int(ring)
	s.info.Nonce = [16]byte(head[headNonceOff:])
	s.info.From, s.info.To = wire.ParseEnds(head[headEndsOff:])
	return nil
}

// Info says whose segment it is.
func (s *Segment) Info() Info { return s.info }

func (s *Segment) wordAt(off int) *atomic.Uint64 { return &s.Memory().Words(off, 1)[0] }
func (s *Segment) halfAt(off int) *atomic.Uint32 { return &s.Memory().Words32(off, 1)[0] }

// ringWords are the words of the ring, ringMemory its bytes.
func (s *Segment) ringWords() []atomic.Uint64 { return s.Memory().Words(ringOff, s.ring/8) }
func (s *Segment) ringMemory() foreign.Memory { return s.Memory().Part(ringOff, s.ring) }

// takenBy is how much a record takes, by its first word.
func takenBy(w uint64) uint64 {
	n := int(w & lengthMask)
	if w&afterBit != 0 {
		n += afterLen
	}
	return uint64((recordHead + n + align - 1) &^ (align - 1))
}

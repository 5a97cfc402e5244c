package segment

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"exnet/foreign"
	"exnet/internal/shm"
)

// ErrSegment says that a descriptor is no segment that can be used: not sealed, of
// a wrong size, or with an impossible header. Stay on the shadow.
var ErrSegment = fmt.Errorf("segment: refused: %w", shm.ErrSegment)

// Side is one of the two ends of a connection.
type Side uint8

const (
	Client Side = 0 // called connect
	Server Side = 1 // accepted
)

// Info identifies the connection of a segment.
type Info struct {
	Nonce          [16]byte // random, of this incarnation of the connection
	Client, Server netip.AddrPort
}

// NewNonce returns a nonce for a new connection.
func NewNonce() (n [16]byte) {
	if _, err := unix.Getrandom(n[:], 0); err != nil { // crypto/rand is a tenth of exn-run
		panic(err) // it has no errors (getrandom(2))
	}
	return n
}

// Device is the virtual device that serves the connection (thesis, equation 5.3).
func (i Info) Device() uint8 { return uint8(i.Server.Port() & 0xf) }

// Config has the sizes of a segment. The zero value has the defaults.
type Config struct {
	Slots int // of a VELO queue: a power of two, 16..4096; default 128
	Ring  int // bytes of an RMA ring: a multiple of 4096, 64 KiB..1 GiB; default 2 MiB
}

const (
	defaultSlots, minSlots, maxSlots = 128, 16, 4096
	defaultRing, minRing, maxRing    = 2 << 20, 64 << 10, 1 << 30
	strictRing                       = 1 << 20 // the default where a segment takes all its memory at once
)

// ErrConfig says that a Config has a value out of range.
var ErrConfig = errors.New("segment: configuration out of range")

func (c Config) withDefaults() (Config, error) {
	if c.Slots == 0 {
		c.Slots = defaultSlots
	}
	if c.Ring == 0 {
		c.Ring = defaultRing
		if shm.Strict() {
			c.Ring = strictRing
		}
	}
	return c, c.check()
}

// Check returns ErrConfig if a value is out of range.
func (c Config) Check() error {
	_, err := c.withDefaults()
	return err
}

func (c Config) check() error {
	if c.Slots < minSlots || c.Slots > maxSlots || c.Slots&(c.Slots-1) != 0 {
		return fmt.Errorf("%w: %d slots: take a power of two, %d..%d", ErrConfig, c.Slots, minSlots, maxSlots)
	}
	if c.Ring < minRing || c.Ring > maxRing || c.Ring%shm.PageSize != 0 {
		return fmt.Errorf("%w: ring of %d bytes: take a multiple of %d, %d..%d", ErrConfig, c.Ring, shm.PageSize, minRing, maxRing)
	}
	return nil
}

// Segment is the memory of one connection.
//
// Concurrency: all methods may be called from many goroutines.
type Segment struct {
	*shm.Foreign
	head  header // private: the peer cannot change it
	rings int
}

// Create makes the segment of a connection, as its client does, in StateOffered.
func Create(info Info, config Config) (*Segment, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if !info.Client.IsValid() || !info.Server.IsValid() {
		return nil, fmt.Errorf("%w: connection without addresses", ErrConfig)
	}
	size, rings := sizeOf(config.Slots, config.Ring)
	mem, err := shm.CreateShared("exnet-ds", size)
	if err != nil {
		return nil, err
	}
	s := &Segment{Foreign: mem, head: header{slots: config.Slots, ring: config.Ring, size: size, info: info}, rings: rings}
	var head [headLen]byte
	s.head.encode(&head)
	mem.Memory().Fill(head[:])
	controlOf(mem.Memory(), Client).state.Store(uint32(StateOffered))
	return s, nil
}

// Map maps the segment that a peer's descriptor names. It borrows fd. ErrSegment: it cannot be
// trusted. The caller compares Info with what it knows of its connection.
func Map(fd int) (*Segment, error) {
	least, _ := sizeOf(minSlots, minRing)
	most, _ := sizeOf(maxSlots, maxRing)
	mem, err := shm.MapShared(fd, least, most, shm.SharedSeals, true)
	if errors.Is(err, shm.ErrSegment) {
		return nil, fmt.Errorf("%w: %v", ErrSegment, err)
	}
	if err != nil {
		return nil, err
	}
	s := &Segment{Foreign: mem}
	var head [headLen]byte
	mem.Memory().CopyTo(head[:]) // the one time that it is read
	if err := s.head.decode(&head, mem.Len()); err != nil {
		mem.Retire()
		return nil, err
	}
	_, s.rings = sizeOf(s.head.slots, s.head.ring)
	return s, nil
}

// Info says whose segment it is.
func (s *Segment) Info() Info { return s.head.info }

// Size is the size of the segment in bytes; most of it is never touched.
func (s *Segment) Size() int { return s.head.size }

// Config has the sizes of the segment's queues and rings.
func (s *Segment) Config() Config { return Config{Slots: s.head.slots, Ring: s.head.ring} }

// veloQueue is the VELO queue that side writes.
func (s *Segment) veloQueue(side Side) []foreign.Slot {
	return s.Memory().Slots(queuesOff+int(side)*s.head.slots*foreign.SlotSize, s.head.slots)
}

// giveBack gives back the n pages from page on of the queue that side writes. False: they
// stay.
func (s *Segment) giveBack(side Side, page, n int) bool {
	return s.Discard(queuesOff+int(side)*s.head.slots*foreign.SlotSize+page*shm.PageSize, n*shm.PageSize)
}

// sendStamps are the times at which side has sent its last messages (SPEC 2.4).
func (s *Segment) sendStamps(side Side) []atomic.Uint64 {
	return s.Memory().Words(stampsOff+int(side)*stamps*8, stamps)
}

// rmaRing is the RMA ring that side writes.
func (s *Segment) rmaRing(side Side) foreign.Memory {
	return s.Memory().Part(s.rings+int(side)*s.head.ring, s.head.ring)
}

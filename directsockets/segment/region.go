package segment

import (
	"encoding/binary"
	"errors"
	"fmt"

	"exnet/foreign"
	"exnet/internal/shm"

	"golang.org/x/sys/unix"
)

const (
	maxRegions = 255
	maxRegion  = 1 << 30 // bytes
	maxPassed  = 16      // descriptors that wait for their REGION
)

var (
	// ErrNoZCopy says that the peer does not do zero copy: use Send and Recv.
	ErrNoZCopy = errors.New("segment: peer does not support zero copy")
	// ErrRegions says that the connection has had as many regions as it may.
	ErrRegions = errors.New("segment: too many regions")
)

// Region is registered memory, from and to which bytes go without a copy in
// between. It may be used with many Ends, whose peers can read and write all of it
// from then on, at any time.
type Region struct{ mem *shm.Foreign }

// NewRegion makes a region of at least size bytes, 1 GiB at most.
func NewRegion(size int) (*Region, error) {
	if size < 1 || size > maxRegion {
		return nil, fmt.Errorf("%w: region of %d bytes", ErrConfig, size)
	}
	mem, err := shm.CreateShared("exnet-ds-region", (size+shm.PageSize-1)&^(shm.PageSize-1))
	if err != nil {
		return nil, err
	}
	return &Region{mem: mem}, nil
}

// Bytes lends the memory until Close, for the program; what is in it may change under
// its hands.
func (r *Region) Bytes() []byte { return r.mem.Exposed() }

// foreignMemory is the same for the package.
func (r *Region) foreignMemory() foreign.Memory { return r.mem.Memory() }

// Offset is where b begins in the region; false unless all of b is in it.
func (r *Region) Offset(b []byte) (int, bool) { return r.mem.Offset(b) }

// Close gives the memory back; what is left at the addresses are zeros.
func (r *Region) Close() { r.mem.Retire() }

// outRegions are the regions that this side has sent.
type outRegions struct {
	numbers map[*Region]uint32
	list    []*Region // by number - 1
}

// ZCopy reports whether the peer does zero copy.
func (e *End) ZCopy() bool { return e.Attached() && e.peer.flags.Load()&flagZCopy != 0 }

// Share sends r to the peer, unless it was sent before, and returns its number.
// ErrAgain: no slot is free. It belongs to TX.
func (e *End) Share(r *Region) (uint32, error) {
	if err := e.dataError(); err != nil {
		return 0, err
	}
	o := &e.tx.regions
	if n := o.numbers[r]; n != 0 {
		return n, nil
	}
	if !e.ZCopy() {
		return 0, ErrNoZCopy
	}
	if len(o.list) == maxRegions {
		return 0, ErrRegions
	}
	s, err := e.nextSlot()
	if err != nil {
		return 0, err
	}
	if err := e.passDescriptor(r.mem.Fd()); err != nil {
		return 0, err
	}
	o.list = append(o.list, r)
	n := uint32(len(o.list))
	if o.numbers == nil {
		o.numbers = make(map[*Region]uint32)
	}
	o.numbers[r] = n
	p := s.Payload()
	p.PutUint32(regionNumberOff, n)
	p.PutUint32(regionNumberOff+4, 0)
	p.PutUint64(regionSizeOff, uint64(r.mem.Len()))
	e.publish(s, TagRegion, regionLen)
	e.wakeReader()
	return n, nil
}

// passDescriptor hands a descriptor to the peer over the doorbell.
func (e *End) passDescriptor(fd int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if fd < 0 || e.bell < 0 || e.bad.Load() {
		return ErrClosed
	}
	if !shm.RingWith(e.bell, fd) {
		return ErrAgain
	}
	return nil
}

// SendRegion sends n bytes of r, 8 MiB at most, from off on, without a copy. They
// must not change until Taken(ticket). ErrAgain: no slot is free. It belongs to TX.
func (e *End) SendRegion(r *Region, off, n int) (ticket uint64, err error) {
	if n < 1 || n > maxRMA || off < 0 || n > r.mem.Len()-off {
		return 0, fmt.Errorf("%w: %d bytes at %d of a region of %d", ErrConfig, n, off, r.mem.Len())
	}
	number, err := e.Share(r)
	if err != nil {
		return 0, err
	}
	s, err := e.nextSlot()
	if err != nil {
		return 0, err
	}
	ticket = e.tx.sent
	e.putInfo(s, rmaInfo{mode: modeGet, region: number, size: uint64(n), place: uint64(off)})
	e.count.Add(SentDirect, uint64(n))
	e.count.Add(ZCopySent, uint64(n))
	e.wakeReader()
	return ticket, nil
}

// Taken reports whether the peer has taken what SendRegion returned ticket for. An
// error says that it will not: after ErrFellBack, ReturnToTCP sends it. It belongs to TX.
func (e *End) Taken(ticket uint64) (bool, error) {
	if e.bad.Load() {
		return false, ErrCorrupt
	}
	if e.tx.consumed > ticket {
		return true, nil
	}
	err := e.interruptError() // read before the peer's count
	if !e.readCredit() {
		return false, e.endOnBreach()
	}
	if e.tx.consumed > ticket {
		return true, nil
	}
	return false, err
}

// ArmTaken is ArmTX for Taken.
func (e *End) ArmTaken(ticket uint64) (ready bool) {
	e.armFlag(armTX)
	if ok, err := e.Taken(ticket); !ok && err == nil {
		return false
	}
	e.disarm(armTX)
	return true
}

// mapRegion maps a region of the peer's, of which its REGION speaks. False: it cannot
// be.
func (e *End) mapRegion(p foreign.Memory) bool {
	var b [regionLen]byte
	p.CopyTo(b[:])
	number, size := binary.LittleEndian.Uint32(b[regionNumberOff:]), binary.LittleEndian.Uint64(b[regionSizeOff:])
	if number < 1 || number > maxRegions || size < 1 || size > maxRegion || e.inboundRegion(number).Len() != 0 {
		return false
	}
	fd := e.passedDescriptor()
	if fd < 0 {
		return false
	}
	defer unix.Close(fd)
	mem, err := shm.MapShared(fd, int(size), int(size), shm.FixedSeals, true)
	if err != nil {
		return false
	}
	list := e.regions.Load()
	if list == nil {
		list = new(inRegions)
		e.regions.Store(list)
	}
	list[number-1].Store(mem)
	return true
}

// passedDescriptor is the first descriptor that came over the doorbell; -1 if none did.
func (e *End) passedDescriptor() int {
	e.drainBell()
	if e.heard != nil {
		e.heard()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.fds) == 0 {
		return -1
	}
	fd := e.fds[0]
	e.fds = e.fds[1:]
	return fd
}

// inboundRegion is the memory of a region of the peer's; empty if there is none.
func (e *End) inboundRegion(number uint32) foreign.Memory {
	list := e.regions.Load()
	if list == nil || number < 1 || number > maxRegions {
		return foreign.Memory{}
	}
	if mem := list[number-1].Load(); mem != nil {
		return mem.Memory()
	}
	return foreign.Memory{}
}

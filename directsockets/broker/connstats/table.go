package connstats

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/wire"
	"exnet/directsockets/segment"
	"exnet/internal/shm"
	"exnet/node/rpc"
)

// Layout of the statistics (SPEC.md, 6.3).
const (
	statsMagic      = "EXTDSST\x01"
	statsVersionOff = 8  // uint32
	statsEntriesOff = 12 // uint32
	statsPIDOff     = 16 // uint32
	statsHeaderLen  = 256

	entryLen       = 256
	entrySeqOff    = 0  // uint32
	entryModeOff   = 4  // uint8
	entrySideOff   = 5  // uint8
	entryReasonOff = 6  // uint8
	entryDeviceOff = 7  // uint8
	entryFDOff     = 8  // uint32
	entryPathOff   = 12 // uint8
	entrySummedOff = 13 // uint8
	entryUDPOff    = 14 // uint8
	entryHeedsOff  = 15 // uint8
	entryEndsOff   = 16
	entrySwitchOff = 48 + segment.SwitchByte // uint8, the broker's
	entryDrawOff   = 53                      // 24 bits
	entryTimeOff   = 56                      // uint64, Unix ns
	entryCountOff  = 64

	// MaxEntries is how many connections a table may have.
	MaxEntries = 65536
	// defaultEntries takes 1 MB of addresses, and memory as it is used.
	defaultEntries = 4096
)

// sinceUnit is one of the upper half of the ring's size: how long after its set-up a connection has
// become direct, and 1.
const sinceUnit = 10 * time.Millisecond

// NumCounters is how many counters a connection has.
const NumCounters = 24

// Counters are those of a connection, in the order of Counter. Each has one writer.
type Counters = [NumCounters]atomic.Uint64

// Mode is how a connection carries its bytes.
type Mode uint8

// The modes. The zero Mode is invalid.
const (
	ModeTCP     Mode = iota + 1 // on the shadow
	ModeDirect                  // in the segment
	ModeDemoted                 // on the shadow again
	ModeClosed
	modeSum // no connection: what those that were closed have moved, see Sum
)

func (m Mode) String() string {
	switch m {
	case ModeTCP:
		return "shadow"
	case ModeDirect:
		return "direct"
	case ModeDemoted:
		return "demoted"
	case ModeClosed:
		return "closed"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// Path is what carries the bytes of a direct connection, or did before it was demoted.
type Path uint8

// The paths.
const (
	PathNone   Path = iota // it was not direct yet
	PathMemory             // memory that both programs map
	PathFabric             // the fabric, by a rule: the other side of the segment is a node
	PathRDMA               // the fabric, since RDMA hardware joins the two hosts
)

func (p Path) String() string {
	switch p {
	case PathMemory:
		return "shm"
	case PathFabric, PathRDMA:
		return "fabric"
	}
	return ""
}

// Why says why a connection has its mode.
type Why uint8

// The reasons of SPEC.md, 6.3.
const (
	WhyNothing          Why = iota
	WhyNotYet               // too few bytes moved
	WhyNoBroker             //
	WhyNoListener           // no direct listener at the peer
	WhyRule                 // a rule says TCP
	WhyOffered              //
	WhyRefused              //
	WhyNoMemory             // or descriptors
	WhyProgram              // demoted by the program
	WhyPeer                 // demoted by the peer
	WhyBreach               //
	WhyUnsupportedCall      // on the shadow
	WhyAddressNotWanted     // not included
	WhyNoOffer              // the client has not offered, as far as the server knows
	WhyShared               // another process has the connection, too
	WhyBusy                 // a thread waits in a call on the shadow
	WhyExpired              // offered, and not taken in time
	WhyUnreachable          // the peer's node
	WhyStream               // it is a standard stream of the program
	WhyVersion              // the broker is of another version
	WhySilent               // the broker does not answer
	WhyNoRule               // sends it to the server's host through the fabric
	WhyIdle                 // both ends have the segment, and nothing has moved since
	WhyNetwork              // it does not carry the connection any more
	WhyNoPair               // the agent does not know the other end
	WhyNoDiag               // UDP: the process may not ask the kernel about sockets
	WhySwitchedOff          // by an operator
	WhyLast             = WhySwitchedOff
)

func (w Why) String() string {
	texts := [...]string{"", "too few bytes yet", "no broker", "no direct listener", "rule", "offered", "refused", "no memory",
		"program", "peer", "breach", "unsupported call", "address not included", "no offer by the client", "another process has it",
		"a thread waits in a call", "not taken in time", "the peer's node cannot be reached", "a standard stream",
		"the broker is of another version", "the broker does not answer", "no rule for the fabric",
		"ready, nothing moved since", "the network is cut", "the other end is not known",
		"no AF_NETLINK", "switched off"}
	if int(w) < len(texts) {
		return texts[w]
	}
	return fmt.Sprintf("Why(%d)", uint8(w))
}

// Table is a client's table of its connections, which the broker can read.
//
// Concurrency: all methods may be called from many goroutines.
type Table struct {
	seg  *shm.Segment
	n    int
	keep bool // closed connections stay readable

	mu sync.Mutex
	// free: those that were given back.
	free []int32 // +checklocks:mu
	// next: those from here on were never used.
	next int // +checklocks:mu
	// sums: of closed connections, by the other end's address.
	sums map[netip.Addr]*Entry // +checklocks:mu
}

// New makes a table; 0 entries: the default. keepClosed: closed connections can be
// read until their room is needed.
func New(entries int, keepClosed bool) (*Table, error) {
	if entries == 0 {
		entries = defaultEntries
	}
	if entries < 0 || entries > MaxEntries {
		return nil, fmt.Errorf("broker: table of %d connections: use at most %d", entries, MaxEntries)
	}
	size := (statsHeaderLen + entries*entryLen + shm.PageSize - 1) / shm.PageSize * shm.PageSize
	seg, err := shm.CreateWritable("exn-ds-stats", size)
	if err != nil {
		return nil, err
	}
	head := seg.Bytes()
	binary.LittleEndian.PutUint32(head[statsVersionOff:], wire.Version)
	binary.LittleEndian.PutUint32(head[statsEntriesOff:], uint32(entries))
	binary.LittleEndian.PutUint32(head[statsPIDOff:], uint32(os.Getpid()))
	copy(head, statsMagic)
	return &Table{seg: seg, n: entries, keep: keepClosed, sums: make(map[netip.Addr]*Entry)}, nil
}

// Fd is the descriptor of the table's file, which it keeps; -1: it is closed.
func (s *Table) Fd() int { return s.seg.Fd() }

// Close gives the table's descriptor back, and its memory when no entry needs it.
func (s *Table) Close() { s.seg.Retire() }

// Entry is the line of one connection in a Stats.
//
// Concurrency: one goroutine at a time for Set and Free; the counters have one
// writer each.
type Entry struct {
	stats *Table // nil: the table was full, nobody sees the entry
	index int32
	words []atomic.Uint64
}

// EntryInfo is what does not change about a connection.
type EntryInfo struct {
	Key    wire.Key
	Server bool // this is side 1
	UDP    bool // it is a flow of datagrams
	FD     int
	Since  time.Time
}

// takeLocked returns the index of an entry that nobody uses; -1: there is none.
//
// +checklocks:s.mu
func (s *Table) takeLocked() (index int32) {
	n := len(s.free)
	switch {
	case s.next < s.n && (n == 0 || s.keep):
		s.next++
		return int32(s.next - 1)
	case n == 0:
		return -1
	case s.keep:
		index, s.free = s.free[0], s.free[1:]
	default:
		index, s.free = s.free[n-1], s.free[:n-1]
	}
	return index
}

// Alloc takes an entry for a connection, in ModeTCP. It always returns one: when
// the table is full, one that nobody sees.
func (s *Table) Alloc(info EntryInfo) Entry {
	e := Entry{index: -1}
	if s != nil {
		s.mu.Lock()
		e.index = s.takeLocked()
		s.mu.Unlock()
	}
	if e.index < 0 {
		e.words = make([]atomic.Uint64, entryLen/8)
	} else {
		e.stats = s
		e.words = s.entryWords(e.index)
	}
	e.beginConnection(info, ModeTCP)
	return e
}

// entryWords returns the words of an entry.
func (s *Table) entryWords(index int32) []atomic.Uint64 {
	return shm.Words(s.seg.Bytes(), statsHeaderLen+int(index)*entryLen, entryLen/8)
}

// beginConnection makes the entry that of a new connection.
func (e *Entry) beginConnection(info EntryInfo, m Mode) {
	seq := uint32(e.words[0].Load()) | 1
	e.words[0].Store(uint64(seq)) // it changes hands
	udp := uint64(0)
	if info.UDP {
		udp = 1
	}
	shm.Release(&e.words[entryFDOff/8], uint64(uint32(info.FD))|udp<<(8*(entryUDPOff-entryFDOff))|1<<(8*(entryHeedsOff-entryFDOff)))
	var ends [40]byte
	wire.AppendEnds(ends[:0], info.Key.Client, info.Key.Server)
	for i := range len(ends) / 8 {
		shm.Release(&e.words[entryEndsOff/8+i], binary.LittleEndian.Uint64(ends[8*i:]))
	}
	shm.Release(&e.words[entryTimeOff/8], uint64(info.Since.UnixNano()))
	for i := entryCountOff / 8; i < entryLen/8; i++ {
		shm.Release(&e.words[i], 0)
	}
	side := uint64(0)
	if info.Server {
		side = 1
	}
	seq++
	if seq == 0 { // which is unused
		seq = 2
	}
	e.words[0].Store(uint64(seq) | uint64(m)<<(8*entryModeOff) | side<<(8*entrySideOff) |
		uint64(info.Key.Server.Port()&0xf)<<(8*entryDeviceOff))
}

// Set changes the mode and says why.
func (e *Entry) Set(m Mode, w Why) {
	const mask = 0xff<<(8*entryModeOff) | 0xff<<(8*entryReasonOff)
	if m == ModeDirect && Mode(e.words[0].Load()>>(8*entryModeOff)) != m {
		e.directNow()
	}
	e.words[0].Store(e.words[0].Load()&^mask | uint64(m)<<(8*entryModeOff) | uint64(w)<<(8*entryReasonOff))
}

// directNow says since when the connection is direct.
func (e *Entry) directNow() {
	after := time.Now().UnixNano() - int64(e.words[entryTimeOff/8].Load())
	units := min(max(after, 0)/int64(sinceUnit)+1, math.MaxUint32)
	ring := &e.words[entryCountOff/8+gauge+1]
	shm.Release(ring, ring.Load()&math.MaxUint32|uint64(units)<<32)
}

// SetPath says what carries the bytes, from the time on when it is direct.
func (e *Entry) SetPath(p Path) {
	w := &e.words[entryFDOff/8]
	const shift = 8 * (entryPathOff - entryFDOff)
	w.Store(w.Load()&^(0xff<<shift) | uint64(p)<<shift)
}

// Draw is the part of a nonce by which a Rule with a share takes connections.
func Draw(nonce [16]byte) uint32 {
	return uint32(nonce[0]) | uint32(nonce[1])<<8 | uint32(nonce[2])<<16
}

// SetNonce says which segment the connection has.
func (e *Entry) SetNonce(nonce [16]byte) {
	w := &e.words[entrySwitchOff/8]
	const shift = 8 * (entryDrawOff % 8)
	w.And(1<<shift - 1) // by an exchange: the broker writes beside it
	w.Or(uint64(Draw(nonce)) << shift)
}

// Switch lends the word that segment.SwitchedOff reads, until Free.
func (e *Entry) Switch() *atomic.Uint64 { return &e.words[entrySwitchOff/8] }

// SetOff switches a connection that Read has returned, of the table fd, off or on. The entry may
// have changed hands: then its new connection is as it was.
func SetOff(fd int, c *Connection, off bool) error {
	at := int64(statsHeaderLen + c.Entry*entryLen)
	b := []byte{0}
	if off {
		b[0] = 1
	}
	if _, err := unix.Pwrite(fd, b, at+entrySwitchOff); err != nil {
		return err
	}
	var seq [4]byte
	if readAll(fd, seq[:], at+entrySeqOff) && binary.LittleEndian.Uint32(seq[:]) != c.Seq {
		b[0] = 0
		_, err := unix.Pwrite(fd, b, at+entrySwitchOff)
		return err
	}
	return nil
}

// Counters lends the counters until Free.
func (e *Entry) Counters() *Counters {
	return (*Counters)(e.words[entryCountOff/8 : entryCountOff/8+NumCounters])
}

// Free gives the entry back. Nobody may use its counters afterwards. In a table that keeps closed
// connections it can be read, as that of a closed connection, until it is used again; the longest
// unused comes first.
func (e *Entry) Free() {
	s := e.stats
	if s == nil {
		return
	}
	e.stats = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sumLocked(e)
	if s.keep {
		e.words[0].Store(e.words[0].Load()&^(0xff<<(8*entryModeOff)) | uint64(ModeClosed)<<(8*entryModeOff))
	} else { // the sequence goes on with the next one that has the entry
		e.words[0].Store(uint64(uint32(e.words[0].Load()) | 1))
	}
	s.free = append(s.free, e.index)
}

// Check checks that fd is a table that can be read: sealed against resizing,
// with as many entries as its size says.
func Check(fd int) error {
	_, _, err := readHeader(fd)
	return err
}

// readHeader returns the number of entries, and the process as it sees itself.
func readHeader(fd int) (entries, pid int, err error) {
	size, err := rpc.SealedSize(fd)
	if err != nil {
		return 0, 0, err
	}
	var head [statsPIDOff + 4]byte
	if n, err := unix.Pread(fd, head[:], 0); err != nil || n != len(head) {
		return 0, 0, fmt.Errorf("%w: statistics of %d bytes", wire.ErrRule, size)
	}
	if string(head[:len(statsMagic)]) != statsMagic || binary.LittleEndian.Uint32(head[statsVersionOff:]) != wire.Version {
		return 0, 0, fmt.Errorf("%w: statistics are not of version %d", wire.ErrRule, wire.Version)
	}
	n := binary.LittleEndian.Uint32(head[statsEntriesOff:])
	if n > MaxEntries || size < statsHeaderLen+int64(n)*entryLen {
		return 0, 0, fmt.Errorf("%w: statistics of %d entries in %d bytes", wire.ErrRule, n, size)
	}
	return int(n), int(binary.LittleEndian.Uint32(head[statsPIDOff:])), nil
}

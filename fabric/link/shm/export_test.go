package shm

// Segment is what this side writes, for tests in which it writes anything.
func (l *Link) Segment() []byte { return l.nearSeg.Bytes() }

// SegmentSize is the size of a Segment.
const SegmentSize = segmentSize

// Hello returns the encoding of a hello.
func Hello(version uint32, node uint16, segment, arena uint64) []byte {
	b, _ := hello{version: version, node: 0, segment: segment, arena: arena}.AppendBinary(nil)
	b[helloNodeOff], b[helloNodeOff+1] = byte(node), byte(node>>8)
	return b
}

// Offsets in a segment, for tests that write to them.
const (
	RingOff   = ringOff
	ArmedOff  = armedOff
	HeadOff   = headOff
	EventsOff = eventsOff
	SpaceOff  = spaceOff
	BoxOff    = boxOff
	AckOff    = ackOff
	WantOff   = wantOff
	ReadOff   = readOff
)

// RingOffset is where mem is in the peer's segment; false: it is not there.
func (l *Link) RingOffset(mem []byte) (int, bool) { return l.farSeg.Offset(mem) }

// ArenaOffset is where mem is in the peer's arena; false: it is not there.
func (l *Link) ArenaOffset(mem []byte) (int, bool) { return l.farArena.seg.Offset(mem) }

package numbered

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"
)

// End is how a connection ends.
type End uint8

// Ends of a connection.
const (
	EndHalf   End = iota // each end ends its direction after its last byte, and reads to the end
	EndClient            // the client closes when it has sent and received everything
	EndServer            // the server does
	EndUp                // the client sends, and closes at once; nothing goes down
	EndDown              // the server sends, and closes at once; nothing goes up
	ends
)

// Slow has a bit for each call that pauses.
type Slow uint8

// Calls that pause.
const (
	SlowClientWrite Slow = 1 << iota
	SlowClientRead
	SlowServerWrite
	SlowServerRead
)

// Plan is what one connection does. Its client sends it first.
type Plan struct {
	Conn     uint32
	End      End
	Slow     Slow
	Pause    uint16 // milliseconds: slow calls pause for up to twice as long
	Head     uint16 // the same of a sender's first calls, which are small; 0: there are none
	Up, Down int64  // bytes
}

// planLen is the length of an encoded plan:
//
//	0  "numb"    4  Conn    8  Up    16  Down    24  Pause    26  End    27  Slow    28  Head    30  0
//
// Numbers are little endian.
const planLen = 32

const planMagic = "numb"

func (p Plan) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(append(b, planMagic...), p.Conn)
	b = le.AppendUint64(le.AppendUint64(b, uint64(p.Up)), uint64(p.Down))
	return append(le.AppendUint16(b, p.Pause), byte(p.End), byte(p.Slow), byte(p.Head), byte(p.Head>>8), 0, 0)
}

func (p *Plan) parse(b []byte) error {
	le := binary.LittleEndian
	*p = Plan{le.Uint32(b[4:]), End(b[26]), Slow(b[27]), le.Uint16(b[24:]), le.Uint16(b[28:]), int64(le.Uint64(b[8:])), int64(le.Uint64(b[16:]))}
	const most = 1 << 40
	if string(b[:4]) != planMagic || p.Conn > MaxConn || p.End >= ends || p.Up|p.Down < 0 || p.Up > most || p.Down > most || le.Uint16(b[30:]) != 0 {
		if s, number, ok := parseWord(b); ok {
			return fmt.Errorf("a connection does not begin with a plan, but with byte %d of %v", number*WordLen, s)
		}
		return fmt.Errorf("a connection does not begin with a plan, but with % x", b[:planLen])
	}
	return nil
}

// The first calls of a sender are small and pause, unless no call does: so that a connection that
// can leave TCP has done so before most bytes are sent. Where there are many, that takes longer.
const (
	headCalls = 4
	headCall  = 200
)

// headPause is the mean pause of so many connections at a time, in milliseconds.
func headPause(conns int) uint16 { return uint16(2 + conns/8) }

// Bounds of a plan's bytes and of its calls.
const (
	maxBytes     = 4 << 20
	maxSlowBytes = 16 << 10
	maxCall      = 1 << 20
	maxSlowCall  = 4 << 10
)

// newPlan makes one by chance: each end and each slow call with the same probability everywhere.
func newPlan(conn uint32, pause time.Duration, conns int, rnd *rand.Rand) Plan {
	p := Plan{Conn: conn, End: End(rnd.IntN(int(ends))), Pause: uint16(pause.Milliseconds())}
	if pause > 0 {
		p.Head = headPause(conns)
	}
	if pause > 0 && rnd.IntN(2) == 0 {
		p.Slow = Slow(1 + rnd.IntN(15))
	}
	size := func(slow Slow) int64 {
		if p.Slow&slow != 0 {
			return logSize(rnd, maxSlowBytes)
		}
		return logSize(rnd, maxBytes)
	}
	p.Up, p.Down = size(SlowClientWrite|SlowServerRead), size(SlowServerWrite|SlowClientRead)
	switch p.End {
	case EndUp:
		p.Down = 0
	case EndDown:
		p.Up = 0
	}
	return p
}

// logSize is a random size from 1 to limit, whose logarithm is evenly distributed.
func logSize(rnd *rand.Rand, limit int64) int64 {
	bits := 1
	for int64(1)<<bits <= limit {
		bits++
	}
	return min(limit, 1+rnd.Int64N(int64(1)<<rnd.IntN(bits)))
}

// pace chooses the sizes of calls, and pauses between them.
type pace struct {
	rnd   *rand.Rand
	most  int64
	pause time.Duration // 0: not slow
	head  time.Duration // of the head's calls
	heads int           // that are left
}

func (p Plan) newPace(slow Slow) pace {
	c := pace{rand.New(rand.NewPCG(uint64(p.Conn), uint64(slow))), maxCall, 0, time.Duration(p.Head) * time.Millisecond, 0}
	if p.Slow&slow != 0 {
		c.most, c.pause = maxSlowCall, time.Duration(p.Pause)*time.Millisecond
	}
	if p.Head > 0 && slow&(SlowClientWrite|SlowServerWrite) != 0 {
		c.heads = headCalls
	}
	return c
}

// nextSize is that of the next call.
func (c *pace) nextSize() int64 {
	if c.heads > 0 {
		return logSize(c.rnd, headCall)
	}
	return logSize(c.rnd, c.most)
}

// pauseAfter pauses after a call.
func (c *pace) pauseAfter() {
	pause := c.pause
	if c.heads > 0 {
		c.heads--
		pause = c.head
	}
	if pause > 0 {
		time.Sleep(time.Duration(c.rnd.Int64N(int64(2 * pause))))
	}
}

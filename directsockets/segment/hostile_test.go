package segment

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// victim is an end whose peer writes what it likes.
type victim struct {
	e, foe *End
	mem    []byte // the peer's mapping of the segment
	bell   int    // the peer's end of the doorbell
	region *Region
	number uint32
	ticket uint64
	buf    []byte
	lent   []byte // copy of what Next lent
	broken bool
	rests  int // directions whose rest was asked for to its end
}

func newVictim(tb testing.TB, side Side) *victim {
	tb.Helper()
	c, s := looseEnds(tb, Config{Slots: 16, Ring: minRing})
	v := &victim{e: c, foe: s, mem: s.seg.Exposed(), bell: s.bell, buf: make([]byte, 3000)}
	if side == Server {
		v.e, v.foe, v.mem, v.bell = s, c, c.seg.Exposed(), c.bell
	}
	var err error
	if v.region, err = NewRegion(8192); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		v.region.Close()
		c.Close(false)
		s.Close(false)
		c.seg.Retire()
		s.seg.Retire()
	})
	return v
}

// check fails if an operation answers what no operation may.
func (v *victim) check(tb testing.TB, n, limit int, err error) {
	tb.Helper()
	if n < 0 || n > limit {
		tb.Fatalf("%d bytes of %d", n, limit)
	}
	for _, ok := range []error{nil, ErrAgain, io.EOF, ErrDemoted, ErrCut, ErrFellBack, ErrEnded, ErrClosed, ErrReset, ErrEnding,
		ErrNotPromoted, ErrCorrupt, ErrNoZCopy, ErrRegions, ErrNoSink} {
		if err == ok {
			if v.broken && err != ErrCorrupt {
				tb.Fatalf("%v after a breach", err)
			}
			if err == ErrCorrupt {
				v.broken = true
			}
			return
		}
	}
	tb.Fatal(err)
}

// ops is how many things a victim does.
const ops = 20

// do has the victim do one thing, chosen by op, with a size.
func (v *victim) do(tb testing.TB, op byte, size int) {
	tb.Helper()
	e := v.e
	p := v.buf[:size%len(v.buf)+1]
	switch op % ops {
	case 0, 1, 2:
		n, err := e.Send(p)
		v.check(tb, n, len(p), err)
	case 3, 4, 5:
		n, err := e.Recv(p)
		v.check(tb, n, len(p), err)
	case 6:
		b, err := e.Next()
		v.check(tb, 0, 0, err)
		v.lent = b.AppendTo(v.lent[:0]) // all of it can be read
		if err == nil {
			e.Release(size % (b.Len() + 1))
		}
	case 7:
		e.ArmRX()
	case 8:
		e.ArmTX()
	case 9:
		if e.side == Server {
			err := e.Attach()
			v.check(tb, 0, 0, err)
		}
		v.check(tb, 0, 0, e.Promote(uint64(size)))
		e.PromotedAt()
	case 10:
		if size%4 == 0 {
			v.check(tb, 0, 0, e.Shutdown())
		} else if size%4 == 1 {
			v.check(tb, 0, 0, e.Demote())
		}
	case 11:
		if size%8 == 0 {
			err := e.FallBack()
			v.check(tb, 0, 0, err)
		}
		e.Resume(size%2 == 0)
	case 12:
		var sum int
		err := e.ReturnToTCP(func(p []byte) (int, error) {
			for i := range p {
				v.buf[0] ^= p[i]
			}
			sum += len(p)
			if size%3 == 0 {
				return len(p) / 2, ErrAgain
			}
			return len(p), nil
		})
		v.check(tb, 0, 0, err)
		if limit := minRing*16 + 16*maxRMA; sum > limit {
			tb.Fatal("returned to TCP", sum)
		}
	case 13:
		n, err := e.Share(v.region)
		v.check(tb, 0, 0, err)
		if err == nil {
			v.number = n
		}
		t, err := e.SendRegion(v.region, size%100, size%5000+1)
		v.check(tb, 0, 0, err)
		if err == nil {
			v.ticket = t
		}
	case 14:
		_, err := e.Taken(v.ticket)
		v.check(tb, 0, 0, err)
		e.ArmTaken(v.ticket)
	case 15:
		v.check(tb, 0, 0, e.OfferSink(v.region, v.number, size%100, size%5000+1))
	case 16:
		n, err := e.RecvSink()
		v.check(tb, n, 5000, err)
		e.WithdrawSink()
	case 17:
		if n := e.Readable(); n < 0 || n > 16*maxRMA {
			tb.Fatal("readable", n)
		}
		e.Awake()
		e.SameCPU()
		e.SpinRX(2)
		_, _, _ = e.Err(), e.FallenBack(), e.PeerState()
	}
	if op%ops == 19 {
		v.returns(tb, size)
	}
	if op%ops == 18 {
		b, err := e.Reserve(len(p))
		v.check(tb, b.Len(), len(p), err)
		if err == nil {
			b.Fill(p)
			v.check(tb, 0, 0, e.Commit(b.Len()))
		}
	}
	if e.bad.Load() {
		v.broken = true
	}
}

// A PROMOTE whose bytes of the shadow cannot be is a breach, before FallBack and after it.
func TestImpossiblePromote(t *testing.T) {
	for _, said := range []uint64{0, 77, math.MaxInt64, 1 << 63, math.MaxUint64 - 4, math.MaxUint64} {
		for fallenBack := range 2 {
			v := newVictim(t, Client)
			q := queuesOff + 16*128
			binary.LittleEndian.PutUint64(v.mem[q+8:], said)
			binary.LittleEndian.PutUint64(v.mem[q:], uint64(wordOf(1, TagPromote, promoteLen)))
			if fallenBack == 1 {
				if err := v.e.FallBack(); err != nil {
					t.Fatal(err)
				}
			}
			n, ok := v.e.PromotedAt()
			if want := said <= math.MaxInt64; ok != want || v.e.bad.Load() == want || ok && n != said {
				t.Errorf("PROMOTE after %d bytes, fallen back %d: %d %v", said, fallenBack, n, ok)
			}
		}
	}
}

// returns is what a receiver does that has fallen back, from FallBack to the last byte of the rest.
// The peer's RETURNED is written for it, and between the steps, whatever the size says.
func (v *victim) returns(tb testing.TB, size int) {
	tb.Helper()
	e := v.e
	if e.bad.Load() { // what is written here would pass for the victim's
		v.check(tb, 0, 0, e.FallBack())
		return
	}
	most := uint64(len(e.rx.queue)) * maxRMA
	peer := ctrlOff + int(1-e.side)*ctrlLen
	if size%2 == 0 {
		v.mem[peer+attentionOff] |= byte(returnedFlag)
	}
	err := e.FallBack()
	v.check(tb, 0, 0, err)
	if err != nil || !e.PeerReturned() || !e.rx.fallenBack { // Left is for a direction that has fallen back
		return
	}
	from, until, err := e.Left()
	v.check(tb, 0, 0, err)
	if err != nil {
		return
	}
	if from > math.MaxInt64 || until < from || until-from > most {
		tb.Fatalf("from %d until %d", from, until)
	}
	if size%3 == 0 { // the message to go on in, which was counted
		q := queuesOff + int(1-e.side)*16*128 + int(e.rx.count%16)*128
		v.mem[q+5], v.mem[q+12] = byte(size>>3), byte(size>>5)
	}
	skip := uint64(size) % (until - from + 1)
	if size%5 == 0 {
		skip = until - from
	}
	if err = e.Rest(skip, size%7 == 0); err != nil {
		v.check(tb, 0, 0, err)
		return
	}
	for sum := skip; err == nil; {
		var n int
		n, err = e.RecvRest(v.buf[:size%len(v.buf)+1])
		v.check(tb, n, size%len(v.buf)+1, err)
		if sum += uint64(n); sum > until-from || err == nil && n == 0 {
			tb.Fatalf("%d bytes of %d, and %d at last", sum, until-from, n)
		}
	}
	v.rests++
}

// silent fails if the victim touches the segment after a breach.
func (v *victim) silent(tb testing.TB) {
	tb.Helper()
	if !v.e.bad.Load() {
		return
	}
	before := bytes.Clone(v.mem)
	for op := range byte(ops) {
		v.do(tb, op, 1000)
	}
	v.e.Close(true)
	if !bytes.Equal(before, v.mem) {
		tb.Error("the segment was written after a breach")
	}
	for { // what was rung before comes first
		n, err := unix.Read(v.bell, make([]byte, 1<<16))
		if err != nil {
			tb.Error("the doorbell is not at its end", err)
		}
		if n <= 0 {
			return
		}
	}
}

// Steps of a fuzz input: what, then as many bytes as it takes.
const (
	stepPoke = 200 // 3 bytes: offset, 1: how many words of 8 bytes less 1, those
	stepPass = 201 // 2 bytes: pages of a memfd, seals
	stepSlot = 202 // 1 byte: slot, 1: tag, 1: length, 1: how many words of payload, those
)

// play runs a fuzz input.
func (v *victim) play(tb testing.TB, in []byte) {
	next := func(n int) []byte {
		b := make([]byte, n)
		in = in[copy(b, in):]
		return b
	}
	for len(in) > 0 {
		switch op := next(1)[0]; op {
		case stepPoke:
			b := next(4)
			off := int(binary.LittleEndian.Uint32(append(b[:3:3], 0))) % len(v.mem)
			copy(v.mem[off:], next(8*int(b[3]%16+1)))
		case stepPass:
			b := next(2)
			if fd, err := memfd(4096*int(b[0]), nil, int(b[1]%16)); err == nil {
				_ = unix.Sendmsg(v.bell, []byte{0}, unix.UnixRights(fd), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
				unix.Close(fd)
			}
		case stepSlot:
			b := next(4)
			q := queuesOff + int(1-v.e.side)*16*128 + int(b[0]%16)*128
			copy(v.mem[q+8:q+128], next(8*int(b[3]%5)))
			lap := uint32(v.e.rx.count>>4 + 1)
			binary.LittleEndian.PutUint64(v.mem[q:], uint64(wordOf(lap, Tag(b[1]), int(b[2]))))
		default:
			v.do(tb, op, int(next(1)[0])*17)
		}
	}
	v.silent(tb)
}

func FuzzHostile(f *testing.F) {
	u64 := binary.LittleEndian.AppendUint64
	poke := func(off int, words ...uint64) []byte {
		b := []byte{stepPoke, byte(off), byte(off >> 8), byte(off >> 16), byte(len(words) - 1)}
		for _, w := range words {
			b = u64(b, w)
		}
		return b
	}
	slot := func(n, tag, length byte, words ...uint64) []byte {
		b := []byte{stepSlot, n, tag, length, byte(len(words))}
		for _, w := range words {
			b = u64(b, w)
		}
		return b
	}
	join := func(b ...[]byte) []byte { return bytes.Join(b, nil) }
	for side := range byte(2) {
		start := []byte{side}
		if side == 0 {
			start = append(start, poke(ctrlOff+ctrlLen+stateOff, 2)...)
		}
		start = append(start, slot(0, 7, 8, 0)...)
		start = append(start, 9, 0, 3, 1)
		peer := ctrlOff + int(1-side)*ctrlLen
		f.Add(start)
		for tag := range byte(10) {
			f.Add(join(start, slot(1, tag, 5, 1, 2), []byte{3, 1, 6, 1, 3, 9}))
			f.Add(join(start, slot(1, tag, 28, 1|100<<32, 0, 100, 0), []byte{17, 0, 3, 9, 3, 9}))
			f.Add(join(start, slot(1, tag, 16, 1, 4096), slot(2, 3, 28, 2|100<<32, 0, 0, 1), []byte{stepPass, 1, 15, 3, 9, 6, 7}))
		}
		f.Add(join(start, []byte{0, 10, 0, 200}, poke(peer, 2, 64), []byte{0, 5, 8, 0}))
		f.Add(join(start, []byte{0, 10, 0, 200}, poke(peer+fallbackSlotOff, 1, 3), poke(peer+attentionOff, 4), []byte{0, 1, 12, 1, 12, 3}))
		f.Add(join(start, []byte{13, 1, 15, 50}, poke(peer+claimSeqOff, 1), []byte{16, 1}, slot(1, 3, 28, 3|100<<32, 1), []byte{16, 1}))
		f.Add(join(start, slot(1, 8, 16, 1, 4096), []byte{stepPass, 1, 15, 3, 9}, poke(peer+sinkSlotOff, 2, 1|100<<32, 0), poke(peer+sinkSeqOff, 1), []byte{0, 100}))
		for k := range byte(12) { // fallen back, with what is counted, and is another afterwards
			f.Add(join(start, slot(1, 1, 100, 1, 2), slot(2, 3, 28, 1|100<<32, 0, 100, 0), []byte{19, 2 * k}))
			f.Add(join([]byte{side}, slot(0, 7, 8, math.MaxUint64-uint64(k)), slot(1, 1, 100, 1), []byte{19, 2 * k}))
		}
		f.Add(join(start, poke(0, 1, 2, 3, 4, 5, 6, 7, 8), poke(ctrlOff, 1, 2, 3, 4), []byte{0, 1, 3, 1}))
		f.Add(join(start, poke(peer+attentionOff, 0x101), []byte{0, 1, 7, 0, 8, 0, 17, 0, 11, 0, 11, 8}))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 {
			return
		}
		newVictim(t, Side(in[0]&1)).play(t, in[1:])
	})
}

// The same with noise in places that matter, from a goroutine of its own, while
// the victim works.
func TestScribble(t *testing.T) {
	breaches, rests, bytes := 0, 0, uint64(0)
	// A second, or on a busy machine until both have happened.
	began := time.Now()
	for d := time.Duration(0); d < time.Second || d < 3*time.Minute && (breaches == 0 || rests == 0 || bytes == 0); d = time.Since(began) {
		seed := rand.Uint64()
		v := newVictim(t, Side(seed&1))
		stop, over := make(chan struct{}), make(chan struct{})
		base := int(1 - v.e.side)
		v.play(t, []byte{9, 0, stepSlot, 0, 7, 8, 0}) // attach; PROMOTE
		binary.LittleEndian.PutUint32(v.mem[ctrlOff+base*ctrlLen+stateOff:], 2-uint32(v.e.side))
		v.play(t, []byte{9, 0})
		go func() {
			defer close(over)
			rng := rand.New(rand.NewPCG(seed, 1))
			for {
				select {
				case <-stop:
					return
				default:
				}
				v.scribble(rng, base)
			}
		}()
		rng := rand.New(rand.NewPCG(seed, 2))
		for range 3000 {
			op := rng.IntN(ops - 1)
			if rng.IntN(200) == 0 { // rarely, as it is the end of the direction
				op = ops - 1
			}
			v.do(t, byte(op), rng.IntN(3000))
		}
		close(stop)
		<-over
		v.silent(t)
		if v.broken {
			breaches++
		}
		rests += v.rests
		bytes += v.e.count[ReceivedDirect].Load()
	}
	t.Logf("%d breaches were found, %d bytes received before, %d rests read", breaches, bytes, rests)
	if breaches == 0 || rests == 0 || bytes == 0 {
		t.Error("nothing happened")
	}
}

// scribble writes one thing that may pass for true.
func (v *victim) scribble(rng *rand.Rand, side int) {
	put32 := func(off int, n uint32) { binary.LittleEndian.PutUint32(v.mem[off:], n) }
	put64 := func(off int, n uint64) { binary.LittleEndian.PutUint64(v.mem[off:], n) }
	ctrl := ctrlOff + side*ctrlLen
	kind := 6
	if rng.IntN(100) == 0 {
		kind = rng.IntN(6)
	}
	switch kind {
	case 0:
		put64(ctrl+8*rng.IntN(2), rng.Uint64N(64)*uint64(1+rng.IntN(64)))
	case 1:
		put32(ctrl+attentionOff, rng.Uint32N(128)&rng.Uint32N(128)|rng.Uint32N(8)<<8)
	case 2:
		put32(ctrl+stateOff, rng.Uint32N(3))
	case 3:
		put64(ctrl+fallbackSlotOff+8*rng.IntN(2), rng.Uint64N(20))
	case 4:
		put64(ctrl+sinkSeqOff+8*rng.IntN(4), rng.Uint64N(5))
	case 5:
		v.mem[rng.IntN(len(v.mem))] = byte(rng.Uint32())
	case 6:
		q := queuesOff + side*16*128 + rng.IntN(16)*128
		put32(q+8, uint32(1+rng.IntN(3)))
		put32(q+12, rng.Uint32N(3000))
		put64(q+16, rng.Uint64N(minRing))
		put64(q+24, rng.Uint64N(minRing))
		put32(q+32, rng.Uint32N(3))
		tag, n := Tag(1+rng.IntN(2)), 1+rng.IntN(120)
		if rng.IntN(100) == 0 {
			tag = Tag(3 + rng.IntN(6))
		}
		if tag >= TagRMAInfo {
			n = map[Tag]int{TagRMAInfo: rmaLen, TagPromote: promoteLen, TagRegion: regionLen}[tag]
		}
		put64(q, uint64(wordOf(1+rng.Uint32N(4), tag, n)))
	}
}

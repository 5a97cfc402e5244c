package inject

import (
	"encoding/binary"
	"math"
)

// jumpSize is the length of a jump.
const jumpSize = 5

// encodeJump returns the instruction that jumps from one address to another; nil: that is too far.
func encodeJump(from, to uint64) []byte {
	d := int64(to - from - jumpSize)
	if d > math.MaxInt32 || d < math.MinInt32 {
		return nil
	}
	return binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(d))
}

// stubHead begins a stub: the stack stays clear of the 128 bytes that the program may use below its
// own, and r11 has where the library comes back to.
var stubHead = []byte{
	0x48, 0x8d, 0x64, 0x24, 0x80, // lea -128(%rsp), %rsp
	0x4c, 0x8d, 0x1d, 5, 0, 0, 0, // lea back(%rip), %r11
}

// stubTail is where the library comes back to. Behind it is where a thread goes on that was in the
// kernel when the jump was written: to repeat a call, the kernel goes back by the two bytes of a
// syscall instruction, where there is a jump to the stub's head.
var stubTail = []byte{
	0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0, // back: lea 128(%rsp), %rsp
	0xeb, 2, // jmp behind
	0xeb, 0, // jmp head
}

// stubsSize is how much memory they take.
func (p *program) stubsSize() uint64 {
	n := uint64(len(begin) + 16*(p.countJumps()+2))
	for _, s := range p.sites {
		n += uint64(len(stubHead)+len(stubTail)) + 2*jumpSize
		n += uint64(len(s.first)+len(s.moved)) * maxInstruction
	}
	return pageUp(n)
}

// countJumps is how many jumps are written.
func (p *program) countJumps() int {
	n := len(p.sites)
	for _, s := range p.sites {
		if s.short != nil {
			n++
		}
	}
	return n
}

// makeStubs makes the stubs of a program that was loaded base from its addresses, with the library
// at lib. They begin with the code once.
func (p *program) makeStubs(once []byte, at, base uint64, l *library, lib uint64) (*stubs, error) {
	s := &stubs{at: at, b: append([]byte(nil), once...), low: math.MaxUint64, moves: moves{make(map[uint64]uint64), make(map[uint64]uint64)}}
	for len(s.b)%16 != 0 {
		s.b = append(s.b, 0xcc)
	}
	s.table = at + uint64(len(s.b))
	code := make([]byte, 0, p.stubsSize())
	start := s.table + 16*uint64(p.countJumps()+1)
	var short, long []written
	for _, place := range p.sites {
		from := base + place.at
		to := start + uint64(len(code))
		var stub []byte
		switch {
		case place.calls != 0:
			stub = callStub(to, base+place.calls, lib+l.symbols[place.to])
		case p.isGo:
			to, stub = lib+l.symbols[symGo], []byte{} // it needs none
		default:
			stub = place.makeStub(to, from, lib+l.symbols[symEntry], s.moves)
		}
		if stub == nil {
			return nil, errFar
		}
		code = append(code, stub...)
		if place.short != nil {
			short = append(short, written{from, place.short})
			from = base + place.via
		}
		j := encodeJump(from, to)
		if j == nil {
			return nil, errFar
		}
		if place.calls != 0 {
			j[0] = callCode
		}
		long = append(long, written{from, j})
	}
	high := uint64(0)
	for _, w := range append(short, long...) { // a long one may begin in the bytes behind a short one
		s.b = binary.LittleEndian.AppendUint64(s.b, w.at)
		s.b = append(append(s.b, w.b...), 0, 0, 0)
		s.low, high = min(s.low, pageOf(w.at)), max(high, pageUp(w.at+jumpSize))
	}
	s.b = append(append(s.b, make([]byte, 16)...), code...)
	s.pages = high - s.low
	s.jumps = long
	for _, w := range short {
		s.jumps = append(s.jumps, written{w.at, w.b[:shortJump]})
	}
	return s, nil
}

// shortJump is the length of a short jump.
const shortJump = 2

// makeStub returns the stub at an address for a place; nil: something is too far.
func (s site) makeStub(at, from, entry uint64, m moves) []byte {
	var b []byte
	was := from
	put := func(list []movedInstruction) bool {
		for _, in := range list {
			s.noteMoved(m.inside, from, was, at+uint64(len(b)))
			moved := in.putAt(in.b, was, at+uint64(len(b)))
			if moved == nil {
				return false
			}
			b = append(b, moved...)
			was += uint64(in.len)
		}
		return true
	}
	if !put(s.first) {
		return nil
	}
	s.noteMoved(m.inside, from, was, at+uint64(len(b)))
	head := len(b)
	b = append(b, stubHead...)
	j := encodeJump(at+uint64(len(b)), entry)
	if j == nil {
		return nil
	}
	b = append(append(b, j...), stubTail...)
	b[len(b)-1] = byte(head - len(b))
	was += uint64(len(systemCall))
	s.noteMoved(m.inside, from, was, at+uint64(len(b)))
	m.behind[was] = at + uint64(len(b))
	if !put(s.moved) {
		return nil
	}
	if s.ends {
		return b
	}
	if j = encodeJump(at+uint64(len(b)), from+s.next); j == nil {
		return nil
	}
	return append(b, j...)
}

// noteMoved notes that the instruction at was is at to as well, if it is in the middle of a jump of
// five bytes that is written at from.
func (s site) noteMoved(inside map[uint64]uint64, from, was, to uint64) {
	if s.short == nil && was > from && was < from+jumpSize {
		inside[was] = to
	}
}

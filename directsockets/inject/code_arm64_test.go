package inject

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// A branch reaches 128 MB, and no further.
func TestBranch(t *testing.T) {
	for _, c := range []struct {
		from, to uint64
		word     uint32
		near     bool
	}{
		{0x1000, 0x1008, 0x14000002, true}, {0x1008, 0x1000, 0x17fffffe, true},
		{0x1000, 0x1000 + 1<<27 - 4, 0x15ffffff, true}, {1 << 28, 1 << 27, 0x16000000, true},
		{0x1000, 0x1000 + 1<<27, 0, false}, {1<<28 + 4, 1 << 27, 0, false}, {0, 2, 0, false},
	} {
		word, near := encodeBranch(jumpCode, c.from, c.to)
		if near != c.near || near && word != c.word {
			t.Errorf("%#x to %#x: %#x, %v", c.from, c.to, word, near)
		}
	}
}

// The number of a call is what x8 was set to, if nobody comes between.
func TestCallNumber(t *testing.T) {
	const (
		nop   = 0xd503201f
		exit  = 0xd2800ba8 // mov x8, #93
		wide  = 0x52800ba8 // mov w8, #93
		copy8 = 0xaa0203e8 // mov x8, x2
		cond  = 0x54000040 // b.eq
		zero  = 0xb4000040 // cbz
		ret   = 0xd65f03c0
	)
	for i, c := range []struct {
		list  []uint32
		nr    int
		after bool
	}{
		{[]uint32{exit}, unix.SYS_EXIT, false}, {[]uint32{wide, nop, nop}, unix.SYS_EXIT, false},
		{[]uint32{svc, exit}, unix.SYS_EXIT, true}, {[]uint32{exit, copy8}, -1, false},
		{[]uint32{exit, cond}, -1, false}, {[]uint32{exit, zero, nop}, -1, false}, {[]uint32{exit, ret}, -1, false}, {nil, -1, false},
	} {
		if nr, after := callNumber(encodeWords(c.list...)); nr != c.nr || after != c.after {
			t.Errorf("%d: %d, %v", i, nr, after)
		}
	}
}

// A stub has no more instructions than are counted for it, and goes on behind its place.
func TestStub(t *testing.T) {
	a := assembler{at: 0x2000, ok: true}
	a.makeCallStub(0x1000, 0x3000, 0x4000)
	if len(a.list) != stubMost || !a.ok {
		t.Errorf("%d instructions, %v", len(a.list), a.ok)
	}
	for _, i := range []int{5, 9, 18} {
		if want, _ := encodeBranch(jumpCode, 0x2000+4*uint64(i), 0x1004); a.list[i] != want {
			t.Errorf("%d: %#x, not %#x", i, a.list[i], want)
		}
	}
	far := assembler{at: 1 << 30, ok: true}
	far.makeCallStub(0x1000, 1<<30, 1<<30)
	if far.ok {
		t.Error("a place that is too far")
	}
}

// The kernel finds the registers and the mask in a frame.
func TestFrame(t *testing.T) {
	r := registers{Sp: 1, Pc: 2, Pstate: 3}
	fp := make([]byte, fpsimdSize)
	fp[0], fp[512] = 7, 9
	at, b := frameOf(&r, 5, fp, 1<<20)
	if at%16 != 0 || at+uint64(len(b)) > 1<<20 || b[maskAt] != 5 || b[560] != 1 || b[568] != 2 || b[576] != 3 {
		t.Errorf("%#x: %v", at, b[:600])
	}
	if binary.LittleEndian.Uint32(b[recordsAt:]) != fpsimd || b[recordsAt+8] != 9 || b[recordsAt+16] != 7 {
		t.Errorf("%v", b[recordsAt:recordsAt+20])
	}
}

package inject

import "encoding/binary"

// instruction is what has to be known of an instruction to move it elsewhere.
type instruction struct {
	len    int
	kind   kind
	opcode byte  // the last byte of it: of a conditional jump the condition
	modrm  int   // where the byte is that names the operands; 0: there is none
	rex    byte  // the prefix of 64 bits, 0: none
	far    int   // where a distance of four bytes is: of a jump, or to an operand in memory
	to     int64 // what a jump leads to, from the instruction's start
}

// kind is what moving an instruction takes.
type kind uint8

// Kinds of instructions.
const (
	unknown  kind = iota // not an instruction that is known
	still                // the same anywhere
	relative             // has an operand at a distance from it
	leads                // a jump, always taken
	branches             // a conditional jump
	calls
	fixed   // has no form elsewhere: a loop, whose way is one byte
	returns // ret, or a jump to where a register or memory says
	system  // syscall
)

// What follows each opcode, a letter for each:
//
//	.      nothing
//	M      operands
//	1 2 3  so many bytes
//	a      eight bytes, an address
//	I      two or four bytes, by the size of the operands
//	V      two, four or eight bytes
//	B      operands and a byte
//	W      operands and what I stands for
//	G      operands; in two of its eight forms also what I or 1 stands for
//	R L    a jump's distance, of one byte or of four
//	X      not an instruction that is known
const (
	oneByte = "MMMM1IXXMMMM1IXX" + "MMMM1IXXMMMM1IXX" + "MMMM1IXXMMMM1IXX" + "MMMM1IXXMMMM1IXX" + // 00
		"XXXXXXXXXXXXXXXX" + "................" + "XXXMXXXXIW1B...." + "RRRRRRRRRRRRRRRR" + // 40
		"BWXBMMMMMMMMMMMM" + "..........X....." + "aaaa....1I......" + "11111111VVVVVVVV" + // 80
		"BB2.XXBW3.2..1X." + "MMMMXXX.MMMMMMMM" + "RRRR1111LLXR...." + "X.X...GG......MM" // c0
	afterZero = "MMMMX.....X.XM.X" + "MMMMMMMMMMMMMMMM" + "MMMMXXXXMMMMMMMM" + "........XXXXXXXX" + // 00
		"MMMMMMMMMMMMMMMM" + "MMMMMMMMMMMMMMMM" + "MMMMMMMMMMMMMMMM" + "BBBBMMM.MMXXMMMM" + // 40
		"LLLLLLLLLLLLLLLL" + "MMMMMMMMMMMMMMMM" + "...MBMXX...MBMMM" + "MMMMMMMMMMBMMMMM" + // 80
		"MMBMBBBM........" + "MMMMMMMMMMMMMMMM" + "MMMMMMMMMMMMMMMM" + "MMMMMMMMMMMMMMMM" // c0
)

// maxInstruction is how long an instruction can be.
const maxInstruction = 15

// prefixes are bytes that may begin an instruction, whatever it is.
var prefixes = [256]bool{0x66: true, 0xf2: true, 0xf3: true, 0xf0: true, 0x2e: true, 0x36: true, 0x3e: true, 0x26: true, 0x64: true, 0x65: true, 0x67: true}

// decodeInstruction reads the instruction at the start of b, of code of 64 bits.
func decodeInstruction(b []byte) (in instruction) {
	b = b[:min(len(b), maxInstruction)]
	at, small := 0, false
	for at < len(b) && prefixes[b[at]] {
		small = small || b[at] == 0x66
		at++
	}
	if at < len(b) && b[at]&0xf0 == 0x40 {
		in.rex = b[at]
		at++
	}
	if at+1 >= len(b) {
		if at < len(b) && oneByte[b[at]] == '.' {
			return instruction{len: at + 1, kind: kindOf(b[at], false), opcode: b[at]}
		}
		return instruction{}
	}
	c := b[at]
	what, zero := oneByte[c], false
	at++
	switch {
	case c == 0x0f:
		c, zero = b[at], true
		what = afterZero[c]
		at++
		if c == 0x38 || c == 0x3a { // a third byte
			what = 'M'
			if c == 0x3a {
				what = 'B'
			}
			at++
		}
	case in.rex == 0 && (c == 0xc4 || c == 0xc5 || c == 0x62 || c == 0x8f && b[at]&0x1f >= xopFirst):
		what, c, at = vectorPrefix(b, at, c)
		in.opcode, in.kind = c, still
		return in.readOperands(b, at, what, small, true)
	}
	in.opcode, in.kind = c, kindOf(c, zero)
	return in.readOperands(b, at, what, small, zero)
}

// quickOneByte and quickAfterZero are what follows an opcode in the instructions that quickLength
// knows.
var quickOneByte, quickAfterZero = func() (one, zero [256]byte) {
	for c := range 256 {
		if known := oneByte[c] == '.' || oneByte[c] == '1' || oneByte[c] == 'I' || oneByte[c] == 'V' || oneByte[c] == 'M' || oneByte[c] == 'B' ||
			oneByte[c] == 'W'; known && !prefixes[c] && kindOf(byte(c), false) == still && c != 0xff && c != 0x8f {
			one[c] = oneByte[c]
		}
		if what := afterZero[c]; what == 'M' || what == 'B' {
			zero[c] = what
		}
	}
	return one, zero
}()

// quickLength returns the length of an instruction that leads nowhere and is no system call: those
// that most of a program consists of. 0: decodeInstruction knows.
func quickLength(b []byte) int {
	if len(b) < maxInstruction {
		return 0
	}
	b = b[:maxInstruction]
	at, n, rex := 0, 4, byte(0)
	if b[0] == 0x66 {
		at, n = 1, 2
	}
	if b[at]&0xf0 == 0x40 {
		rex = b[at]
		at++
	}
	c := b[at]
	at++
	what := quickOneByte[c]
	if c == 0x0f {
		what = quickAfterZero[b[at]]
		at++
	}
	switch what {
	case 'M':
		n = 0
	case 'B':
		n = 1
	case 'W':
	case '1':
		return at + 1
	case '.':
		return at
	case 'I':
		return at + n
	case 'V':
		if rex&8 != 0 {
			n = 8
		}
		return at + n
	default:
		return 0
	}
	mode, base := b[at]>>6, b[at]&7
	at++
	if mode == 3 {
		return at + n
	}
	if base == 4 {
		base = b[at] & 7
		at++
	}
	if mode == 1 {
		at++
	} else if mode == 2 || base == 5 {
		at += 4
	}
	return at + n
}

// xopFirst is the first group of AMD's XOP, whose first byte is that of a pop to memory.
const xopFirst = 8

// vectorPrefix reads the prefix of a vector instruction behind its first byte, and its opcode.
func vectorPrefix(b []byte, at int, first byte) (what, opcode byte, next int) {
	size, group := 1, byte(1)
	switch first {
	case 0xc4, 0x8f:
		size = 2
	case 0x62:
		size = 3
	}
	if at+size >= len(b) {
		return 'X', 0, at
	}
	if first != 0xc5 {
		group = b[at] & 7
	}
	opcode = b[at+size]
	what = 'M'
	switch {
	case first == 0x8f:
		what = map[byte]byte{xopFirst: 'B', xopFirst + 1: 'M', xopFirst + 2: 'W'}[b[at]&0x1f]
		if what == 0 {
			what = 'X'
		}
	case group == 3 || group == 1 && afterZero[opcode] == 'B':
		what = 'B'
	case group == 1 && opcode == 0x77:
		what = '.'
	case group == 0 || group == 4 || group == 7:
		what = 'X'
	}
	return what, opcode, at + size + 1
}

// readOperands reads what is behind an opcode.
func (in instruction) readOperands(b []byte, at int, what byte, small, zero bool) instruction {
	if what == 'M' || what == 'B' || what == 'W' || what == 'G' {
		if at >= len(b) {
			return instruction{}
		}
		in.modrm = at
		mode, base, reg := b[at]>>6, b[at]&7, b[at]>>3&7
		if what == 'G' && reg <= 1 {
			what = 'B'
			if in.opcode == 0xf7 {
				what = 'W'
			}
		}
		if in.opcode == 0xff && !zero && (reg == 4 || reg == 5) {
			in.kind = returns
		}
		at++
		if mode != 3 && base == 4 {
			if at >= len(b) {
				return instruction{}
			}
			base = b[at] & 7
			at++
		} else if mode == 0 && base == 5 {
			in.far = at
		}
		if mode == 1 {
			at++
		} else if mode == 2 || mode == 0 && base == 5 {
			at += 4
		}
	}
	number := 4
	if small {
		number = 2
	}
	switch what {
	case '1', 'B':
		at++
	case '2', '3':
		at += int(what - '0')
	case 'I', 'W':
		at += number
	case 'V':
		if in.rex&8 != 0 {
			number = 8
		}
		at += number
	case 'a':
		at += 8
	case 'R':
		if at < len(b) {
			in.to = int64(at+1) + int64(int8(b[at]))
		}
		at++
	case 'L':
		in.far = at
		if at+4 <= len(b) {
			in.to = int64(at+4) + int64(int32(binary.LittleEndian.Uint32(b[at:])))
		}
		at += 4
	case 'X':
		return instruction{}
	}
	if at > len(b) {
		return instruction{}
	}
	if in.kind == still && in.far > 0 {
		in.kind = relative
	}
	in.len = at
	return in
}

// kindOf returns what the opcode says of the kind.
func kindOf(c byte, zero bool) kind {
	switch {
	case zero && c == 0x05:
		return system
	case zero && c >= 0x80 && c <= 0x8f, !zero && c >= 0x70 && c <= 0x7f:
		return branches
	case zero:
		return still
	case c == 0xe9 || c == 0xeb:
		return leads
	case c == 0xe8:
		return calls
	case c >= 0xe0 && c <= 0xe3:
		return fixed
	case c == 0xc2 || c == 0xc3 || c == 0xf4 || c == 0xcc:
		return returns
	}
	return still
}

// isFiller reports whether an instruction does nothing: the space between functions.
func (in instruction) isFiller(b []byte) bool {
	return in.kind != unknown && (b[in.len-1] == 0x90 && in.modrm == 0 || in.len == 1 && b[0] == 0xcc || in.modrm > 0 && in.opcode == 0x1f && b[in.modrm-2] == 0x0f)
}

// putAt returns the instruction b, which was at from, as it is at to; nil: it cannot be there.
func (in instruction) putAt(b []byte, from, to uint64) []byte {
	b = append([]byte(nil), b[:in.len]...)
	leadsTo := from + uint64(in.to)
	switch in.kind {
	case still, returns:
		if in.far > 0 {
			break
		}
		return b
	case leads:
		return encodeJump(to, leadsTo)
	case calls, branches:
		head := []byte{0xe8}
		if in.kind == branches {
			head = []byte{0x0f, 0x80 | in.opcode&0xf}
		}
		j := encodeJump(to+uint64(len(head))-1, leadsTo) // its distance
		if j == nil {
			return nil
		}
		return append(head, j[1:]...)
	case relative:
	default:
		return nil
	}
	d := int64(int32(binary.LittleEndian.Uint32(b[in.far:]))) + int64(from-to)
	if d != int64(int32(d)) {
		return nil
	}
	binary.LittleEndian.PutUint32(b[in.far:], uint32(d))
	return b
}

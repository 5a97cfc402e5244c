package inject

import (
	"encoding/binary"
	"math"
)

// begin is the code that calls the library's start and goes back to where the thread was.
//
//	x0 to x4 arguments of ds_free_start   x19 ds_free_start   x23 for the result   x24 frame
var begin = encodeWords(
	0xd63f0260, // blr x19
	0xf90002e0, // str x0, [x23]
	0x9100031f, // mov sp, x24
	0xd2801168, // mov x8, #SYS_rt_sigreturn
	svc,
)

// jumpSize is the length of a jump.
const jumpSize = 4

// Opcodes of a jump and of a call, whose distance is in the low bits.
const (
	jumpCode = 0x14000000
	callCode = 0x94000000
)

// encodeBranch returns the instruction by which one address jumps to another, or calls it. False:
// that is too far.
func encodeBranch(opcode uint32, from, to uint64) (uint32, bool) {
	const most = 1 << 27
	d := int64(to - from)
	return opcode | uint32(d>>2)&0x3ffffff, d >= -most && d < most && d%4 == 0
}

// moves say where a thread goes on whose next instruction a jump replaces: nowhere else. A jump
// replaces one instruction, and what the kernel repeats is there again.
type moves struct{}

// stubMost is how many instructions a stub has at most.
const stubMost = 19

// stubsSize is how much memory they take.
func (p *program) stubsSize() uint64 {
	return pageUp(uint64(len(begin) + 16*(len(p.sites)+2) + 4*stubMost*len(p.sites)))
}

// makeStubs makes the stubs of a program that was loaded base from its addresses, with the library
// at lib. They begin with the code once.
func (p *program) makeStubs(once []byte, at, base uint64, l *library, lib uint64) (*stubs, error) {
	s := &stubs{at: at, b: append([]byte(nil), once...), low: math.MaxUint64}
	for len(s.b)%16 != 0 {
		s.b = append(s.b, 0)
	}
	s.table = at + uint64(len(s.b))
	start := s.table + 16*uint64(len(p.sites)+1)
	var text []byte
	high := uint64(0)
	for _, place := range p.sites {
		from, to := base+place.at, start+uint64(len(text))
		a := assembler{at: to, ok: true}
		opcode := uint32(jumpCode)
		switch place.kind {
		case callsPoll:
			opcode = callCode
			a.makePollStub(base+place.calls, lib+l.symbols[symPoll])
		case clones:
			a.makeCloneStub(from)
		case ofGo:
			a.goCall(from, lib+l.symbols[symGo])
		case ofC:
			a.makeCallStub(from, lib+l.symbols[symEntry], lib+l.symbols[symBehind])
		}
		j, near := encodeBranch(opcode, from, to)
		if !near || !a.ok {
			return nil, errFar
		}
		text = append(text, encodeWords(a.list...)...)
		s.b = binary.LittleEndian.AppendUint64(s.b, from)
		s.b = binary.LittleEndian.AppendUint64(s.b, uint64(j))
		s.jumps = append(s.jumps, written{from, encodeWords(j)})
		s.low, high = min(s.low, pageOf(from)), max(high, pageUp(from+jumpSize))
	}
	s.b = append(append(s.b, make([]byte, 16)...), text...)
	s.pages = high - s.low
	return s, nil
}

// assembler writes a stub.
type assembler struct {
	at   uint64
	list []uint32
	ok   bool // nothing is too far
}

func (a *assembler) putWords(list ...uint32) { a.list = append(a.list, list...) }

func (a *assembler) putBranch(opcode uint32, to uint64) {
	word, near := encodeBranch(opcode, a.at+4*uint64(len(a.list)), to)
	a.putWords(word)
	a.ok = a.ok && near
}

// saveRegisters puts x16, x17 and x30 on the stack, getBack takes them from there.
func (a *assembler) saveRegisters() {
	a.putWords(0xa9be47f0, // stp x16, x17, [sp, #-32]!
		0xf9000bfe) // str x30, [sp, #16]
}

func (a *assembler) getBack() {
	a.putWords(0xf9400bfe, // ldr x30, [sp, #16]
		0xa8c247f0) // ldp x16, x17, [sp], #32
}

// makeCallStub makes the stub of a place of C (free/entry_arm64.c).
func (a *assembler) makeCallStub(from, entry, behind uint64) {
	a.saveRegisters()
	a.putBranch(callCode, entry)
	a.getBack()
	a.putBranch(jumpCode, from+jumpSize)
	a.getBack()
	a.putWords(svc)
	a.putBranch(jumpCode, from+jumpSize)
	a.getBack()
	a.putWords(svc)
	a.saveRegisters()
	a.putBranch(callCode, behind)
	a.getBack()
	a.putBranch(jumpCode, from+jumpSize)
}

// goCall makes that of Syscall6.
func (a *assembler) goCall(from, entry uint64) {
	a.putWords(0x10000051) // adr x17, . + 8
	a.putBranch(jumpCode, entry)
	a.putWords(svc)
	a.putBranch(jumpCode, from+jumpSize)
}

// makeCloneStub makes that of runtime.clone: a new thread has no slot.
func (a *assembler) makeCloneStub(from uint64) {
	a.putWords(svc,
		0xb5000040, // cbnz x0, . + 8
		0xd51bd05f) // msr tpidr_el0, xzr
	a.putBranch(jumpCode, from+jumpSize)
}

// makePollStub makes that of the call of runtime_pollWait: x16 has what the program calls.
func (a *assembler) makePollStub(calls, entry uint64) {
	pages := uint32(int64(pageOf(calls)-pageOf(a.at)) / pageSize)
	a.putWords(0x90000010|pages&3<<29|pages>>2&0x7ffff<<5, // adrp x16, calls
		0x91000210|uint32(calls%pageSize)<<10) // add x16, x16, #calls
	a.putBranch(jumpCode, entry)
}

// isRepeating reports whether a thread is about to make a system call again: the kernel has gone
// back to its instruction.
func (t *tracer) isRepeating(r *registers) bool {
	b := make([]byte, jumpSize)
	return t.readMemory(r.Pc, b) == nil && binary.LittleEndian.Uint32(b) == svc
}

// repeatCall has nothing to do: the kernel has gone back.
func (t *tracer) repeatCall(*registers) {}

func (r *running) moveThreads(*tracer, moves) error     { return nil }
func (r *running) noHandlerInside(*tracer, moves) error { return nil }

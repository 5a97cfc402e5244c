package inject

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Supported reports whether this machine's programs can be done.
const Supported = true

// pageSize is amd64's.
const pageSize = 4096

// machine is how files name it, rRelative its kind of relocation (elf.h).
const (
	machine   = "amd64"
	rRelative = 8
)

// errMachine says that a program is not for amd64, or this process.
var errMachine = errors.New("it is not for amd64")

// errBase says that the library could not find what it knows of a thread.
var errBase = errors.New("it uses the GS base itself, by which the library finds what it knows of a thread")

// Distances from the text at which memory is looked for: a jump reaches 2 GB. Above a program at a
// low address is its heap, which gets as much room as there is.
const (
	reach     = 0x7f00_0000
	below     = 0x4000_0000
	nextPlace = 0x0400_0000
	places    = 8
	low       = 1 << 32
)

// placesNear returns where memory of this size is looked for.
func placesNear(text, size uint64) (list []uint64) {
	want := text - below - size
	if text < low {
		want = text + reach - size
	}
	for i := range uint64(places) {
		list = append(list, want-i*nextPlace)
	}
	return list
}

// registers are a thread's.
type registers = unix.PtraceRegs

func getRegisters(tid int, r *registers) error { return unix.PtraceGetRegs(tid, r) }
func setRegisters(tid int, r *registers) error { return unix.PtraceSetRegs(tid, r) }

func nextOf(r *registers) uint64   { return r.Rip }
func stackOf(r *registers) uint64  { return r.Rsp }
func resultOf(r *registers) uint64 { return r.Rax }

// callRegisters returns those by which a thread makes a system call at the gate.
func callRegisters(r registers, gate, frame, nr uint64, a []uint64) registers {
	r.Rip, r.Rsp, r.Rax, r.Orig_rax = gate, frame, nr, ^uint64(0)
	for i, to := range []*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.R10, &r.R8, &r.R9} {
		if i < len(a) {
			*to = a[i]
		}
	}
	return r
}

// beginRegisters returns those by which a thread runs begin: it calls start with arguments.
func beginRegisters(r registers, s *stubs, frame, stack uint64, a [5]uint64, start uint64) registers {
	r.Rip, r.Rsp, r.Orig_rax = s.at, stack, ^uint64(0)
	r.Rdi, r.Rsi, r.Rdx, r.Rcx, r.R8 = a[0], a[1], a[2], a[3], a[4]
	r.R13, r.Rbp, r.R12 = start, frame+resultOff, frame
	return r
}

// xstate is NT_X86_XSTATE (elf.h).
const (
	xstate    = 0x202
	maxXState = 16 << 10
)

// floatingPoint returns a thread's floating point registers; none: this processor has them in the
// old form alone.
func floatingPoint(tid int) ([]byte, error) {
	b := make([]byte, maxXState)
	n, err := regSet(getRegSet, tid, xstate, b)
	return b[:n], err
}

// slotNone is where the library maps a page (free/slot.h: SLOT_NONE).
const slotNone = 0x100000

// slotsAreFree says why the library could not keep what it knows of threads; nil: it can.
func (r *running) slotsAreFree(*tracer) error {
	for _, regs := range r.threads {
		if regs.Gs_base != 0 {
			return errBase
		}
	}
	if text, err := os.ReadFile(r.procPath("maps")); err != nil {
		return err
	} else if mappingEnd(string(text), slotNone) != 0 {
		return errPage // the library would say so, but too late: there are jumps to it then
	}
	return nil
}

// begin is the code that calls the library's start and goes back to where the thread was.
//
//	rdi to rcx arguments of ds_free_start   r13 ds_free_start   rbp for the result   r12 frame
var begin = []byte{
	0x41, 0xff, 0xd5, // call *%r13
	0x48, 0x89, 0x45, 0, // mov %rax, (%rbp)
	0x4c, 0x89, 0xe4, // mov %r12, %rsp
	0xb8, 15, 0, 0, 0, // mov $SYS_rt_sigreturn, %eax
	0x0f, 0x05, // syscall
}

// symbols are those of the library that inject uses.
var symbols = []string{symTrace, symBoot, symStart, symEntry, symGo, symPoll, symSignal, symVersion}

// filterMachine is how a filter for system calls names the architecture.
const filterMachine = unix.AUDIT_ARCH_X86_64

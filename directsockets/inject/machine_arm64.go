package inject

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Supported reports whether this machine's programs can be done.
const Supported = true

// pageSize is the size that this is for. Some kernels have larger pages.
const pageSize = 4096

// machine is how files name it, rRelative its kind of relocation (elf.h).
const (
	machine   = "arm64"
	rRelative = 1027
)

// errMachine says that a program is not for arm64, or this process.
var errMachine = errors.New("it is not for arm64")

// errBase says that the library could not find what it knows of a thread.
var errBase = errors.New("it uses the second word at TPIDR_EL0 itself, by which the library finds what it knows of a thread")

// Distances from the text at which memory is looked for: a jump reaches 128 MB, across the text.
const (
	reach     = 0x0700_0000
	nearest   = 0x0100_0000
	nextPlace = 0x0080_0000
	low       = 1 << 32
)

// placesNear returns where memory of this size is looked for. Above a program at a low address is
// its heap, which gets as much room as there is. Below a static PIE the kernel maps what the
// program asks for.
func placesNear(text, size uint64) (list []uint64) {
	for distance := uint64(nearest); distance+size < reach; distance += nextPlace {
		if text < low {
			list = append(list, text+nearest+reach-size-distance)
		} else {
			list = append(list, text-distance-size, text+distance)
		}
	}
	return list
}

// registers are a thread's (struct user_pt_regs).
type registers struct {
	X              [31]uint64
	Sp, Pc, Pstate uint64
}

// Sets of registers (elf.h), and what one of vectors says of itself (asm/ptrace.h).
const (
	general       = 1     // NT_PRSTATUS
	vectors       = 2     // NT_PRFPREG
	longVectors   = 0x405 // NT_ARM_SVE
	streaming     = 0x40b // NT_ARM_SSVE
	longHead      = 16    // struct user_sve_header
	longFlagsAt   = 12
	longRegisters = 1 // SVE_PT_REGS_SVE
	fpsimdSize    = 528
)

func getRegisters(tid int, r *registers) error {
	b := make([]byte, binary.Size(r))
	if _, err := regSet(getRegSet, tid, general, b); err != nil {
		return err
	}
	_, err := binary.Decode(b, binary.LittleEndian, r)
	return err
}

func setRegisters(tid int, r *registers) error {
	b, err := binary.Append(nil, binary.LittleEndian, r)
	if err == nil {
		_, err = regSet(setRegSet, tid, general, b)
	}
	return err
}

func nextOf(r *registers) uint64   { return r.Pc }
func stackOf(r *registers) uint64  { return r.Sp }
func resultOf(r *registers) uint64 { return r.X[0] }

// callRegisters returns those by which a thread makes a system call at the gate.
func callRegisters(r registers, gate, frame, nr uint64, a []uint64) registers {
	r.Pc, r.Sp, r.X[8] = gate, frame, nr
	copy(r.X[:6], a)
	return r
}

// beginRegisters returns those by which a thread runs begin: it calls start with arguments.
func beginRegisters(r registers, s *stubs, frame, stack uint64, a [5]uint64, start uint64) registers {
	r.Pc, r.Sp = s.at, stack
	copy(r.X[:5], a[:])
	r.X[19], r.X[23], r.X[24] = start, frame+resultOff, frame
	return r
}

// errVectors says that a thread uses registers that no frame of the tracer has.
var errVectors = errors.New("each of its threads computes with long vectors")

// floatingPoint returns a thread's floating point registers. A thread in a system call has no long
// vectors.
func floatingPoint(tid int) ([]byte, error) {
	head := make([]byte, longHead)
	for _, kind := range []int{longVectors, streaming} {
		n, err := regSet(getRegSet, tid, kind, head) // an error: the processor has none
		if err == nil && n == longHead && head[longFlagsAt]&longRegisters != 0 {
			return nil, errVectors
		}
	}
	b := make([]byte, fpsimdSize)
	_, err := regSet(getRegSet, tid, vectors, b)
	return b, err
}

// slotsAreFree says why the library could not keep what it knows of threads; nil: it can. A thread
// of a libc leaves the second word at TPIDR_EL0 alone. Go's have no use for the register, but have
// the one that a dynamic linker has given to the first: they get it back as 0.
func (r *running) slotsAreFree(t *tracer) error {
	const pointer = 0x401 // NT_ARM_TLS
	for tid := range r.threads {
		b := make([]byte, 8)
		if r.program.isGo {
			if _, err := regSet(setRegSet, tid, pointer, b); err != nil {
				return t.goneError(err)
			}
			continue
		}
		if _, err := regSet(getRegSet, tid, pointer, b); err != nil {
			return t.goneError(err)
		}
		at := binary.LittleEndian.Uint64(b)
		if at == 0 || t.readMemory(at+8, b) != nil {
			continue // a thread that is about to end may have no memory for it any more
		}
		if binary.LittleEndian.Uint64(b) != 0 {
			return errBase
		}
	}
	return nil
}

// symbols are those of the library that inject uses.
var symbols = []string{symTrace, symBoot, symStart, symEntry, symBehind, symGo, symPoll, symVersion}

// symBehind is called behind a system call that returns twice.
const symBehind = "ds_free_behind"

// filterMachine is how a filter for system calls names the architecture.
const filterMachine = unix.AUDIT_ARCH_AARCH64

// errPages says that the kernel's pages have another size.
var errPages = errors.New("this kernel has pages of another size than 4096 bytes")

// pagesFit says whether this kernel has pages of pageSize.
func pagesFit() error {
	if os.Getpagesize() != pageSize {
		return errPages
	}
	return nil
}

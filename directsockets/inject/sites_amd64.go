package inject

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"exnet/internal/display"
	"exnet/internal/elffile"
)

// historySize is how many instructions before a system call are looked at.
const historySize = 16

// candidate is a syscall instruction, found by reading the text from its start.
type candidate struct {
	at      int   // from the start of the text
	history []int // where the instructions before it begin
}

// systemCall is the instruction.
var systemCall = []byte{0x0f, 0x05}

// findC finds the system calls of a static C program. It is done only if all that may be a
// socket's can be replaced: one that is missed would go past the library.
func (p *program) findC(f *elffile.File, running bool, dir string) error {
	if p.findKept(f, dir) {
		return nil
	}
	text := make([]byte, p.text.Size)
	if n, err := f.ReadAt(text, int64(p.text.Off)); n < len(text) {
		return errors.Join(err, io.ErrUnexpectedEOF)
	}
	if !bytes.Contains(text, systemCall) {
		return errNoSites
	}
	if bytes.Contains(text, goSyscall6) { // a goroutine's stack has no room for a hook
		return errHidden
	}
	found, targets, doubt, spaces := sweepText(text)
	for at := 0; ; at++ {
		i := bytes.Index(text[at:], systemCall)
		if i < 0 {
			break
		}
		at += i
		if _, known := slices.BinarySearchFunc(found, at, func(c candidate, at int) int { return c.at - at }); !known && doubt.anyBefore(at) {
			return fmt.Errorf("%w: what is at %#x cannot be read", errForm, p.text.Addr+uint64(at))
		}
	}
	return p.placeJumps(text, found, targets, spaces, running)
}

// placeJumps finds how each system call is replaced.
func (p *program) placeJumps(text []byte, found []candidate, targets marks, spaces []space, running bool) error {
	used := make(marks, len(targets)) // by the places so far
	var missed []string
	for _, c := range found {
		nr := c.callNumber(text, targets)
		if nr >= 0 && neverSockets[nr] || nr == unix.SYS_EXIT && c.afterCall(text) {
			continue
		}
		ways := []func() (site, bool){
			func() (site, bool) { return c.jumpBehind(text, targets) },
			func() (site, bool) { return c.jumpBefore(text, targets) },
			func() (site, bool) { return c.jumpBeside(text, targets, used, spaces) },
		}
		if running {
			slices.Reverse(ways)
		}
		var s site
		ok := false
		for _, way := range ways {
			if s, ok = way(); ok && s.fits(used) {
				break
			}
			ok = false
		}
		if !ok && mayPass[nr] {
			continue
		}
		if !ok {
			missed = append(missed, fmt.Sprintf("%#x (number %d)", p.text.Addr+uint64(c.at), nr))
			continue
		}
		s.markUsed(used)
		p.sites = append(p.sites, s)
	}
	switch n := len(missed) - 1; {
	case n > 0:
		return fmt.Errorf("%w: the one at %s, and %s", errForm, missed[0], display.Count(n, "other"))
	case n == 0:
		return fmt.Errorf("%w: the one at %s", errForm, missed[0])
	case len(p.sites) == 0:
		return errNoSites
	}
	p.relocateSites()
	return nil
}

// relocateSites turns the places' distances from the text's start into addresses.
func (p *program) relocateSites() {
	for i := range p.sites {
		p.sites[i].at += p.text.Addr
		p.sites[i].via += p.text.Addr
	}
}

// errForm says that a program has a system call that no jump can replace.
var errForm = errors.New("a system call has a form that cannot be replaced")

// marks are places of the text, a bit each.
type marks []uint64

func (m marks) set(at int)      { m[at/64] |= 1 << (at % 64) }
func (m marks) has(at int) bool { return m[at/64]>>(at%64)&1 != 0 }

// noneIn reports whether there is none in from..to.
func (m marks) noneIn(from, to int) bool {
	for i := from; i < to; i++ {
		if m.has(i) {
			return false
		}
	}
	return true
}

// anyBefore reports whether there is one among the bytes before.
func (m marks) anyBefore(at int) bool {
	return !m.noneIn(max(at-doubtful, 0), at+1)
}

// doubtful is how many bytes behind what is no instruction may be read wrong.
const doubtful = 64

// space is what a compiler leaves unused between functions.
type space struct{ from, to int }

// sweepText reads all instructions. targets are the places that jumps and calls lead to, doubt
// those where there is no instruction, spaces those that nobody comes to.
func sweepText(text []byte) (found []candidate, targets, doubt marks, spaces []space) {
	targets, doubt = make(marks, len(text)/64+1), make(marks, len(text)/64+1)
	var history [historySize]int
	ended := false // nobody comes here from the instruction before
	for at, n := 0, uint(0); at < len(text); n++ {
		if length := quickLength(text[at:]); length > 0 && !ended {
			history[n%historySize] = at
			at += length
			continue
		}
		in := decodeInstruction(text[at:])
		fills := ended && in.isFiller(text[at:])
		if last := len(spaces) - 1; fills && last >= 0 && spaces[last].to == at {
			spaces[last].to += in.len
		} else if fills {
			spaces = append(spaces, space{at, at + in.len})
		}
		ended = fills || in.kind == returns || in.kind == leads
		switch in.kind {
		case unknown:
			doubt.set(at)
			in.len = 1
		case leads, branches, calls, fixed:
			if to := int64(at) + in.to; to >= 0 && to < int64(len(text)) {
				targets.set(int(to))
			}
		case system:
			c := candidate{at: at}
			for i := n - min(n, historySize); i < n; i++ {
				c.history = append(c.history, history[i%historySize])
			}
			found = append(found, c)
		}
		history[n%historySize] = at
		at += in.len
	}
	return found, targets, doubt, spaces
}

// neverSockets are system calls that the library does not look at. Some could not come back from
// it: rt_sigreturn has no registers to return to, and a thread that unmaps its own stack has no
// stack.
var neverSockets = map[int]bool{
	unix.SYS_MUNMAP: true, unix.SYS_BRK: true, unix.SYS_RT_SIGRETURN: true,
	unix.SYS_MADVISE: true, unix.SYS_GETPID: true, unix.SYS_GETTIMEOFDAY: true, unix.SYS_ARCH_PRCTL: true, unix.SYS_GETTID: true,
	unix.SYS_TKILL: true, unix.SYS_TIME: true, unix.SYS_FUTEX: true, unix.SYS_SET_TID_ADDRESS: true, unix.SYS_CLOCK_GETTIME: true,
	unix.SYS_TGKILL: true, unix.SYS_SET_ROBUST_LIST: true, unix.SYS_PRLIMIT64: true, unix.SYS_GETRANDOM: true, unix.SYS_RSEQ: true,
}

// afterCall reports whether another system call is just before, as where a thread has unmapped its
// stack and ends.
func (c candidate) afterCall(text []byte) bool {
	return slices.ContainsFunc(c.history, func(at int) bool { return decodeInstruction(text[at:]).kind == system })
}

// callNumber returns the number of the system call, -1: it is not known.
func (c candidate) callNumber(text []byte, targets marks) int {
	for i := len(c.history) - 1; i >= 0; i-- {
		at := c.history[i]
		b := text[at:]
		in := decodeInstruction(b)
		if nr, sets := constantIn(b, in); sets {
			return nr
		}
		if in.kind != still && in.kind != relative || changesRAX(b, in) || targets.has(at) {
			break // a target: who jumps there has set the number
		}
	}
	return -1
}

// constantIn returns the number that an instruction writes to rax. A byte alone is written where
// the others are zero.
func constantIn(b []byte, in instruction) (nr int, sets bool) {
	number := func(at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }
	switch {
	case in.kind != still || in.rex&1 != 0:
	case in.opcode == 0xb8 && in.modrm == 0 && in.rex&8 == 0 && in.len >= 5:
		return number(in.len - 4), true
	case in.opcode == 0xb0 && in.modrm == 0:
		return int(b[in.len-1]), true
	case in.opcode == 0xc7 && in.modrm > 0 && b[in.modrm] == 0xc0 && in.len >= 6:
		return number(in.len - 4), true
	case (in.opcode == 0x31 || in.opcode == 0x33) && in.modrm > 0 && b[in.modrm] == 0xc0 && in.rex&4 == 0:
		return 0, true
	}
	return 0, false
}

// changesRAX reports whether an instruction may write to rax.
func changesRAX(b []byte, in instruction) bool {
	if in.modrm == 0 {
		c := in.opcode
		return !(c >= 0xb1 && c <= 0xbf && c != 0xb8 || c >= 0x50 && c <= 0x5f && c != 0x58 || c == 0x90 || in.rex&1 != 0 && c >= 0xb0 && c <= 0xbf)
	}
	m := b[in.modrm]
	reg, rm, isReg := m>>3&7|in.rex<<1&8, m&7|in.rex<<3&8, m>>6 == 3
	switch in.opcode {
	case 0x89, 0x01, 0x21, 0x29, 0x31, 0x09, 0x83, 0x81, 0xc7, 0xc1: // to the operand that may be memory
		return isReg && rm == 0
	case 0x8b, 0x8d, 0x63, 0x03, 0x23, 0x2b, 0x33, 0x0b: // to the register
		return reg == 0
	case 0x85, 0x39, 0x3b, 0x84, 0x38: // comparisons
		return false
	case 0x1f, 0x1e: // nop, endbr64
		return b[in.modrm-2] != 0x0f
	}
	return true
}

// fits reports whether no other place has bytes of this one. Its addresses are the text's yet.
func (s site) fits(used marks) bool { return used.noneIn(int(s.at), int(s.at+s.next)) }

// markUsed marks its bytes.
func (s site) markUsed(used marks) {
	for i := range s.next {
		used.set(int(s.at + i))
	}
	if s.short != nil {
		for i := range uint64(jumpSize) {
			used.set(int(s.via + i))
		}
	}
}

// jumpBehind returns what a jump replaces that begins at the system call, and false if it cannot.
func (c candidate) jumpBehind(text []byte, targets marks) (s site, ok bool) {
	at := c.at
	end, ends := at+len(systemCall), false
	for end < at+jumpSize {
		if end >= len(text) {
			return s, false
		}
		in := decodeInstruction(text[end:])
		switch {
		case ends && !in.isFiller(text[end:]), in.kind == unknown, in.kind == system, in.kind == fixed:
			return s, false
		case !ends:
			s.moved = append(s.moved, movedInstruction{in, text[end : end+in.len]})
			ends = in.kind == returns || in.kind == leads
		}
		end += in.len
	}
	s.at, s.next, s.ends = uint64(at), uint64(end-at), ends
	return s, targets.noneIn(at+1, at+jumpSize)
}

// jumpBefore returns what a jump replaces that begins before the system call, and false if it
// cannot.
func (c candidate) jumpBefore(text []byte, targets marks) (s site, ok bool) {
	end := c.at + len(systemCall)
	for i := len(c.history) - 1; i >= 0; i-- {
		at := c.history[i]
		in := decodeInstruction(text[at:])
		if in.kind != still && in.kind != relative {
			return s, false
		}
		s.first = slices.Insert(s.first, 0, movedInstruction{in, text[at : at+in.len]})
		if end-at >= jumpSize {
			s.at, s.next = uint64(at), uint64(end-at)
			return s, targets.noneIn(at+1, end)
		}
	}
	return s, false
}

// jumpBeside returns what replaces a system call by a jump of two bytes, which reaches a space
// where the jump of five fits, and false if there is none.
func (c candidate) jumpBeside(text []byte, targets, used marks, spaces []space) (s site, ok bool) {
	next := c.at + len(systemCall)
	if c.at+jumpSize > len(text) || !used.noneIn(c.at, next) {
		return s, false
	}
	for _, gap := range spaces {
		for from := gap.from; from+jumpSize <= gap.to; from++ {
			if from-next == int(int8(from-next)) && targets.noneIn(from, from+jumpSize) && used.noneIn(from, from+jumpSize) {
				short := append([]byte{0xeb, byte(from - next)}, text[next:c.at+jumpSize]...)
				return site{at: uint64(c.at), next: uint64(len(systemCall)), short: short, via: uint64(from)}, true
			}
		}
	}
	return s, false
}

// mayPass are system calls that the library may miss: the end of the process, what signals are
// blocked, and what memory can be executed.
var mayPass = map[int]bool{unix.SYS_RT_SIGPROCMASK: true, unix.SYS_EXIT_GROUP: true, unix.SYS_MMAP: true, unix.SYS_MPROTECT: true}

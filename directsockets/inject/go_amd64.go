package inject

import (
	"bytes"
	"cmp"
	"errors"

	"exnet/internal/elffile"
)

// site is a place of the text that a jump replaces.
type site struct {
	at    uint64
	first []movedInstruction // what precedes the system call, from at on
	moved []movedInstruction // what follows it; both go into the stub
	next  uint64             // where the stub comes back to, from at on
	ends  bool               // it does not come back: the last instruction goes elsewhere
	short []byte             // a jump of two bytes, and what is behind it; nil: one of five
	via   uint64             // where it leads, and the jump of five is
	calls uint64             // Go: the site is a call of the function at this address; 0: it is no call
	to    string             // Go: the symbol of the library that the call leads to
	ofGo  bool               // it is Go's Syscall6
}

// size is how many bytes of the place change.
func (s site) size() int {
	if s.short != nil {
		return shortJump
	}
	return jumpSize
}

// mayRun says why the program cannot get the library while it runs; nil: it can.
func (p *program) mayRun() error {
	if p.isGo && p.sites[0].short == nil {
		return errNoPadding
	}
	return nil
}

// movedInstruction is an instruction that a stub has.
type movedInstruction struct {
	instruction
	b []byte
}

// Go returns why a jump cannot take the place of the function by which a program of Go makes its
// system calls, nil if it can: also in one with cgo, where the preload library does so.
func Go(path string) error {
	f, err := elffile.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var p program
	if err := p.findText(f); err != nil && !errors.Is(err, errNoRoom) {
		return err
	}
	return p.findGo(f, "")
}

// goCallAt is where a jump replaces Syscall6, and goBehind how far behind it the kernel returns.
const (
	goCallAt = 0
	goBehind = 14
)

// goSyscall6 is Syscall6 of internal/runtime/syscall/linux (Go 1.26) and internal/runtime/syscall
// (1.24 and 1.25), through which all of a Go program's sockets reach the kernel.
var goSyscall6 = []byte{
	0x49, 0x89, 0xf2, // mov %rsi, %r10
	0x48, 0x89, 0xfa, // mov %rdi, %rdx
	0x48, 0x89, 0xce, // mov %rcx, %rsi
	0x48, 0x89, 0xdf, // mov %rbx, %rdi
	0x0f, 0x05, // syscall
	0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, // cmp $-4095, %rax
	0x76, 0x15, // jbe ok
	0x48, 0xf7, 0xd8, // neg %rax
	0x48, 0x89, 0xc1, // mov %rax, %rcx
	0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff, // mov $-1, %rax
	0x48, 0xc7, 0xc3, 0, 0, 0, 0, // mov $0, %rbx
	0xc3,             // ret
	0x48, 0x89, 0xd3, // ok: mov %rdx, %rbx
	0x48, 0xc7, 0xc1, 0, 0, 0, 0, // mov $0, %rcx
	0xc3, // ret
}

// goSite returns how Syscall6 is replaced. What a compiler leaves unused behind it has room for the
// long jump, so that no instruction of it changes but the first. The library knows how far that is
// behind the system call (GO_JUMP of preload/hooks/go.h).
func goSite(at uint64, behind []byte) site {
	const fill = 0xcc
	if len(behind) < jumpSize || len(bytes.Trim(behind[:jumpSize], string([]byte{fill}))) > 0 {
		return site{at: at, ofGo: true}
	}
	short := append([]byte{0xeb, byte(len(goSyscall6) - shortJump)}, goSyscall6[shortJump:jumpSize]...)
	return site{at: at, ofGo: true, short: short, via: at + uint64(len(goSyscall6))}
}

// goOldPoll is the call by which the runtime of Go 1.19 and older waits, past Syscall6.
var goOldPoll = []byte{
	0xb8, 0x19, 1, 0, 0, // mov $SYS_epoll_pwait, %eax
	0x0f, 0x05, // syscall
}

// findGo finds Syscall6 by its instructions: it is assembly, the same in every program, and the
// whole function is compared. A stripped program has it, too.
func (p *program) findGo(f *elffile.File, dir string) error {
	if p.findKept(f, dir) {
		return nil
	}
	at, behind, err := p.findBytes(f, goSyscall6, jumpSize)
	if err != nil {
		return err
	}
	if old, _, err := p.findBytes(f, goOldPoll, 0); at == 0 || old != 0 || err != nil {
		return cmp.Or(err, errOldGo)
	}
	p.sites = append([]site{goSite(at, behind)}, callSites(f)...)
	return nil
}

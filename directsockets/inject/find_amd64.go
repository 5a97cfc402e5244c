package inject

import (
	"bytes"
	"errors"
	"io"
	"os"

	"exnet/internal/elffile"
)

// program is what find learns about a program's file. Addresses are the file's.
type program struct {
	info    os.FileInfo // of the file
	isGo    bool
	movable bool
	entry   uint64
	low     uint64 // of its first segment
	text    elffile.Segment
	sites   []site
	toKeep  kept   // where the sites are to be kept
	gate    uint64 // where the text ends: the rest of its page is executable, and no code uses it
}

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
}

// movedInstruction is an instruction that a stub has.
type movedInstruction struct {
	instruction
	b []byte
}

// pageSize is amd64's.
const pageSize = 4096

// Reasons why a file cannot be done.
var (
	errDynamic = errors.New("it is dynamically linked")
	errCgo     = errors.New("it uses cgo: start it with exn-run")
	errOldGo   = errors.New("its Go is older than 1.24, or has a Syscall6 that this version does not know")
	errNoSites = errors.New("none of its system calls has a form that can be replaced")
	errNoRoom  = errors.New("its text leaves no byte unused")
	errShape   = errors.New("its text is not one segment")
	errPage    = errors.New("the page at 1 MiB is taken, where the library marks threads that are new to it")
	errBase    = errors.New("it uses the GS base itself, by which the library finds what it knows of a thread")
	errFar     = errors.New("there is no free memory near its text")
)

// find reads the file of a program. Where a program runs already, it prefers places whose jump
// leaves the instruction behind the system call as it is: threads wait in the kernel there. dir has
// what was found in programs of C that were started before, "": nothing is kept.
func find(path string, running bool, dir string) (*program, error) {
	f, err := elffile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Machine != elffile.Machines["amd64"] {
		return nil, errMachine
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	_, notGo := f.Modules()
	p := &program{info: info, isGo: notGo == nil, movable: f.Movable(), entry: f.Entry()}
	if needed, err := f.Needed(); err != nil {
		return nil, err
	} else if p.isGo && len(needed) > 0 {
		return nil, errCgo
	}
	if f.Interpreter() != "" && !p.isGo { // Go links even a program of its own code alone so (-buildmode=pie)
		return nil, errDynamic
	}
	if err := p.findText(f); err != nil {
		return nil, err
	}
	if p.isGo {
		err = p.findGo(f)
	} else {
		if running && p.text.Size > maxRunning {
			return nil, errShape
		}
		err = p.findC(f, running, dir)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
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
	return p.findGo(f)
}

// goArgument is what ds_free_start is to know of the program: 1, it is Go's.
func (p *program) goArgument() uint64 {
	if p.isGo {
		return 1
	}
	return 0
}

// isOf reports whether the program was read from the file, which has not changed since.
func (p *program) isOf(file string) bool {
	info, err := os.Stat(file)
	return err == nil && p != nil && os.SameFile(p.info, info) && info.ModTime().Equal(p.info.ModTime()) && info.Size() == p.info.Size()
}

// maxText bounds the text that is searched, maxRunning that of a running program of C, which may be
// a stranger's.
const (
	maxText    = 1 << 30
	maxRunning = 64 << 20
)

// findText finds the segment of code, and unused bytes behind it: the rest of its last page.
func (p *program) findText(f *elffile.File) error {
	p.low = 1 << 47
	var loads []elffile.Segment
	for _, s := range f.Segments() {
		if s.Kind != elffile.PTLoad {
			continue
		}
		loads = append(loads, s)
		p.low = min(p.low, s.Addr)
		if s.Flags&elffile.PFExec == 0 {
			continue
		}
		if p.text.Size != 0 || s.Flags&elffile.PFWrite != 0 || s.Size != s.MemSize || s.Size > maxText || s.Addr > 1<<46 {
			return errShape
		}
		p.text = s
	}
	if p.text.Size == 0 {
		return errShape
	}
	p.gate = p.text.Addr + p.text.Size
	for _, s := range loads {
		if -p.gate%pageSize < uint64(len(gate)) || s.Addr != p.text.Addr && page(s.Addr) == page(p.gate) {
			return errNoRoom
		}
	}
	return nil
}

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
// long jump, so that no instruction of it changes but the first.
func goSite(at uint64, behind []byte) site {
	const fill = 0xcc
	if len(behind) < jumpSize || len(bytes.Trim(behind[:jumpSize], string([]byte{fill}))) > 0 {
		return site{at: at}
	}
	short := append([]byte{0xeb, byte(len(goSyscall6) - shortJump)}, goSyscall6[shortJump:jumpSize]...)
	return site{at: at, short: short, via: at + uint64(len(goSyscall6))}
}

// findGo finds Syscall6 by its instructions: it is assembly, the same in every program, and the
// whole function is compared. A stripped program has it, too.
func (p *program) findGo(f *elffile.File) error {
	const chunk = 1 << 20
	buf := make([]byte, chunk+len(goSyscall6)+jumpSize)
	for off := uint64(0); off < p.text.Size; off += chunk {
		n := min(uint64(len(buf)), p.text.Size-off)
		if _, err := f.ReadAt(buf[:n], int64(p.text.Off+off)); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if i := bytes.Index(buf[:n], goSyscall6); i >= 0 {
			p.sites = []site{goSite(p.text.Addr+off+uint64(i), buf[i+len(goSyscall6):n])}
			if s, ok := pollSite(f); ok {
				p.sites = append(p.sites, s)
			}
			return nil
		}
	}
	return errOldGo
}

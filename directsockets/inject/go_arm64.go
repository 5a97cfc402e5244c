package inject

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"exnet/internal/elffile"
)

// site is an instruction that a jump replaces.
type site struct {
	at    uint64
	kind  kind
	calls uint64 // callsPoll: this function
}

// kind is what an instruction does.
type kind uint8

const (
	ofC       kind = iota // a system call of C
	ofGo                  // that of Syscall6
	clones                // that of runtime.clone
	callsPoll             // the call of runtime_pollWait
)

func (s site) size() int { return jumpSize }

// mayRun says why the program cannot get the library while it runs; nil: it can.
func (p *program) mayRun() error { return nil }

// Go says that the preload library does not do so in a program with cgo.
func Go(string) error { return errCgo }

// kept is what is kept of a program: nothing, its places are found soon.
type kept struct{}

func (p *program) keepSites() {}

// Known says that it is not.
func Known(*elffile.File, string) bool { return false }

// goSyscall6 is Syscall6 of internal/runtime/syscall/linux (Go 1.26) and internal/runtime/syscall
// (1.24 and 1.25), through which all of a Go program's sockets reach the kernel.
var goSyscall6 = encodeWords(
	0xf94007e8, // ldr x8, [sp, #8]
	0xf9400be0, // ldr x0, [sp, #16]
	0xf9400fe1, // ldr x1, [sp, #24]
	0xf94013e2, // ldr x2, [sp, #32]
	0xf94017e3, // ldr x3, [sp, #40]
	0xf9401be4, // ldr x4, [sp, #48]
	0xf9401fe5, // ldr x5, [sp, #56]
	svc,
	0xb13ffc1f, // cmn x0, #4095
	0x540000e3, // b.cc ok
)

// goCallAt is where its system call is, and goBehind how far behind that the kernel returns.
const (
	goCallAt = 28
	goBehind = 4
)

// goClone is the system call of runtime.clone, by which Go makes all threads.
var goClone = encodeWords(
	0xd2801b88, // mov x8, #SYS_clone
	svc,
)

// goOldPoll is the call by which the runtime of Go 1.19 and older waits, past Syscall6.
var goOldPoll = encodeWords(
	0xd28002c8, // mov x8, #SYS_epoll_pwait
	svc,
)

// findGo finds Syscall6 and runtime.clone by their instructions: they are assembly, the same in
// every program. A stripped program has them, too.
func (p *program) findGo(f *elffile.File, _ string) error {
	if err := pagesFit(); err != nil {
		return err
	}
	call, err := p.onlyPlace(f, goSyscall6)
	if err != nil {
		return err
	}
	clone, err := p.onlyPlace(f, goClone)
	if err != nil {
		return err
	}
	if old, _, err := p.findBytes(f, goOldPoll, 0); old != 0 || err != nil {
		return cmp.Or(err, errOldGo)
	}
	p.sites = []site{{at: call + goCallAt, kind: ofGo}, {at: clone + 4, kind: clones}}
	if s, ok := pollSite(f); ok {
		p.sites = append(p.sites, s)
	}
	return nil
}

// onlyPlace returns where the text has these instructions, if that is one place.
func (p *program) onlyPlace(f *elffile.File, want []byte) (at uint64, err error) {
	const chunk = 1 << 20
	buf := make([]byte, chunk+len(want)-4)
	for off := uint64(0); off < p.text.Size; off += chunk {
		n := min(uint64(len(buf)), p.text.Size-off)
		if _, err := f.ReadAt(buf[:n], int64(p.text.Off+off)); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for b := buf[:n]; ; {
			i := bytes.Index(b, want)
			if i < 0 {
				break
			}
			found := p.text.Addr + off + uint64(cap(buf)-cap(b)+i)
			if at != 0 || found%4 != 0 {
				return 0, errOldGo
			}
			at, b = found, b[i+4:]
		}
	}
	if at == 0 {
		return 0, errOldGo
	}
	return at, nil
}

// neverSockets are system calls that the library does not look at.
var neverSockets = map[int]bool{
	unix.SYS_MUNMAP: true, unix.SYS_BRK: true, unix.SYS_RT_SIGRETURN: true,
	unix.SYS_MADVISE: true, unix.SYS_GETPID: true, unix.SYS_GETTIMEOFDAY: true, unix.SYS_GETTID: true,
	unix.SYS_TKILL: true, unix.SYS_FUTEX: true, unix.SYS_SET_TID_ADDRESS: true, unix.SYS_CLOCK_GETTIME: true,
	unix.SYS_TGKILL: true, unix.SYS_SET_ROBUST_LIST: true, unix.SYS_PRLIMIT64: true, unix.SYS_GETRANDOM: true, unix.SYS_RSEQ: true,
}

// historySize is how many instructions before a system call are looked at.
const historySize = 16

// findC finds the system calls of a static C program: an instruction has four bytes and begins at a
// multiple of four.
func (p *program) findC(f *elffile.File, _ bool, _ string) error {
	if err := pagesFit(); err != nil {
		return err
	}
	addr, off, size, ok := f.Place(".text")
	if !ok || addr < p.text.Addr || size > p.text.Size || addr-p.text.Addr > p.text.Size-size {
		addr, off, size = p.text.Addr, p.text.Off, p.text.Size
	}
	text := make([]byte, size)
	if n, err := f.ReadAt(text, int64(off)); n < len(text) {
		return errors.Join(err, io.ErrUnexpectedEOF)
	}
	if bytes.Contains(text, goSyscall6) { // a goroutine's stack has no room for a hook
		return errHidden
	}
	for at := 0; at+4 <= len(text); at += 4 {
		if binary.LittleEndian.Uint32(text[at:]) != svc {
			continue
		}
		nr, after := callNumber(text[:at])
		if nr >= 0 && neverSockets[nr] || nr == unix.SYS_EXIT && after {
			continue // a thread that has unmapped its stack has no room for more
		}
		p.sites = append(p.sites, site{at: addr + uint64(at), kind: ofC})
	}
	if len(p.sites) == 0 {
		return errNoSites
	}
	if len(p.sites) > maxSites {
		return fmt.Errorf("%w: there are %d", errForm, len(p.sites))
	}
	return nil
}

// maxSites bounds the places of a program.
const maxSites = 1 << 16

// errForm says that a program has system calls as none is known.
var errForm = errors.New("its system calls have another form")

// callNumber returns the number that the instructions before a system call write to x8, -1: it is
// not known. after: another call is among them.
func callNumber(before []byte) (nr int, after bool) {
	nr = -1
	for i := 1; i <= historySize && 4*i <= len(before); i++ {
		word := binary.LittleEndian.Uint32(before[len(before)-4*i:])
		switch {
		case word == svc:
			return nr, true
		case nr >= 0:
		case word&0x7fe0001f == 0x52800008: // mov w8 or x8, #n
			nr = int(word >> 5 & 0xffff)
		case word&0x1f == 8, isBranch(word):
			return nr, false // it may write x8, or others come from elsewhere
		}
	}
	return nr, false
}

// isBranch reports whether an instruction branches.
func isBranch(word uint32) bool {
	return word&0x7c000000 == jumpCode || word&0xff000010 == 0x54000000 || word&0x7c000000 == 0x34000000 || word&0xfe000000 == 0xd6000000
}

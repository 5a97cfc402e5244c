//go:build amd64 || arm64

package inject

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/internal/elffile"
)

const (
	maxSegments = 8 // of the library: TRACE_SEGMENTS
	tracerStack = 64 << 10
	numberSize  = 24 // of a number's digits
	// anywhere is where a program that can be moved is taken to be: the distance to the library is
	// the same wherever it is.
	anywhere = 1 << 46
)

// sharedSegment is struct trace_segment.
type sharedSegment struct{ address, offset, size, memory, protection uint64 }

// shared is what the tracer reads: struct trace of free/trace.h.
type shared struct {
	ready, seized  atomic.Int32
	tracer, thread int32

	device, inode, length, seconds, nanoseconds uint64

	movable, entry, gate, goBehind           uint64
	library, libraryLength                   uint64
	at, whole, boot, code, count             uint64
	segments                                 [maxSegments]sharedSegment
	stubBytes, stubs, stubsLength, stubsSize uint64
	table, text, textSize                    uint64
	report, reportStep, reportError          uint64
	explain, killAt                          uint64

	base, fd, stack, frame, step, result uint64 // the tracer's
}

// plan is what the tracer is to do. Go does not manage its memory: the tracer reads it after this
// process has become the program.
type plan struct {
	shared                *shared
	code, argument, stack uintptr
	memory                []byte
	used                  int
}

// killAt is the step at which a test has the tracer be killed; 0: none.
var killAt int

// newPlan makes the plan for a program and a library.
func newPlan(p *program, l *library, c Config) (*plan, error) {
	if len(l.loads) > maxSegments {
		return nil, fmt.Errorf("%w: %d segments", errLibrary, len(l.loads))
	}
	st, ok := p.info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, errStart
	}
	text := p.low
	if p.movable {
		text += anywhere
	}
	at := pageOf(placesNear(text, l.size+p.stubsSize())[0]) - (text - p.low) // from the base
	s, err := p.makeStubs(nil, at+l.size, 0, l, at)
	if err != nil {
		return nil, err
	}
	size := int(unsafe.Sizeof(shared{})) + len(c.Library) + len(s.b) + 3*numberSize + 8*(len(c.Report)+3) + tracerStack
	for _, text := range c.Report {
		size += len(text) + 8
	}
	m := new(plan)
	if m.memory, err = unix.Mmap(-1, 0, int(pageUp(uint64(size))), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	m.shared = (*shared)(unsafe.Pointer(&m.memory[0]))
	m.used = int(unsafe.Sizeof(shared{}))
	*m.shared = shared{
		device: st.Dev, inode: st.Ino, length: uint64(st.Size), seconds: uint64(st.Mtim.Sec), nanoseconds: uint64(st.Mtim.Nsec),
		entry: p.entry, gate: p.gate, goBehind: p.goArgument(0), movable: bit(p.movable),
		library: m.putBytes([]byte(c.Library + "\x00")), libraryLength: uint64(len(c.Library) + 1),
		at: at, whole: l.size + p.stubsSize(), boot: l.symbols[symBoot], count: uint64(len(l.loads)),
		stubBytes: m.putBytes(s.b), stubs: s.at, stubsLength: uint64(len(s.b)), stubsSize: p.stubsSize(), table: s.table, text: s.low, textSize: s.pages,
		explain: bit(c.Explain), killAt: uint64(killAt),
	}
	for i, load := range l.loads {
		m.shared.segments[i] = sharedSegment{load.Addr, load.Off, load.Size, load.MemSize, protectionOf(load)}
		if l.symbols[symBoot]-load.Addr < load.Size {
			m.shared.code = uint64(i)
		}
	}
	m.putReport(c.Report)
	m.argument = uintptr(unsafe.Pointer(m.shared))
	m.stack = m.argument + uintptr(len(m.memory))
	code, err := l.mapHere()
	m.code = code + uintptr(l.symbols[symTrace])
	return m, err
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// putBytes puts bytes into the memory, and returns where they are.
func (m *plan) putBytes(b []byte) uint64 {
	at := m.used
	m.used = (at + len(b) + 7) &^ 7
	copy(m.memory[at:], b)
	return uint64(uintptr(unsafe.Pointer(&m.memory[at])))
}

// putReport puts the command that says how it went.
func (m *plan) putReport(report []string) {
	var list []uint64
	for _, text := range report {
		list = append(list, m.putBytes([]byte(text+"\x00")))
	}
	m.shared.reportStep, m.shared.reportError = m.putBytes(make([]byte, numberSize)), m.putBytes(make([]byte, numberSize))
	list = append(list, m.shared.reportStep, m.shared.reportError, 0)
	m.shared.report = m.putBytes(unsafe.Slice((*byte)(unsafe.Pointer(&list[0])), 8*len(list)))
}

// mapHere maps what of the library the tracer runs, which is not changed by its relocations, and
// returns where.
func (l *library) mapHere() (uintptr, error) {
	f, err := os.Open(l.path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	const private = unix.MAP_PRIVATE
	at, _, e := unix.Syscall6(unix.SYS_MMAP, 0, uintptr(l.size), unix.PROT_NONE, private|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE, ^uintptr(0), 0)
	for _, s := range l.loads {
		if e != 0 {
			return 0, os.NewSyscallError("mmap", e)
		}
		if s.Flags&elffile.PFWrite == 0 && s.Size > 0 {
			skip := uintptr(s.Addr % pageSize)
			_, _, e = unix.Syscall6(unix.SYS_MMAP, at+uintptr(s.Addr)-skip, uintptr(s.Size)+skip, uintptr(protectionOf(s)), private|unix.MAP_FIXED, f.Fd(), uintptr(s.Off)-skip)
		}
	}
	return at, nil
}

// beginTrace lets the tracer begin, and returns 1 when it traces this thread, or -errno; 0: it does
// not answer.
func (m *plan) beginTrace() int32 {
	futex := func(word *atomic.Int32, op, value uintptr, timeout *unix.Timespec) error {
		_, _, e := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), op, value, uintptr(unsafe.Pointer(timeout)), 0, 0)
		if e != 0 {
			return e
		}
		return nil
	}
	const wait, wake = 0, 1
	m.shared.ready.Store(1)
	_ = futex(&m.shared.ready, wake, 1, nil) // the tracer looks by itself as well
	timeout := unix.NsecToTimespec(int64(startTime / time.Nanosecond))
	for {
		if seized := m.shared.seized.Load(); seized != 0 {
			return seized
		}
		if err := futex(&m.shared.seized, wait, 0, &timeout); errors.Is(err, unix.ETIMEDOUT) {
			return 0
		}
	}
}

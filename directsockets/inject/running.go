//go:build amd64 || arm64

package inject

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Attach puts the library into a program that runs: nil, ErrHas, or why the program stays as it is.
// Its threads stand still meanwhile. The connections that it has stay on TCP.
func Attach(pid int, path string) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // ptrace is a matter of one thread, whose end lets all go that it traces
		done <- attachOnce(pid, path)
	}()
	return <-done
}

func attachOnce(pid int, path string) error {
	r := &running{pid: pid}
	if err := r.examineProcess(); err != nil {
		return err
	}
	l, err := readLibrary(path)
	if err != nil {
		return err
	}
	for range handlerTries {
		if err = r.stopAndInject(l); !errors.Is(err, errHandler) {
			break
		}
		time.Sleep(handlerPause)
	}
	return err
}

// ErrHas says that a program's text is not that of its file any more.
var ErrHas = errors.New("it has the library already, or another program has changed its code")

// Reasons why a running program stays as it is.
var (
	errTraced    = errors.New("another program traces it, as debuggers do")
	errFiltered  = errors.New("it restricts its own system calls (seccomp)")
	errStopped   = errors.New("it is stopped")
	errHandler   = errors.New("a signal handler has interrupted it where its code would change")
	errNoStop    = errors.New("one of its threads does not stop")
	errNoPadding = errors.New("there is no room for a jump beside its Syscall6")
)

const (
	// A handler that is at work where code would change ends soon: so often, and so long, that is
	// waited for.
	handlerTries = 20
	handlerPause = 20 * time.Millisecond
	// stopTime bounds how long the threads may take to stop.
	stopTime = 5 * time.Second
	// maxDescriptors is how many of a program's descriptors the library looks at.
	maxDescriptors = 1 << 16
	// startStack is the stack of the library's start.
	startStack = 128 << 10
)

// running is a program that runs.
type running struct {
	pid     int
	program *program
	base    uint64
	threads map[int]registers // those that are stopped, and where
}

func (r *running) procPath(name string) string {
	return filepath.Join("/proc", strconv.Itoa(r.pid), name)
}

// examineProcess reads the program's file, and what the kernel says of the process.
func (r *running) examineProcess() (err error) {
	exe := r.procPath("exe")
	if r.program, err = findProgram(exe, true, ""); err != nil {
		return err
	}
	if err := r.program.mayRun(); err != nil {
		return err
	}
	status, err := os.ReadFile(r.procPath("status"))
	if err != nil {
		return err
	}
	if tracer := statusField(status, "TracerPid"); tracer != 0 {
		return errTraced
	}
	const strict = 1
	if statusField(status, "Seccomp") == strict {
		return errFiltered
	}
	auxv, err := os.ReadFile(r.procPath("auxv"))
	if err != nil {
		return err
	}
	if auxValue(auxv, atSecure) != 0 {
		return errSecure
	}
	if r.program.movable {
		r.base = auxValue(auxv, atEntry) - r.program.entry
	}
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil {
		return errRules
	}
	return nil
}

// statusField returns a number of /proc/PID/status; 0: it has none of this name.
func statusField(status []byte, name string) int {
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(value))
			return n
		}
	}
	return 0
}

// stopAndInject stops the program, puts the library into it, and lets it go on.
func (r *running) stopAndInject(l *library) error {
	defer r.resumeThreads()
	if err := r.stopThreads(time.Now().Add(stopTime)); err != nil {
		return err
	}
	step("stopped")
	if err := r.unfiltered(); err != nil {
		return err
	}
	if !r.program.isOf(r.procPath("exe")) {
		return ErrGone // it has executed another
	}
	t := new(tracer)
	var err error
	if t.mem, err = os.OpenFile(r.procPath("mem"), os.O_RDWR, 0); err != nil {
		return err
	}
	defer t.mem.Close()
	if err := r.checkText(t); err != nil {
		return err
	}
	if err := r.slotsAreFree(t); err != nil {
		return err
	}
	for _, tid := range r.callerThreads(t) {
		t.pid = tid
		if err = r.divertThread(t); err == nil {
			break // else it is about to end, and has no stack any more
		}
	}
	if err != nil {
		return err
	}
	unused, err := t.openGate()
	if err != nil {
		return err
	}
	ended, err := r.inject(t, l)
	if !ended { // else it has restored all by itself
		_ = setRegisters(t.pid, &t.start) // these fail if the program has ended
		_ = setBlocked(t.pid, t.blockedMask)
	}
	return errors.Join(err, t.writeMemory(t.gate, unused))
}

// inject maps the library, and has the program call it. ended: the thread that does so is where it
// was before.
//
// A program whose tracer dies is plain or whole: the library passes all calls on to the kernel
// until its start has succeeded, which the program does by itself once it has begun.
func (r *running) inject(t *tracer, l *library) (ended bool, err error) {
	p := r.program
	stubs := p.stubsSize()
	size := l.size + stubs + startStack
	at, err := t.reserveNear(r.base+p.low, size)
	if err != nil {
		return false, err
	}
	changed := false
	defer func() {
		if err != nil && !changed && !ended {
			_, _ = t.systemCall(unix.SYS_MUNMAP, at, size) // it may be gone
		}
	}()
	if r.seesLibrary(l.path) {
		err = t.mapLibrary(l, at)
	} else {
		err = t.loadCopy(l, at)
	}
	if err != nil {
		return false, err
	}
	s, err := p.makeStubs(begin, at+l.size, r.base, l, at)
	if err != nil {
		return false, err
	}
	if err := t.mapFilled(s.at, stubs, s.b, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		return false, wrapError("mapping the stubs", err)
	}
	block, err := r.startBlock(at + l.size + stubs)
	if err != nil {
		return false, err
	}
	if err := t.mapFilled(at+l.size+stubs, startStack, block, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return false, wrapError("mapping a stack", err)
	}
	if err := r.noHandlerInside(t, s.moves); err != nil {
		return false, err
	}
	changed = true
	if err := r.moveThreads(t, s.moves); err != nil {
		return false, err
	}
	for _, j := range s.jumps {
		step("jump")
		if err := t.writeMemory(j.at, j.b); err != nil {
			return false, err
		}
	}
	return r.startLibrary(t, l, s, at)
}

// startLibrary has the program call the library's start.
func (r *running) startLibrary(t *tracer, l *library, s *stubs, at uint64) (ended bool, err error) {
	stack := at + l.size + r.program.stubsSize()
	regs := beginRegisters(t.start, s, t.frame, stack+startStack-redZone,
		[...]uint64{stack, r.firstFreeFD(), uint64(len(r.threads)), math.MaxUint32, r.program.goArgument(r.base)}, at+l.symbols[symStart])
	if err := setRegisters(t.pid, &regs); err != nil {
		return false, t.goneError(err)
	}
	step("begin")
	err = t.toEnd(s.at + uint64(len(begin)))
	return true, err
}

// seesLibrary reports whether the program has the library's file at the same path.
func (r *running) seesLibrary(path string) bool {
	ours, err := os.Stat(path)
	if err != nil {
		return false
	}
	its, err := os.Stat(r.procPath("root") + path)
	return err == nil && os.SameFile(ours, its)
}

// firstFreeFD returns the first number above those of the program's descriptors.
func (r *running) firstFreeFD() uint64 {
	names, _ := readNames(r.procPath("fd")) // none: then it adopts none
	end := 1
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil {
			end = max(end, fd+1)
		}
	}
	return uint64(min(end, maxDescriptors))
}

func readNames(path string) ([]string, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// checkText reports whether the text where jumps are written is that of the file.
func (r *running) checkText(t *tracer) error {
	f, err := os.Open(r.procPath("exe"))
	if err != nil {
		return err
	}
	defer f.Close()
	is, was := make([]byte, jumpSize), make([]byte, jumpSize)
	for _, s := range r.program.sites {
		n := s.size()
		if _, err := f.ReadAt(was[:n], int64(r.program.text.Off+s.at-r.program.text.Addr)); err != nil {
			return err
		}
		if err := t.readMemory(r.base+s.at, is[:n]); err != nil {
			return err
		}
		if !bytes.Equal(is[:n], was[:n]) {
			return ErrHas
		}
	}
	return nil
}

// divertThread has a thread make the tracer's system calls: it learns where the thread is, and
// writes the frame by which it comes back to that.
func (r *running) divertThread(t *tracer) (err error) {
	t.start = r.threads[t.pid]
	t.repeatCall(&t.start)
	if t.blockedMask, err = getBlocked(t.pid); err != nil {
		return t.goneError(err)
	}
	fp, err := floatingPoint(t.pid)
	if err != nil {
		return t.goneError(err)
	}
	top := stackOf(&t.start) - redZone
	if r.program.isGo { // a goroutine's stack may be small
		if top, err = r.unusedStack(); err != nil {
			return err
		}
	}
	var b []byte
	t.frame, b = frameOf(&t.start, t.blockedMask, fp, top)
	t.gate = r.base + r.program.gate
	if err := t.writeMemory(t.frame, b); err != nil {
		return err
	}
	return t.goneError(setBlocked(t.pid, ^uint64(0))) // a handler would find the library half begun
}

// goStack is how much of the stack that the kernel made Go leaves alone at its lower end.
const goStack = 48 << 10

// unusedStack returns an address in the stack that the kernel made, below what Go uses of it.
func (r *running) unusedStack() (uint64, error) {
	text, err := os.ReadFile(r.procPath("maps"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(line, "[stack]\n") {
			low, _, _ := strings.Cut(line, "-")
			at, err := strconv.ParseUint(low, 16, 64)
			return at + goStack, err
		}
	}
	return 0, errors.New("inject: there is no stack")
}

// mappingEnd returns the end of the mapping that has an address; 0: there is none.
func mappingEnd(maps string, at uint64) uint64 {
	for line := range strings.Lines(maps) {
		var low, high uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &low, &high); err == nil && at >= low && at < high {
			return high
		}
	}
	return 0
}

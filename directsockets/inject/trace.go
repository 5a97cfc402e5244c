//go:build amd64 || arm64

package inject

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"exnet/internal/elffile"
)

var (
	errSecure = errors.New("it runs with other rights than its caller's")
	errRules  = errors.New("SELinux governs this system")
)

// Trace is the tracer's process. It learns from conn what to do, injects the library into the
// program, and says how that went: nil, ErrGone, or why the program is plain.
func Trace(conn *os.File) (Config, error) {
	var c Config
	runtime.LockOSThread() // ptrace is a matter of one thread
	if _, err := fmt.Fprintln(conn, os.Getpid()); err != nil {
		return c, ErrGone
	}
	d := json.NewDecoder(conn)
	var first task
	if err := d.Decode(&first); err != nil {
		return c, ErrGone
	}
	p, failed := find(first.File, false, first.Dir) // while the other process prepares itself
	if err := d.Decode(&c); err != nil {
		return c, ErrGone
	}
	// A script is for a shell, which is found when it runs.
	if failed != nil && !errors.Is(failed, os.ErrNotExist) && !errors.Is(failed, elffile.ErrFormat) && !errors.Is(failed, errDynamic) {
		_, _ = fmt.Fprintln(conn, "") // it may be gone
		return c, failed
	}
	t := &tracer{pid: c.Thread, whom: -1}
	err := t.seize()
	answer := ""
	if err != nil {
		answer = err.Error()
	}
	_, _ = fmt.Fprintln(conn, answer) // it may be gone
	conn.Close()
	if err != nil {
		return c, ErrGone // it has been told
	}
	step("seized")
	if err := t.toExec(); err != nil {
		return c, err
	}
	return c, t.inject(p, c.Library, first.Dir)
}

// step is called at each step of the tracer; a test ends the process there.
var step = func(string) {}

// tracer follows one thread.
type tracer struct {
	pid   int
	whom  int // to wait for: pid, or -1, as execve gives a thread another number
	mem   *os.File
	start registers // where the program is to go on
	frame uint64
	gate  uint64
	// blockedMask are the signals that the thread of a running program blocks.
	blockedMask uint64
}

// Requests and events of ptrace that package unix has no call for.
const (
	sysgood   = 0x80
	eventBits = 16
	stopEvent = 128 // PTRACE_EVENT_STOP
)

func request(nr, pid int, data uintptr) error {
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, uintptr(nr), uintptr(pid), 0, data, 0, 0)
	if e != 0 {
		return os.NewSyscallError("ptrace", e)
	}
	return nil
}

// seize begins to trace: the thread goes on.
func (t *tracer) seize() error {
	return request(unix.PTRACE_SEIZE, t.pid, unix.PTRACE_O_TRACEEXEC|unix.PTRACE_O_TRACESYSGOOD)
}

// wait has the program go on (how is PTRACE_CONT or PTRACE_SYSCALL) until it stops at a system call
// or for an event of ptrace. Signals reach it, and it may be stopped as any other.
func (t *tracer) wait(how int, going bool) (unix.WaitStatus, error) {
	var sig uintptr
	for {
		if !going {
			if err := request(how, t.pid, sig); err != nil {
				return 0, t.ended(err)
			}
		}
		going, sig = false, 0
		var ws unix.WaitStatus
		pid, err := unix.Wait4(t.whom, &ws, unix.WALL, nil)
		for errors.Is(err, unix.EINTR) {
			pid, err = unix.Wait4(t.whom, &ws, unix.WALL, nil)
		}
		switch {
		case err != nil || ws.Exited() || ws.Signaled():
			return ws, ErrGone
		case !ws.Stopped():
			continue
		}
		t.pid = pid
		switch event := int(ws) >> eventBits; {
		case event == unix.PTRACE_EVENT_EXEC, event == 0 && ws.StopSignal() == unix.SIGTRAP|sysgood:
			return ws, nil
		case event == stopEvent:
			if s := ws.StopSignal(); s == unix.SIGSTOP || s == unix.SIGTSTP || s == unix.SIGTTIN || s == unix.SIGTTOU {
				if err := request(unix.PTRACE_LISTEN, t.pid, 0); err != nil {
					return ws, t.ended(err)
				}
				going = true
			}
		case event == 0:
			sig = uintptr(ws.StopSignal())
		}
	}
}

// ended turns the error of a process that was killed into ErrGone.
func (t *tracer) ended(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	return err
}

// toExec waits until the thread has become the program, and is about to run it.
func (t *tracer) toExec() error {
	if _, err := t.wait(unix.PTRACE_CONT, true); err != nil {
		return err
	}
	step("exec")
	_, err := t.wait(unix.PTRACE_SYSCALL, false) // the end of execve
	return err
}

// detach lets the program go.
func (t *tracer) detach() { _ = request(unix.PTRACE_DETACH, t.pid, 0) } // it may be gone

// inject puts the library into the program, or leaves it as it is.
func (t *tracer) inject(p *program, path, dir string) error {
	defer func() { p.keep() }() // when the program runs
	defer t.detach()
	exe := fmt.Sprintf("/proc/%d/exe", t.pid)
	if !p.isOf(exe) {
		var err error
		if p, err = find(exe, false, dir); errors.Is(err, errDynamic) {
			return ErrGone // the shell of a script
		} else if err != nil {
			return err
		}
	}
	l, err := readLibrary(path)
	if err != nil {
		return err
	}
	base, err := t.open(p)
	if err != nil {
		return err
	}
	defer t.mem.Close()
	unused, err := t.openGate()
	if err != nil {
		return err
	}
	if err := t.mapLibrary(p, l, base); err != nil {
		_ = setRegisters(t.pid, &t.start) // it goes on as it was, even if this fails
		_ = t.write(t.gate, unused)
		return err
	}
	return t.write(t.gate, unused)
}

// open learns how the program is at its start, and writes the frame by which it comes back to that.
func (t *tracer) open(p *program) (base uint64, err error) {
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil {
		return 0, errRules
	}
	if t.mem, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", t.pid), os.O_RDWR, 0); err != nil {
		return 0, err
	}
	auxv, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", t.pid))
	if err != nil {
		return 0, err
	}
	if p.movable {
		base = auxiliary(auxv, atEntry) - p.entry
	}
	if auxiliary(auxv, atSecure) != 0 {
		return 0, errSecure
	}
	if t.start, err = startRegisters(t.pid); err != nil {
		return 0, err
	}
	blocked, err := t.blocked()
	if err != nil {
		return 0, err
	}
	var b []byte
	t.frame, b = frameOf(&t.start, blocked, nil, stackOf(&t.start)-redZone)
	t.gate = base + p.gate
	return base, t.write(t.frame, b)
}

// Keys of the auxiliary vector (elf.h).
const (
	atEntry  = 9
	atSecure = 23
)

// auxiliary returns a value of the auxiliary vector.
func auxiliary(b []byte, key uint64) uint64 {
	for ; len(b) >= 16; b = b[16:] {
		if binary.LittleEndian.Uint64(b) == key {
			return binary.LittleEndian.Uint64(b[8:])
		}
	}
	return 0
}

// blocked returns the signals that the program blocks.
func (t *tracer) blocked() (mask uint64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", t.pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(text), "\nSigBlk:")
	line, _, _ := strings.Cut(after, "\n")
	return strconv.ParseUint(strings.TrimSpace(line), 16, 64)
}

func (t *tracer) write(at uint64, b []byte) error {
	_, err := t.mem.WriteAt(b, int64(at))
	return err
}

func (t *tracer) read(at uint64, b []byte) error {
	_, err := t.mem.ReadAt(b, int64(at))
	return err
}

// call has the program make a system call.
func (t *tracer) call(nr uint64, a ...uint64) (uint64, error) {
	r := callRegisters(t.start, t.gate, t.frame, nr, a)
	if err := setRegisters(t.pid, &r); err != nil {
		return 0, t.ended(err)
	}
	for range 2 { // it begins, it ends
		if _, err := t.wait(unix.PTRACE_SYSCALL, false); err != nil {
			return 0, err
		}
		step("call")
	}
	if err := getRegisters(t.pid, &r); err != nil {
		return 0, t.ended(err)
	}
	rc := resultOf(&r)
	if -rc < pageSize && rc != 0 {
		return 0, unix.Errno(-rc)
	}
	return rc, nil
}

// openGate writes the gate, and returns what was there, to be written back.
func (t *tracer) openGate() (unused []byte, err error) {
	unused = make([]byte, len(gate))
	if err := t.read(t.gate, unused); err != nil {
		return nil, err
	}
	if err := t.write(t.gate, gate); err != nil {
		return nil, err
	}
	step("gate")
	return unused, nil
}

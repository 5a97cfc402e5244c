//go:build amd64 || arm64

package inject

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// step is called at each step of the tracer; a test ends the process there.
var step = func(string) {}

// tracer follows one thread.
type tracer struct {
	pid   int
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

func ptraceRequest(nr, pid int, data uintptr) error {
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, uintptr(nr), uintptr(pid), 0, data, 0, 0)
	if e != 0 {
		return os.NewSyscallError("ptrace", e)
	}
	return nil
}

// continueUntilStop has the program go on (how is PTRACE_CONT or PTRACE_SYSCALL) until it stops at
// a system call or for an event of ptrace. Signals reach it, and it may be stopped as any other.
func (t *tracer) continueUntilStop(how int) (unix.WaitStatus, error) {
	var sig uintptr
	going := false
	for {
		if !going {
			if err := ptraceRequest(how, t.pid, sig); err != nil {
				return 0, t.goneError(err)
			}
		}
		going, sig = false, 0
		var ws unix.WaitStatus
		_, err := unix.Wait4(t.pid, &ws, unix.WALL, nil)
		for errors.Is(err, unix.EINTR) {
			_, err = unix.Wait4(t.pid, &ws, unix.WALL, nil)
		}
		switch {
		case err != nil || ws.Exited() || ws.Signaled():
			return ws, ErrGone
		case !ws.Stopped():
			continue
		}
		switch event := int(ws) >> eventBits; {
		case event == 0 && ws.StopSignal() == unix.SIGTRAP|sysgood:
			return ws, nil
		case event == stopEvent:
			if s := ws.StopSignal(); s == unix.SIGSTOP || s == unix.SIGTSTP || s == unix.SIGTTIN || s == unix.SIGTTOU {
				if err := ptraceRequest(unix.PTRACE_LISTEN, t.pid, 0); err != nil {
					return ws, t.goneError(err)
				}
				going = true
			}
		case event == 0:
			sig = uintptr(ws.StopSignal())
		}
	}
}

// goneError turns the error of a process that was killed into ErrGone.
func (t *tracer) goneError(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	return err
}

// Keys of the auxiliary vector (elf.h).
const (
	atEntry  = 9
	atSecure = 23
)

// auxValue returns a value of the auxiliary vector.
func auxValue(b []byte, key uint64) uint64 {
	for ; len(b) >= 16; b = b[16:] {
		if binary.LittleEndian.Uint64(b) == key {
			return binary.LittleEndian.Uint64(b[8:])
		}
	}
	return 0
}

func (t *tracer) writeMemory(at uint64, b []byte) error {
	_, err := t.mem.WriteAt(b, int64(at))
	return err
}

func (t *tracer) readMemory(at uint64, b []byte) error {
	_, err := t.mem.ReadAt(b, int64(at))
	return err
}

// systemCall has the program make a system call.
func (t *tracer) systemCall(nr uint64, a ...uint64) (uint64, error) {
	r := callRegisters(t.start, t.gate, t.frame, nr, a)
	if err := setRegisters(t.pid, &r); err != nil {
		return 0, t.goneError(err)
	}
	for range 2 { // it begins, it ends
		if _, err := t.continueUntilStop(unix.PTRACE_SYSCALL); err != nil {
			return 0, err
		}
		step("call")
	}
	if err := getRegisters(t.pid, &r); err != nil {
		return 0, t.goneError(err)
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
	if err := t.readMemory(t.gate, unused); err != nil {
		return nil, err
	}
	if err := t.writeMemory(t.gate, gate); err != nil {
		return nil, err
	}
	step("gate")
	return unused, nil
}

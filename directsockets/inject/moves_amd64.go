package inject

import (
	"encoding/binary"
	"os"
)

// moves say where a thread goes on whose next instruction a jump replaces.
type moves struct {
	inside map[uint64]uint64 // an instruction in the middle of a jump
	behind map[uint64]uint64 // that behind a system call, which the kernel may repeat
}

// Results of a system call that the kernel repeats (linux/errno.h), unless a handler comes first.
const (
	restartSys       = 512
	restartNoIntr    = 513
	restartNoHand    = 514
	restartByBlock   = 516
	systemCallLength = 2
)

// isRepeating reports whether a thread is in a system call that the kernel repeats.
func (t *tracer) isRepeating(r *registers) bool {
	if int64(r.Orig_rax) < 0 {
		return false
	}
	switch -int64(r.Rax) {
	case restartSys, restartNoIntr, restartNoHand, restartByBlock:
		return true
	}
	return false
}

// repeatCall changes the registers of a thread so that it makes the system call again by itself: a
// call that the kernel repeats in another way begins anew.
func (t *tracer) repeatCall(r *registers) {
	if t.isRepeating(r) {
		r.Rax = r.Orig_rax
		r.Rip -= systemCallLength
	}
	r.Orig_rax = ^uint64(0)
}

// moveThreads has the threads whose next instruction a jump replaces go on in its stub.
func (r *running) moveThreads(t *tracer, m moves) error {
	for tid, regs := range r.threads {
		to, ok := m.inside[regs.Rip]
		if _, back := m.inside[regs.Rip-systemCallLength]; !ok && back && int64(regs.Orig_rax) >= 0 {
			to, ok = m.behind[regs.Rip]
		}
		if tid == t.pid {
			// It is elsewhere, and its frame says where it goes on. It has no call that is
			// repeated.
			if to, ok = m.inside[t.start.Rip]; ok {
				t.start.Rip = to
				if err := t.writeMemory(t.frame+frameRip, binary.LittleEndian.AppendUint64(nil, to)); err != nil {
					return err
				}
			}
			continue
		}
		if !ok {
			continue
		}
		regs.Rip = to
		if err := setRegisters(tid, &regs); err != nil {
			return t.goneError(err)
		}
		step("move")
	}
	return nil
}

// frameRip is where a frame has the instruction pointer.
const frameRip = 8 * (5 + 16)

// noHandlerInside looks for the frames of signal handlers that would come back to an instruction
// that a jump replaces.
func (r *running) noHandlerInside(t *tracer, m moves) error {
	if len(m.inside) == 0 {
		return nil
	}
	text, err := os.ReadFile(r.procPath("maps"))
	if err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for _, regs := range r.threads {
		at, end := regs.Rsp&^7, mappingEnd(string(text), regs.Rsp)
		end = min(end, at+maxStack)
		for at < end {
			b := buf[:min(uint64(len(buf)), end-at)]
			if err := t.readMemory(at, b); err != nil {
				return err
			}
			for i := 0; i+8 <= len(b); i += 8 {
				if _, is := m.inside[binary.LittleEndian.Uint64(b[i:])]; is {
					return errHandler
				}
			}
			at += uint64(len(b))
		}
	}
	return nil
}

// maxStack bounds how much of a thread's stack is read.
const maxStack = 8 << 20

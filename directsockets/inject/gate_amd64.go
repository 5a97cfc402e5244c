package inject

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// gate is the code by which the program makes a system call for the tracer. It restores all
// registers afterwards, from the frame that the stack pointer points to: so the program goes on as
// before if the tracer is not there any more.
var gate = []byte{
	0x0f, 0x05, // syscall
	0xb8, 15, 0, 0, 0, // mov $SYS_rt_sigreturn, %eax
	0x0f, 0x05, // syscall
}

// The frame that rt_sigreturn reads (struct ucontext of the kernel) and what follows it, on the
// program's stack.
const (
	frameHead  = 1024 // the floating point registers follow
	resultOff  = 512  // of commit
	redZone    = 128
	frameAlign = 64
)

// Flags of a frame (asm/ucontext.h).
const (
	ucFPXState        = 1
	ucSigcontextSS    = 2
	ucStrictRestoreSS = 4
)

// What says in a frame that there are more than the oldest floating point registers
// (asm/sigcontext.h): where it is, and before and behind them.
const (
	fpSoftware = 464
	fpMagic1   = 0x46505853
	fpMagic2   = 0x46505845
)

// frameOf returns a frame that restores the registers and the mask of blocked signals, and where
// it belongs below top. fp are the floating point registers as ptrace has them; none: they become
// those of a program's start. The stack for signals stays as it is: the kernel refuses this one.
func frameOf(r *unix.PtraceRegs, blocked uint64, fp []byte, top uint64) (at uint64, b []byte) {
	size := uint64(frameHead)
	if len(fp) > 0 {
		size += uint64(len(fp)) + 4
	}
	at = (top - size) &^ (frameAlign - 1)
	b = make([]byte, 0, size)
	word := func(values ...uint64) {
		for _, v := range values {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	flags, fpAt := uint64(ucSigcontextSS|ucStrictRestoreSS), uint64(0)
	if len(fp) > 0 {
		flags, fpAt = flags|ucFPXState, at+frameHead
	}
	word(flags, 0, 0, 0, 0) // no link, a stack of no size
	word(r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15, r.Rdi, r.Rsi, r.Rbp, r.Rbx, r.Rdx, r.Rax, r.Rcx, r.Rsp, r.Rip, r.Eflags)
	word(r.Cs|r.Ss<<48, 0, 0, 0, 0, fpAt)
	word(make([]uint64, 8)...) // reserved
	word(blocked)
	if b = b[:frameHead]; len(fp) == 0 {
		return at, b
	}
	b = append(b, fp...)
	software := b[frameHead+fpSoftware:]
	components := binary.LittleEndian.Uint64(software) // ptrace has them here
	binary.LittleEndian.PutUint32(software, fpMagic1)
	binary.LittleEndian.PutUint32(software[4:], uint32(len(fp)+4))
	binary.LittleEndian.PutUint64(software[8:], components)
	binary.LittleEndian.PutUint32(software[16:], uint32(len(fp)))
	return at, binary.LittleEndian.AppendUint32(b, fpMagic2)
}

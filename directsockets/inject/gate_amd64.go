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
	frameSize  = 1024
	ucontext   = 304 // bytes, and the kernel expects a siginfo of 128 behind it
	resultOff  = 512 // of commit
	redZone    = 128
	frameAlign = 64
)

// Flags of a frame (asm/ucontext.h), and of a signal stack.
const (
	ucSigcontextSS    = 2
	ucStrictRestoreSS = 4
	ssDisable         = 2
)

// frameOf returns a frame that restores the registers and the mask of blocked signals, and where
// it belongs. It leaves the floating point registers as they are at a program's start.
func frameOf(r *unix.PtraceRegs, blocked uint64) (at uint64, b []byte) {
	b = make([]byte, 0, frameSize)
	word := func(values ...uint64) {
		for _, v := range values {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	word(ucSigcontextSS|ucStrictRestoreSS, 0, 0, ssDisable, 0) // no link, no stack for signals
	word(r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15, r.Rdi, r.Rsi, r.Rbp, r.Rbx, r.Rdx, r.Rax, r.Rcx, r.Rsp, r.Rip, r.Eflags)
	word(r.Cs | r.Ss<<48)
	word(make([]uint64, 4+1+8)...) // the fault, the floating point registers, reserved
	word(blocked)
	return (r.Rsp - redZone - frameSize) &^ (frameAlign - 1), b[:frameSize]
}

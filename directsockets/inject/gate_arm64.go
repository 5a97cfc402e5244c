package inject

import "encoding/binary"

// gate is the code by which the program makes a system call for the tracer. It restores all
// registers afterwards, from the frame that the stack pointer points to: so the program goes on as
// before if the tracer is not there any more.
var gate = encodeWords(
	svc,
	0xd2801168, // mov x8, #SYS_rt_sigreturn
	svc,
)

// svc is the instruction of a system call.
const svc = 0xd4000001

// encodeWords returns instructions as they are in memory.
func encodeWords(list ...uint32) []byte {
	b := make([]byte, 0, 4*len(list))
	for _, word := range list {
		b = binary.LittleEndian.AppendUint32(b, word)
	}
	return b
}

// The frame that rt_sigreturn reads (struct rt_sigframe of the kernel), on the program's stack.
const (
	frameSize  = 4688
	maskAt     = 168 // uc_sigmask
	contextAt  = 304 // uc_mcontext
	recordsAt  = 592 // uc_mcontext.__reserved
	fpsimd     = 0x46508001
	resultOff  = 64 // of commit, where the kernel reads nothing
	redZone    = 128
	frameAlign = 64
)

// frameOf returns a frame that restores the registers and the mask of blocked signals, and where
// it belongs below top. fp are the floating point registers as ptrace has them; none: they become
// those of a program's start. The stack for signals stays as it is: the kernel refuses this one.
func frameOf(r *registers, blocked uint64, fp []byte, top uint64) (at uint64, b []byte) {
	at = (top - frameSize) &^ (frameAlign - 1)
	b = make([]byte, frameSize)
	word := binary.LittleEndian.PutUint64
	word(b[maskAt:], blocked)
	for i, x := range r.X {
		word(b[contextAt+8+8*i:], x)
	}
	word(b[contextAt+8*32:], r.Sp)
	word(b[contextAt+8*33:], r.Pc)
	word(b[contextAt+8*34:], r.Pstate)
	record := b[recordsAt:]
	binary.LittleEndian.PutUint32(record, fpsimd)
	binary.LittleEndian.PutUint32(record[4:], fpsimdSize)
	if len(fp) == fpsimdSize { // struct user_fpsimd_state has the vectors first
		const all = 512
		copy(record[8:], fp[all:all+8])
		copy(record[16:], fp[:all])
	}
	return at, b
}

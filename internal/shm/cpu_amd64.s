#include "textflag.h"

// func pause(n uint32)
TEXT ·pause(SB), NOSPLIT, $0-4
	MOVL n+0(FP), CX
loop:
	PAUSE
	SUBL $1, CX
	JHI  loop
	RET

// func rdtscp() uint32
TEXT ·rdtscp(SB), NOSPLIT, $0-4
	RDTSCP
	MOVL CX, ret+0(FP)
	RET

// func Ticks() uint64
TEXT ·Ticks(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET

// func cpuid(leaf uint32) (eax, edx uint32)
TEXT ·cpuid(SB), NOSPLIT, $0-16
	MOVL leaf+0(FP), AX
	XORL CX, CX
	CPUID
	MOVL AX, eax+8(FP)
	MOVL DX, edx+12(FP)
	RET

// func prefetchSlot(status *atomic.Uint64)
TEXT ·prefetchSlot(SB), NOSPLIT, $0-8
	MOVQ status+0(FP), AX
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08             // PREFETCHW (AX)
	BYTE $0x0f; BYTE $0x0d; BYTE $0x48; BYTE $0x40 // PREFETCHW 64(AX)
	RET

// func spinSlot(status *atomic.Uint64, lap, n uint32) bool
TEXT ·spinSlot(SB), NOSPLIT, $0-17
	MOVQ status+0(FP), AX
	MOVL lap+8(FP), BX
	MOVL n+12(FP), CX
look:
	CMPL (AX), BX
	JEQ  found
	PREFETCHT0 64(AX)
	PAUSE
	SUBL $1, CX
	JHI  look
	MOVB $0, ret+16(FP)
	RET
found:
	MOVB $1, ret+16(FP)
	RET

// func prefetchW(addr uintptr, n int)
TEXT ·prefetchW(SB), NOSPLIT, $0-16
	MOVQ addr+0(FP), AX
	MOVQ n+8(FP), CX
line:
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08 // PREFETCHW (AX)
	ADDQ $64, AX
	SUBQ $64, CX
	JHI  line
	RET

// func past(to uintptr, from []byte)
TEXT ·past(SB), NOSPLIT, $0-32
	MOVQ to+0(FP), DI
	MOVQ from_base+8(FP), SI
	MOVQ from_len+16(FP), CX
	SUBQ $64, CX
	JLT  written
store:
	MOVOU  (SI), X0
	MOVOU  16(SI), X1
	MOVOU  32(SI), X2
	MOVOU  48(SI), X3
	MOVNTO X0, (DI)
	MOVNTO X1, 16(DI)
	MOVNTO X2, 32(DI)
	MOVNTO X3, 48(DI)
	ADDQ   $64, SI
	ADDQ   $64, DI
	SUBQ   $64, CX
	JGE    store
written:
	SFENCE // or a status word could be seen before what was written here
	RET

#include "textflag.h"

#define SYS_clone 56
#define SYS_exit_group 231

// CLONE_VM | CLONE_VFORK | SIGCHLD
#define VFORK 0x4111

// CLONE_VM | CLONE_PARENT_SETTID | SIGCHLD
#define SHARE 0x100111

// func cloneTwice(code, argument, stack uintptr, tid *int32) (pid uintptr)
//
// The first child uses registers alone, the second has a stack of its own.
TEXT ·cloneTwice(SB),NOSPLIT,$0-40
	MOVQ	code+0(FP), R12
	MOVQ	argument+8(FP), R13
	MOVQ	stack+16(FP), R15
	MOVQ	tid+24(FP), BX
	MOVQ	$VFORK, DI
	XORL	SI, SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	MOVL	$SYS_clone, AX
	SYSCALL
	TESTQ	AX, AX
	JNE	parent
	MOVQ	$SHARE, DI
	MOVQ	R15, SI
	MOVQ	BX, DX
	XORL	R10, R10
	XORL	R8, R8
	MOVL	$SYS_clone, AX
	SYSCALL
	TESTQ	AX, AX
	JNE	leave
	MOVQ	R13, DI
	CALL	R12 // it does not return
leave:	// with the second child's error
	MOVQ	AX, DI
	SHRQ	$63, DI
	MOVL	$SYS_exit_group, AX
	SYSCALL
	INT	$3
parent:
	MOVQ	AX, pid+32(FP)
	RET

#include "textflag.h"

#define SYS_dup3 292
#define SYS_clone 56
#define SYS_execve 59
#define SYS_exit_group 231
#define SYS_setsid 112

// CLONE_VM | CLONE_VFORK | SIGCHLD
#define VFORK 0x4111

// func vforkTwice(path *byte, argv, environ **byte, conn uintptr) (pid uintptr)
//
// The children share this memory, and write nothing to it: they use registers alone.
TEXT ·vforkTwice(SB),NOSPLIT,$0-40
	MOVQ	path+0(FP), R12
	MOVQ	argv+8(FP), R13
	MOVQ	environ+16(FP), R15
	MOVQ	conn+24(FP), BX
	MOVQ	$VFORK, DI
	XORL	SI, SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	MOVL	$SYS_clone, AX
	SYSCALL
	TESTQ	AX, AX
	JNE	parent
	MOVQ	$VFORK, DI
	XORL	SI, SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	MOVL	$SYS_clone, AX
	SYSCALL
	MOVQ	AX, DI
	TESTQ	AX, AX
	JNE	leave
	MOVL	$SYS_setsid, AX
	SYSCALL
	MOVQ	BX, DI
	MOVL	$3, SI
	XORL	DX, DX
	MOVL	$SYS_dup3, AX
	SYSCALL
	MOVQ	R12, DI
	MOVQ	R13, SI
	MOVQ	R15, DX
	MOVL	$SYS_execve, AX
	SYSCALL
	MOVQ	AX, DI
leave:	// with the first child's error, or the second's
	SHRQ	$63, DI
	MOVL	$SYS_exit_group, AX
	SYSCALL
	INT	$3
parent:
	MOVQ	AX, pid+32(FP)
	RET

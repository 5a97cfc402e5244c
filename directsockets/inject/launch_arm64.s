#include "textflag.h"

#define SYS_exit_group 94
#define SYS_clone 220

// CLONE_VM | CLONE_VFORK | SIGCHLD
#define VFORK 0x4111

// CLONE_VM | CLONE_PARENT_SETTID | SIGCHLD
#define SHARE 0x100111

// func cloneTwice(code, argument, stack uintptr, tid *int32) (pid uintptr)
//
// The first child uses registers alone, the second has a stack of its own.
TEXT ·cloneTwice(SB),NOSPLIT,$0-40
	MOVD	code+0(FP), R9
	MOVD	argument+8(FP), R10
	MOVD	stack+16(FP), R11
	MOVD	tid+24(FP), R12
	MOVD	$VFORK, R0
	MOVD	ZR, R1
	MOVD	ZR, R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	MOVD	$SYS_clone, R8
	SVC
	CBNZ	R0, parent
	MOVD	$SHARE, R0
	MOVD	R11, R1
	MOVD	R12, R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	MOVD	$SYS_clone, R8
	SVC
	CBNZ	R0, leave
	MOVD	R10, R0
	CALL	(R9) // it does not return
leave:	// with the second child's error
	LSR	$63, R0, R0
	MOVD	$SYS_exit_group, R8
	SVC
	BRK	$3
parent:
	MOVD	R0, pid+32(FP)
	RET

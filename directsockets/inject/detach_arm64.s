#include "textflag.h"

#define SYS_dup3 24
#define SYS_exit_group 94
#define SYS_setsid 157
#define SYS_clone 220
#define SYS_execve 221

// CLONE_VM | CLONE_VFORK | SIGCHLD
#define VFORK 0x4111

// func vforkTwice(path *byte, argv, environ **byte, conn uintptr) (pid uintptr)
//
// The children share this memory, and write nothing to it: they use registers alone.
TEXT ·vforkTwice(SB),NOSPLIT,$0-40
	MOVD	path+0(FP), R9
	MOVD	argv+8(FP), R10
	MOVD	environ+16(FP), R11
	MOVD	conn+24(FP), R12
	MOVD	$VFORK, R0
	MOVD	ZR, R1
	MOVD	ZR, R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	MOVD	$SYS_clone, R8
	SVC
	CBNZ	R0, parent
	MOVD	$VFORK, R0
	MOVD	ZR, R1
	MOVD	ZR, R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	MOVD	$SYS_clone, R8
	SVC
	CBNZ	R0, leave
	MOVD	$SYS_setsid, R8
	SVC
	MOVD	R12, R0
	MOVD	$3, R1
	MOVD	ZR, R2
	MOVD	$SYS_dup3, R8
	SVC
	MOVD	R9, R0
	MOVD	R10, R1
	MOVD	R11, R2
	MOVD	$SYS_execve, R8
	SVC
leave:	// with the first child's error, or the second's
	LSR	$63, R0, R0
	MOVD	$SYS_exit_group, R8
	SVC
	BRK	$3
parent:
	MOVD	R0, pid+32(FP)
	RET

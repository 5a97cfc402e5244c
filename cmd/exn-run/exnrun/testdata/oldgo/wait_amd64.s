#include "textflag.h"

TEXT ·wait(SB), NOSPLIT, $0
	MOVL $281, AX // epoll_pwait
	SYSCALL
	RET

#include "textflag.h"

TEXT ·wait(SB), NOSPLIT, $0
	MOVD $22, R8 // epoll_pwait
	SVC
	RET

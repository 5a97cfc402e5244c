package unix

// Numbers of system calls.
const (
	SYS_GETCPU     = 309
	SYS_MEMBARRIER = 324
	sysMemfdCreate = 319
	sysGetrandom   = 318
)

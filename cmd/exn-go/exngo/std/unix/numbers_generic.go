//go:build arm64 || riscv64 || loong64

package unix

// Numbers of system calls.
const (
	SYS_GETCPU     = 168
	SYS_MEMBARRIER = 283
	sysMemfdCreate = 279
	sysGetrandom   = 278
)

/* A static program that waits for ever. -Wl,-N has its code in memory that it may write. */
static int word;

void _start(void)
{
	for (;;) {
		long rc = 202; /* futex */
		register long time __asm__("r10") = 0;
		__asm__ volatile("syscall" : "+a"(rc) : "D"(&word), "S"(0), "d"(0), "r"(time) : "rcx", "r11", "memory");
	}
}

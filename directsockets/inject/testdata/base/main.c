/* A program that uses the GS base itself. */
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
	static long area[] = {0x1234};
	long value;

	syscall(SYS_arch_prctl, 0x1001 /* ARCH_SET_GS */, area);
	printf("ready\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	__asm__ volatile("movq %%gs:0, %0" : "=r"(value));
	printf("self 0 pid %d wrong %d calls 0\n", getpid(), value != area[0]);
	return 0;
}

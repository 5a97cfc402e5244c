/* A thread waits until a line comes on standard input, and does not touch meanwhile what the C
 * library has of it, by which it is joined. Then it ends, and is joined. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static char c;
static volatile int waits;

/* Waits and ends without a call of the C library. */
static void *wait_and_end(void *arg)
{
	(void)arg;
#if defined(__x86_64__)
	long n;

	__asm__ volatile("syscall" : "=a"(n) : "a"(SYS_gettid) : "rcx", "r11", "memory");
	waits = (int)n;
	__asm__ volatile("syscall" : "=a"(n) : "a"(SYS_read), "D"(0L), "S"(&c), "d"(1L) : "rcx", "r11", "memory");
	__asm__ volatile("syscall" : : "a"(SYS_exit), "D"(0L) : "rcx", "r11", "memory");
#else
	waits = c; /* the test does not run there */
#endif
	return NULL;
}

int main(void)
{
	enum { SIZE = 8 << 20 };
	pthread_t thread;
	char *m = malloc(SIZE);

	if (!m || pthread_create(&thread, NULL, wait_and_end, NULL) != 0)
		return 2;
	while (!waits)
		sched_yield();
	for (int i = 0; i < 5; i++)
		for (int at = 0; at < SIZE; at += 4096)
			*(volatile char *)(m + at) = (char)i; /* all else leaves */
	printf("%lx\n", (unsigned long)thread);
	fflush(stdout);
	while (tgkill(getpid(), waits, 0) == 0)
		sched_yield();
	pthread_join(thread, NULL);
	puts("ok");
	return 0;
}

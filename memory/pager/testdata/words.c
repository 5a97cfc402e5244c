/* Has the kernel change words that are elsewhere by then, with a pager, and prints what failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "elsewhere.h"

enum { PAGES = 1024, SIZE = PAGES * P };

int main(void)
{
	char *m = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *more = m + SIZE / 2;
	char *gone = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int failed = 0, wrong = 0;

	map_pressure();
	if (m == MAP_FAILED || gone == MAP_FAILED || munmap(gone, P) != 0)
		return 2;
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < SIZE; i += P)
			*(int *)(m + i) = 0;
		if (!pushed(m, PAGES, PAGES / 4, 3000))
			return 3;
		for (size_t i = 0; i < SIZE / 2; i += P)
			failed += syscall(SYS_futex, more + i, FUTEX_WAKE_OP_PRIVATE, 1, 1, m + i, FUTEX_OP(FUTEX_OP_SET, 7, FUTEX_OP_CMP_EQ, 0)) != 0;
		for (size_t i = 0; i < SIZE / 2; i += P)
			wrong += *(int *)(m + i) != 7 || *(int *)(more + i) != 0;
		for (size_t i = 0; i < SIZE / 2; i += P) {
			*(int *)(more + i) = 0;
			failed += syscall(SYS_futex, more + i, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0) != 0;
		}
		for (size_t i = 0; i < SIZE / 2; i += P)
			failed += syscall(SYS_futex, more + i, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0) != 0;
	}
	printf("%d failed, %d wrong\n", failed, wrong);
	long got = syscall(SYS_futex, m, FUTEX_WAKE_OP_PRIVATE, 1, 1, gone, FUTEX_OP(FUTEX_OP_SET, 7, FUTEX_OP_CMP_EQ, 0));

	printf("no memory: %ld, %s\n", got, strerror(errno));
	return 0;
}

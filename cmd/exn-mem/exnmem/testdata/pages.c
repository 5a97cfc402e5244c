/* Fills memory, reads it, and prints how fast.
 * usage: pages row|random MEBIBYTES
 * row: MB/s of a read of all, from the first page to the last
 * random: microseconds of a read of one page at random
 * Both come after a first read of all, which is not counted. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, READS = 20000 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t sum(const char *p, size_t n)
{
	uint64_t s = 0, v;

	for (size_t i = 0; i < n; i += sizeof v) {
		memcpy(&v, p + i, sizeof v);
		s += v;
	}
	return s;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;

	size_t n = (size_t)atol(argv[2]) << 20, pages = n / PAGE;
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return 1;
	for (size_t i = 0; i < n; i += 512)
		p[i] = (char)(i / PAGE + 1);

	volatile uint64_t all = sum(p, n);
	double start = now();

	if (strcmp(argv[1], "row") == 0) {
		all += sum(p, n);
		printf("%.0f\n", (double)n / 1e6 / (now() - start));
		return 0;
	}
	for (uint64_t i = 0, x = 88172645463325252u; i < READS; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		all += (uint64_t)p[x % pages * PAGE];
	}
	printf("%.4f\n", (now() - start) / READS * 1e6);
	return 0;
}

/* Reads memory that it has filled, and prints what a page costs.
 * usage: pages random|row|minor MEBIBYTES, or pages file MEBIBYTES FILE
 * random: the time for a read of a page at random, in microseconds; row: MB/s of reading all in a
 * row; both after a first round that is not counted; minor: of a first touch, in microseconds;
 * file: MB/s of reading a file in a row that is mapped and not in the cache. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, READS = 20000 };

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t sum(const char *p, size_t n) {
	uint64_t s = 0, v;
	for (size_t i = 0; i < n; i += sizeof(v)) {
		memcpy(&v, p + i, sizeof(v));
		s += v;
	}
	return s;
}

/* of_file reads n bytes of a mapped file. */
static int of_file(const char *name, size_t n) {
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) {
		perror(name);
		return 1;
	}
	char *p = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		perror(name);
		return 1;
	}
	double start = now();
	volatile uint64_t all = sum(p, n);
	printf("%.0f\n", (double)n / 1e6 / (now() - start));
	return (int)(all == 1);
}

int main(int argc, char **argv) {
	if (argc == 4 && strcmp(argv[1], "file") == 0)
		return of_file(argv[3], (size_t)atol(argv[2]) << 20);
	if (argc != 3)
		return 2;
	size_t n = (size_t)atol(argv[2]) << 20, pages = n / PAGE;
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return 1;
	double start = now();
	for (size_t i = 0; i < pages; i++)
		for (size_t j = 0; j < PAGE; j += 512)
			p[i * PAGE + j] = (char)(i + j + 1);
	double touch = (now() - start) / (double)pages;
	volatile uint64_t all = sum(p, n);
	start = now();
	if (strcmp(argv[1], "row") == 0) {
		all += sum(p, n);
		printf("%.0f\n", (double)n / 1e6 / (now() - start));
	} else if (strcmp(argv[1], "random") == 0) {
		uint64_t x = 88172645463325252u;
		for (int i = 0; i < READS; i++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			all += (uint64_t)p[x % pages * PAGE];
		}
		printf("%.4f\n", (now() - start) / READS * 1e6);
	} else {
		printf("%.4f\n", touch * 1e6);
	}
	return (int)(all == 1);
}

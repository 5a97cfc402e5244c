/* remaps ROW: moves memory of which a part was mapped anew, and prints what is where then. It is
 * the same with a pager and without. With one, memory is elsewhere by then. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "elsewhere.h"

enum { PAGES = 256, NEW = 100, NEWS = 2, MOVED = 120 };

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		_exit(2);
	}
}

static char *map(char *at, size_t pages, int prot)
{
	char *m = mmap(at, pages * P, prot, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	must(m != MAP_FAILED, "mmap");
	return m;
}

static void fill(char *m, int from, int to, int kind)
{
	for (int i = from; i < to; i++)
		memset(m + (size_t)i * P, kind + i % 50, P);
}

static void push(const char *m, size_t pages)
{
	must(pushed(m, (int)pages, (int)pages / 4, 3000), "push");
}

/* Prints what is in pages from a place on, and how many are mapped. */
static void tell(const char *what, char *m, size_t pages)
{
	unsigned sum = 0, mapped = 0;
	unsigned char there;

	for (size_t i = 0; i < pages; i++)
		if (mincore(m + i * P, P, &there) == 0) {
			mapped++;
			for (size_t j = 0; j < P; j += 64)
				sum = sum * 31 + (unsigned char)m[i * P + j];
		}
	printf("%s: %u of %zu pages, sum %u\n", what, mapped, pages, sum);
}

/* Moves pages of the area, and tells of them. to: where, or NULL; old and new: how many pages. */
static char *move(const char *what, char *from, size_t old, size_t new, int flags, char *to)
{
	char *got = to ? mremap(from, old * P, new * P, flags, to) : mremap(from, old * P, new * P, flags);

	if (got == MAP_FAILED) {
		printf("%s: error %d\n", what, errno);
		tell("from", from, old);
		return NULL;
	}
	printf("%s: %s\n", what, got == from ? "where it was" : "elsewhere");
	tell("to", got, new);
	if (got != from)
		tell("from", from, old);
	return got;
}

int main(int argc, char **argv)
{
	const char *row = argc > 1 ? argv[1] : "";
	const int fixed = MREMAP_MAYMOVE | MREMAP_FIXED;

	map_pressure();
	/* Room on both sides, so that other memory is not beside the area. */
	char *room = map(NULL, 4 * PAGES, PROT_NONE), *a = room + PAGES * P, *to = map(NULL, 2 * PAGES, PROT_NONE);

	must(munmap(room, 4 * PAGES * P) == 0, "munmap");
	a = map(a, PAGES, PROT_READ | PROT_WRITE);
	fill(a, 0, PAGES, 100);
	push(a, PAGES);
	map(a + NEW * P, NEWS, PROT_READ | PROT_WRITE);
	fill(a, NEW, NEW + NEWS, 1);
	if (strcmp(row, "fixed") != 0) /* that one is moved at once */
		push(a, PAGES);
	char *from = a + (NEW - 10) * P;

	if (!strcmp(row, "fixed")) {
		move(row, a + NEW * P, 8, 8, fixed, to);
		must(munmap(to, 2 * PAGES * P) == 0, "munmap");
		move(row, a, MOVED, MOVED, fixed, to);
	} else if (!strcmp(row, "back")) {
		char *got = move(row, from, 40, 40, fixed, to);

		push(got, 40);
		move(row, got, 40, 40, fixed, from);
	} else if (!strcmp(row, "grow")) {
		map(a + PAGES * P, 1, PROT_NONE);
		move(row, from, PAGES - NEW + 10, PAGES, MREMAP_MAYMOVE, NULL);
	} else if (!strcmp(row, "grow-here")) {
		move(row, from, PAGES - NEW + 10, PAGES, 0, NULL);
	} else if (!strcmp(row, "grow-nowhere")) {
		map(a + PAGES * P, 1, PROT_NONE);
		move(row, from, PAGES - NEW + 10, PAGES, 0, NULL);
	} else if (!strcmp(row, "shrink")) {
		move(row, from, 40, 11, MREMAP_MAYMOVE, NULL);
	} else if (!strcmp(row, "fixed-shrink")) {
		move(row, from, 40, 20, fixed, to);
	} else if (!strcmp(row, "fixed-grow")) {
		move(row, from, 40, 60, fixed, to);
	} else if (!strcmp(row, "dontunmap")) {
		move(row, from, 40, 40, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
		tell("where it was", from, 40);
	} else if (!strcmp(row, "overlap")) {
		move(row, from, 40, 40, fixed, from + 20 * P);
	} else if (!strcmp(row, "misaligned")) {
		move(row, from, 40, 40, fixed, to + 8);
	} else if (!strcmp(row, "hole")) {
		must(munmap(from + 20 * P, 2 * P) == 0, "munmap");
		move(row, from, 40, 41, MREMAP_MAYMOVE, NULL);
	} else if (!strcmp(row, "sealed")) { /* nothing may be moved by half */
		must(syscall(462, a + (NEW + NEWS) * P, 10L * P, 0) == 0, "mseal");
		move(row, a + NEW * P, 8, 8, fixed, to);
	}
	tell("all", a, PAGES);
	return 0;
}

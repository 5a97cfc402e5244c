/* Has an area of memory, and does with it what its argument says, when a line comes on standard
 * input. It writes where the area is, and then ok if all memory was what it was to be. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, WORDS = MIB / 8 };

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		_exit(2);
	}
}

static uint64_t *map(char *at, size_t size)
{
	void *got = mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	must(got == at, "mmap");
	return got;
}

static void fill(uint64_t *m, size_t words)
{
	for (size_t i = 0; i < words; i++)
		m[i] = i * 0x9e3779b97f4a7c15ULL + 1;
}

static void check(const uint64_t *m, size_t words)
{
	for (size_t i = 0; i < words; i++)
		if (m[i] != i * 0x9e3779b97f4a7c15ULL + 1) {
			fprintf(stderr, "word %zu is %#lx\n", i, (unsigned long)m[i]);
			_exit(1);
		}
}

/* Says where the area is, and waits for a line. */
static void wait_for_line_at(int fd, const void *area)
{
	char c;

	printf("%lx\n", (unsigned long)area);
	fflush(stdout);
	must(read(fd, &c, 1) == 1, "read");
}

static void wait_for_line(const void *area) { wait_for_line_at(0, area); }

static uint64_t *move(uint64_t *area, char *to)
{
	uint64_t *moved = mremap(area, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, to);

	must(moved != MAP_FAILED, "mremap");
	return moved;
}

/* Reads a word of the area when a second line comes: at the first one, the thread's own memory
 * comes. */
static void *touch(void *area)
{
	wait_for_line(area);
	wait_for_line(area);
	return (void *)*(volatile uint64_t *)area;
}

/* As touch, but it gives the area back, finds zeros there, and fills it again. */
static void *give(void *area)
{
	uint64_t *m = area;

	wait_for_line(area);
	wait_for_line(area);
	must(madvise(area, MIB, MADV_DONTNEED) == 0, "madvise");
	for (size_t i = 0; i < WORDS; i++)
		if (m[i] != 0) {
			fprintf(stderr, "word %zu was given back and is %#lx\n", i, (unsigned long)m[i]);
			_exit(1);
		}
	fill(m, WORDS);
	return NULL;
}

/* Forks. Child and parent check the area. */
static void fork_one(const uint64_t *area, int waits)
{
	pid_t pid = fork();
	int status = 0;

	must(pid >= 0, "fork");
	if (pid > 0)
		must(waitpid(pid, &status, 0) == pid && status == 0, "waitpid");
	else if (waits)
		wait_for_line(area);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	char *hole = mmap(NULL, 32 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(hole != MAP_FAILED && munmap(hole, 32 * MIB) == 0, "mmap");
	uint64_t *area = map(hole + 8 * MIB, MIB), *others = NULL;

	fill(area, WORDS);
	if (strcmp(what, "move") == 0 || strcmp(what, "split") == 0) {
		if (what[0] == 's')
			must(mprotect(area + WORDS / 2, 4096, PROT_NONE) == 0, "mprotect");
		others = map(hole + 16 * MIB, 4 * MIB);
		fill(others, 4 * WORDS);
		wait_for_line(area);
		must(mprotect(area, MIB, PROT_READ | PROT_WRITE) == 0, "mprotect");
		area = move(area, hole + 4 * MIB);
		check(others, 4 * WORDS);
	} else if (strcmp(what, "touch") == 0 || strcmp(what, "give") == 0) {
		pthread_t thread;

		others = map(hole + 16 * MIB, 4 * MIB);
		fill(others, 4 * WORDS);
		must(pthread_create(&thread, NULL, what[0] == 't' ? touch : give, area) == 0, "pthread_create");
		char c;

		must(read(3, &c, 1) == 1, "read");
		if (what[0] == 'g') { /* what the thread needs to fork comes with a first one */
			pid_t pid = fork();

			if (pid == 0)
				_exit(0);
			must(pid > 0 && waitpid(pid, NULL, 0) == pid, "fork");
			wait_for_line_at(3, area);
		}
		fork_one(area, 0);
		pthread_join(thread, NULL);
	} else if (strcmp(what, "hole") == 0) {
		wait_for_line(area);
		others = map(hole + 16 * MIB, 2 * MIB);
		fill(others + WORDS, WORDS);
		wait_for_line(others);
		must(munmap(others, MIB) == 0, "munmap");
		wait_for_line(area);
		check(others + WORDS, WORDS);
	} else {
		wait_for_line(area);
		fork_one(area, 1);
	}
	check(area, WORDS);
	puts("ok");
	return 0;
}

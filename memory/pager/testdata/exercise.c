/* Uses memory in every way, at random, and checks all that it reads: several threads give areas
 * back, map new ones (at the same addresses, mostly), grow, move, protect and lock them, and fork
 * children that check their copies. exercise SEED THREADS STEPS PAGES [WITHOUT], where a bit
 * of WITHOUT leaves an operation out. The exit status is 0 if
 * all memory was what it was to be. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, AREAS = 6, MOST = 4096 };

/* An area, and the number that each of its pages was filled from; 0: zeros. */
struct area {
	uint64_t *at;
	size_t pages;
	uint32_t tags[MOST];
};

struct worker {
	uint64_t random;
	int steps;
	size_t pages;
	struct area areas[AREAS];
};

static uint64_t without;

static uint64_t next(struct worker *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random;
}

static void wrong(const char *what, const void *at, uint64_t got, uint64_t want)
{
	fprintf(stderr, "%d: %s: %#lx at %p, want %#lx\n", getpid(), what, (unsigned long)got, at, (unsigned long)want);
	_exit(1);
}

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		_exit(2);
	}
}

static uint64_t word(uint32_t tag, size_t i)
{
	return tag ? (tag + i) * 0x9e3779b97f4a7c15ULL : 0;
}

static void fill(struct area *a, size_t page, uint32_t tag)
{
	for (size_t i = 0; i < WORDS; i++)
		a->at[page * WORDS + i] = word(tag, i);
	a->tags[page] = tag;
}

static void check(const struct area *a, size_t page, const char *what)
{
	for (size_t i = 0; i < WORDS; i++) {
		uint64_t got = a->at[page * WORDS + i], want = word(a->tags[page], i);

		if (got != want)
			wrong(what, &a->at[page * WORDS + i], got, want);
	}
}

static void check_all(const struct area *a, const char *what)
{
	for (size_t i = 0; i < a->pages; i++)
		check(a, i, what);
}

static void map(struct worker *w, struct area *a)
{
	a->pages = 16 + next(w) % (w->pages - 16);
	a->at = mmap(NULL, a->pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(a->at != MAP_FAILED, "mmap");
	memset(a->tags, 0, sizeof a->tags);
}

static void resize(struct worker *w, struct area *a)
{
	size_t pages = 16 + next(w) % (w->pages - 16);
	void *at = mremap(a->at, a->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);

	must(at != MAP_FAILED, "mremap");
	for (size_t i = a->pages; i < pages; i++)
		a->tags[i] = 0;
	a->at = at;
	a->pages = pages;
}

static void give_back(struct worker *w, struct area *a)
{
	size_t first = next(w) % a->pages, n = 1 + next(w) % (a->pages - first);

	must(madvise(a->at + first * WORDS, n * PAGE, MADV_DONTNEED) == 0, "madvise");
	memset(a->tags + first, 0, n * sizeof a->tags[0]);
}

static void protect(struct worker *w, struct area *a)
{
	size_t page = next(w) % a->pages;

	must(mprotect(a->at, a->pages * PAGE, PROT_READ) == 0, "mprotect");
	check(a, page, "protected");
	must(mprotect(a->at, a->pages * PAGE, PROT_NONE) == 0, "mprotect");
	must(mprotect(a->at, a->pages * PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
}

static void lock(struct worker *w, struct area *a)
{
	size_t first = next(w) % a->pages, n = 1 + next(w) % 8;

	if (n > a->pages - first)
		n = a->pages - first;
	must(mlock(a->at + first * WORDS, n * PAGE) == 0, "mlock");
	unsigned char there[8];

	must(mincore(a->at + first * WORDS, n * PAGE, there) == 0, "mincore");
	for (size_t i = 0; i < n; i++) {
		if (!(there[i] & 1))
			wrong("locked, and not there", a->at + (first + i) * WORDS, 0, 1);
		check(a, first + i, "locked");
	}
	must(munlock(a->at + first * WORDS, n * PAGE) == 0, "munlock");
}

/* Has the kernel read and write the area: system calls touch pages that are elsewhere, too. */
static void through_pipe(struct worker *w, struct area *a)
{
	size_t from = next(w) % a->pages, to = next(w) % a->pages;
	int ends[2];

	must(pipe(ends) == 0, "pipe");
	must(write(ends[1], a->at + from * WORDS, PAGE) == PAGE, "write");
	must(read(ends[0], a->at + to * WORDS, PAGE) == PAGE, "read");
	a->tags[to] = a->tags[from];
	close(ends[0]);
	close(ends[1]);
}

static void make_child(struct worker *w)
{
	pid_t pid = fork();

	must(pid >= 0, "fork");
	if (pid == 0) {
		for (int i = 0; i < AREAS; i++) {
			struct area *a = &w->areas[i];

			check_all(a, "child");
			for (size_t p = i; p < a->pages; p += 3)
				fill(a, p, (uint32_t)(0x40000000 + p));
			check_all(a, "child wrote");
		}
		_exit(0);
	}
	for (int i = 0; i < AREAS; i++)
		fill(&w->areas[i], next(w) % w->areas[i].pages, (uint32_t)next(w) | 1);
	int status;

	must(waitpid(pid, &status, 0) == pid, "waitpid");
	if (status != 0)
		wrong("status of the child", w, (uint64_t)status, 0);
}

static void step(struct worker *w)
{
	struct area *a = &w->areas[next(w) % AREAS];

	uint64_t operation = next(w) % 64;

	if (without >> operation & 1)
		operation = 63;
	switch (operation) {
	case 0:
		must(munmap(a->at, a->pages * PAGE) == 0, "munmap");
		map(w, a);
		break;
	case 1:
		resize(w, a);
		break;
	case 2:
		give_back(w, a);
		break;
	case 3:
		protect(w, a);
		break;
	case 4:
		lock(w, a);
		break;
	case 5:
		if (next(w) % 8 == 0)
			make_child(w);
		break;
	case 6:
		check_all(a, "all");
		break;
	case 7 ... 11:
		through_pipe(w, a);
		break;
	case 12 ... 30:
		fill(a, next(w) % a->pages, (uint32_t)next(w) | 1);
		break;
	default:
		check(a, next(w) % a->pages, "page");
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < AREAS; i++)
		map(w, &w->areas[i]);
	for (int i = 0; i < w->steps; i++)
		step(w);
	for (int i = 0; i < AREAS; i++)
		check_all(&w->areas[i], "end");
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 3;
	if (argc > 5)
		without = strtoul(argv[5], NULL, 0);
	uint64_t seed = strtoull(argv[1], NULL, 10);
	int threads = atoi(argv[2]);
	pthread_t all[16];

	for (int i = 0; i < threads && i < 16; i++) {
		struct worker *w = calloc(1, sizeof *w);

		*w = (struct worker){.random = seed * 1000003 + (uint64_t)i + 1, .steps = atoi(argv[3]), .pages = (size_t)atoi(argv[4])};
		must(pthread_create(&all[i], NULL, work, w) == 0, "pthread_create");
	}
	for (int i = 0; i < threads && i < 16; i++)
		pthread_join(all[i], NULL);
	puts("ok");
	return 0;
}

// A fuzzer for the C sources, for compilers without libFuzzer: mutation guided by the
// coverage that GCC's -fsanitize-coverage=trace-pc,trace-cmp reports, under ASan and UBSan.
//
//   fuzz_test                       the names of the targets
//   fuzz_test TARGET [SECONDS [DIR]]  all inputs in ctest/corpus/TARGET, then mutations of
//                                   them for SECONDS; a failing input is written to DIR
//                                   (default ctest/corpus/TARGET)
//
// A child does the work. Whatever ends it, or keeps it at one input for 20 seconds, is a
// finding; its input is in memory that the parent shares. What it prints is what "go test
// -fuzz" prints, so that one script reads both.
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAP = 1 << 16, MOST = 4096, KEPT = 20000, WORDS = 256, HANG = 60 };

static struct shared {
	volatile uint64_t execs, found, kept;
	volatile uint32_t n;
	uint8_t in[MOST];
} *shared;

// ---- what the compiler calls

static uint8_t hits[MAP];    // of the input under way
static uint8_t seen[MAP];    // bits: magnitudes of hits of all inputs
static uint16_t touched[MAP]; // places in hits
static unsigned ntouched;
static uint64_t words[WORDS]; // constants that inputs were compared with
static unsigned nwords;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
	uintptr_t pc = (uintptr_t)__builtin_return_address(0);
	unsigned at = (unsigned)((pc >> 1) ^ (pc >> 17)) % MAP;

	if (!hits[at])
		touched[ntouched++] = (uint16_t)at;
	if (hits[at] != 255)
		hits[at]++;
}

static void compared(uint64_t word)
{
	if (word > 1)
		words[nwords++ % WORDS] = word;
}

#define COMPARE(n, type)                                                                        \
	void __sanitizer_cov_trace_cmp##n(type, type);                                          \
	void __sanitizer_cov_trace_cmp##n(type a, type b) { compared(b); (void)a; }             \
	void __sanitizer_cov_trace_const_cmp##n(type, type);                                    \
	void __sanitizer_cov_trace_const_cmp##n(type a, type b) { compared(a); (void)b; }
COMPARE(1, uint8_t)
COMPARE(2, uint16_t)
COMPARE(4, uint32_t)
COMPARE(8, uint64_t)
void __sanitizer_cov_trace_switch(uint64_t, void *);
void __sanitizer_cov_trace_switch(uint64_t v, void *list)
{
	const uint64_t *cases = list; // their number, their width, they
	(void)v;
	for (uint64_t i = 0; i < cases[0]; i++)
		compared(cases[2 + i]);
}

// ---- inputs

static struct input {
	uint8_t *p;
	size_t n;
} inputs[KEPT];
static size_t ninputs;

static uint64_t state;

static uint64_t below(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % n;
}

// Runs one input; true if it came where none was before.
static bool run(const struct fuzz_target *t, const uint8_t *p, size_t n)
{
	bool fresh = false;
	uint8_t *exact = malloc(n ? n : 1); // so that reading beyond it is seen

	memcpy(shared->in, p, n);
	memcpy(exact, p, n);
	shared->n = (uint32_t)n;
	ntouched = 0;
	t->run(exact, n);
	free(exact);
	for (unsigned i = 0; i < ntouched; i++) {
		unsigned at = touched[i], bit = 0;
		while (bit < 7 && hits[at] >> (bit + 1))
			bit++;
		fresh |= !(seen[at] >> bit & 1);
		seen[at] |= (uint8_t)(1 << bit);
		hits[at] = 0;
	}
	shared->execs++;
	return fresh;
}

static void keep(const uint8_t *p, size_t n)
{
	size_t at = ninputs < KEPT ? ninputs++ : below(KEPT);

	free(inputs[at].p);
	inputs[at].p = malloc(n ? n : 1);
	memcpy(inputs[at].p, p, n);
	inputs[at].n = n;
	shared->kept = ninputs;
}

// Changes the n bytes at p in one way; the new length.
static size_t mutate(uint8_t *p, size_t n, size_t most)
{
	static const uint64_t edge[] = {0, 1, 7, 8, 16, 28, 120, 127, 128, 255, 256, 4095, 4096, 32767, 65535, 65536, 1 << 20, 8 << 20,
		0x7fffffff, 0x80000000, 0xffffffff, 1ull << 63, ~0ull};
	size_t at = below(n + 1), k;
	uint64_t w;

	switch (below(9)) {
	case 0:
		if (at < n)
			p[at] ^= (uint8_t)(1 << below(8));
		break;
	case 1:
		if (at < n)
			p[at] = (uint8_t)below(256);
		break;
	case 2: // a number, of 1, 2, 4 or 8 bytes
	case 3:
		k = (size_t)1 << below(4);
		w = below(2) || !nwords ? edge[below(sizeof edge / sizeof *edge)] : words[below(nwords < WORDS ? nwords : WORDS)];
		w += below(4) ? 0 : below(3) - 1;
		if (at + k <= n)
			memcpy(p + at, &w, k);
		break;
	case 4: // less
		k = 1 + below(below(2) ? 4 : n + 1);
		if (at + k <= n) {
			memmove(p + at, p + at + k, n - at - k);
			n -= k;
		}
		break;
	case 5: // more
		k = 1 + below(8);
		if (n + k <= most) {
			memmove(p + at + k, p + at, n - at);
			for (size_t i = 0; i < k; i++)
				p[at + i] = (uint8_t)(below(2) ? below(256) : ' ' + below(95));
			n += k;
		}
		break;
	case 6: // a piece twice
		k = 1 + below(40);
		if (at + k <= n && n + k <= most) {
			memmove(p + at + k, p + at, n - at);
			n += k;
		}
		break;
	default: { // a piece of another input
		const struct input *o = &inputs[below(ninputs)];
		size_t from = below(o->n + 1);
		k = below(o->n - from + 1);
		if (at + k <= most) {
			memcpy(p + at, o->p + from, k);
			n = n > at + k ? n : at + k;
		}
	}
	}
	return n;
}

static void work(const struct fuzz_target *t, int seconds, const char *corpus)
{
	static uint8_t b[MOST];
	struct timespec now;
	DIR *d = opendir(corpus);

	for (struct dirent *e; d && (e = readdir(d));) {
		char path[4096];
		snprintf(path, sizeof path, "%s/%s", corpus, e->d_name);
		FILE *f = e->d_name[0] != '.' ? fopen(path, "r") : NULL;
		if (!f)
			continue;
		size_t n = fread(b, 1, t->most, f);
		fclose(f);
		run(t, b, n);
		keep(b, n);
	}
	if (d)
		closedir(d);
	if (!ninputs)
		keep(b, 1);
	clock_gettime(CLOCK_MONOTONIC, &now);
	state = (uint64_t)now.tv_nsec * 2654435761u + (uint64_t)getpid() + 1;
	for (time_t end = now.tv_sec + seconds; now.tv_sec < end;) {
		for (int i = 0; i < 256; i++) {
			const struct input *in = &inputs[below(2) ? below(ninputs) : ninputs - 1 - below(ninputs < 16 ? ninputs : 16)];
			size_t n = in->n;
			memcpy(b, in->p, n);
			for (uint64_t times = 1 + below(4); times--;)
				n = mutate(b, n, t->most);
			if (run(t, b, n)) {
				shared->found++;
				keep(b, n);
			}
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
	}
	_exit(0);
}

static void tell(time_t began)
{
	time_t s = time(NULL) - began;

	printf("fuzz: elapsed: %lds, execs: %llu (%llu/sec), new interesting: %llu (total: %llu)\n", (long)s,
	       (unsigned long long)shared->execs, (unsigned long long)(shared->execs / (uint64_t)(s > 0 ? s : 1)),
	       (unsigned long long)shared->found, (unsigned long long)shared->kept);
}

int main(int argc, char **argv)
{
	const struct fuzz_target *t = fuzz_targets;
	char corpus[256], path[4096];

	for (; t->name && (argc < 2 || strcmp(t->name, argv[1])); t++)
		if (argc < 2)
			puts(t->name);
	if (!t->name)
		return argc < 2 ? 0 : (fprintf(stderr, "there is no target %s\n", argv[1]), 2);
	setvbuf(stdout, NULL, _IONBF, 0);
	snprintf(corpus, sizeof corpus, "ctest/corpus/%s", t->name);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 2;
	time_t began = time(NULL);
	pid_t pid = fork();
	if (pid == 0)
		work(t, argc > 2 ? atoi(argv[2]) : 0, corpus);
	int status = 0;
	bool hangs = false;
	uint64_t last = 0;
	for (int idle = 0; waitpid(pid, &status, WNOHANG) == 0; usleep(200000)) {
		idle = shared->execs == last ? idle + 1 : 0;
		last = shared->execs;
		if (idle > 5 * HANG) {
			hangs = true;
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			break;
		}
	}
	tell(began);
	if (status == 0 && !hangs) {
		puts("PASS");
		return 0;
	}
	uint32_t h = 2166136261u, n = shared->n;
	for (uint32_t i = 0; i < n; i++)
		h = (h ^ shared->in[i]) * 16777619u;
	snprintf(path, sizeof path, "%s/%08x", argc > 3 ? argv[3] : corpus, h);
	FILE *f = fopen(path, "w");
	if (!f || fwrite(shared->in, 1, n, f) != n)
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
	if (f)
		fclose(f);
	printf("%s\nFailing input written to %s\nFAIL\n", hangs ? "it hangs" : "it failed", path);
	return 1;
}

// seeded.h: what the random programs share: a seed, which makes the same numbers each time, and a
// check that says seed and step.
#ifndef SEEDED_H
#define SEEDED_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define ask(ok)                                                                                                                \
	do {                                                                                                                   \
		if (!(ok)) {                                                                                                   \
			fprintf(stderr, "%s:%d: seed %s, step %ld: not so: %s\n", __FILE__, __LINE__, seed, step, #ok);        \
			exit(1);                                                                                               \
		}                                                                                                              \
	} while (0)

static const char *seed = "";
static long step;
static __thread uint64_t state;

static inline uint64_t any(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 11) % n;
}

#endif

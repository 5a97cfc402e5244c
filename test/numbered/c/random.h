/* random.h: numbers that a seed decides, for the programs of package numbered. */
#ifndef EXN_RANDOM_H
#define EXN_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* The next number of a sequence (xorshift64*, S. Vigna, 2016). *x is not 0. */
static inline uint64_t random64(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x * 0x2545f4914f6cdd1du;
}

/* A random size from 1 to limit, whose logarithm is evenly distributed. */
static inline size_t log_size(uint64_t *x, size_t limit)
{
	unsigned bits = 1;

	while ((size_t)1 << bits <= limit)
		bits++;
	size_t n = 1 + (random64(x) >> 20) % ((size_t)1 << (random64(x) >> 40) % bits);
	return n < limit ? n : limit;
}

#endif

// What the tests in C share.
#ifndef HARNESS_H
#define HARNESS_H

#include "segment/segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int failures;

#define CHECK(cond, ...)                                                      \
	do {                                                                  \
		if (!(cond)) {                                                \
			printf("%s:%d: %s: ", __FILE__, __LINE__, #cond);     \
			printf(__VA_ARGS__);                                  \
			printf("\n");                                         \
			if (++failures > 20)                                  \
				exit(1);                                      \
		}                                                             \
	} while (0)

// random numbers, the same in every run unless SEED is set
uint64_t rnd(void);
uint64_t below(uint64_t n);
void seed(uint64_t n);

extern const struct ds_info some_info;

// two ends of one segment of fresh memory, without a memfd; bells are connected
struct pair {
	uint8_t *mem;
	size_t size;
	struct end {
		struct ds_seg seg;
		struct ds_tx tx;
		struct ds_rx rx;
		struct ds_attention attention;
	} end[2];
};
void make_pair(struct pair *p, uint32_t slots, uint64_t ring);
void free_pair(struct pair *p);

// the byte at i of a stream, whose pages differ from their neighbours
static inline uint8_t nth_byte(uint64_t i) { return (uint8_t)(i * 131 + (i >> 9)); }

struct ds_cursor cursor_of(struct iovec *v, void *p, size_t n);

#endif

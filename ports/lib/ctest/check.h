// check.h: what the tests of the libraries share.
#ifndef EXN_CHECK_H
#define EXN_CHECK_H

#include <stdio.h>
#include <stdlib.h>

// CHECK ends the program unless a condition holds.
#define CHECK(ok)                                                                         \
	do {                                                                              \
		if (!(ok)) {                                                              \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #ok);          \
			exit(1);                                                          \
		}                                                                         \
	} while (0)

// EQUAL is CHECK of two numbers, which it prints.
#define EQUAL(a, b)                                                                                                  \
	do {                                                                                                         \
		long long a_ = (long long)(a), b_ = (long long)(b);                                                  \
		if (a_ != b_) {                                                                                      \
			fprintf(stderr, "%s:%d: %s is %lld (%#llx), not %s, %lld (%#llx)\n", __FILE__, __LINE__, #a, a_, \
				(unsigned long long)a_, #b, b_, (unsigned long long)b_);                             \
			exit(1);                                                                                     \
		}                                                                                                    \
	} while (0)

#endif

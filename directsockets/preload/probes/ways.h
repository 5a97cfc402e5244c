#ifndef WAYS_H
#define WAYS_H

#include "probe.h"

/* A way to move up to n bytes: from p to fd, or to p from fd (in). */
struct way {
	const char *name;
	long (*by)(int fd, void *p, size_t n, int in);
};

/* Exchanges messages by each, on a connection of its own, beside the functions that all programs
 * use. The last has no name. */
void each_way(const struct way *w);

long by_read(int fd, void *p, size_t n, int in);

/* places.c */
void all_places(void);
void unshared(void);
void closed_apart(void);

#endif

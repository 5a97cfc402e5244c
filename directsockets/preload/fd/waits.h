/* Uncounted connections in a set that a call waits for: the kernel does so, as for a file that is
 * not ours; for CALL_WAIT_MS at most unless the process has one thread, since another one could not
 * make them direct meanwhile. */
#ifndef DS_WAITS_H
#define DS_WAITS_H

#include "fd/call.h"

struct waits {
	struct call calls[8]; /* on those that it has */
	int n;
};

/* May the kernel wait for fd? For what is not ours, and for an uncounted connection, which w gets
 * if there is room. */
bool waits_add(struct waits *w, int fd) DS_HIDDEN;
/* Has w, if there is one, the connection of fd? */
bool waits_has(const struct waits *w, int fd) DS_HIDDEN;
/* The call is over. */
void waits_end(struct waits *w) DS_HIDDEN;

#define WAITS(name) __attribute__((cleanup(waits_end))) struct waits name; name.n = 0

#endif

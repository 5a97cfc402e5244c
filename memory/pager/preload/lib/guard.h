/* Advice on memory: madvise and process_madvise as system calls. */
#ifndef PG_GUARD_H
#define PG_GUARD_H

#include <stdbool.h>

/* Says whether a system call is one of the two. */
bool pg_advises(long nr);

/* Makes it. Returns what the kernel does: a negative error's number on failure. */
long pg_advise(long nr, const long a[6]);

#endif

/* How much memory the control groups of this process leave. A full one has the kernel kill the
 * program, where TCP would send less. */
#ifndef DS_CGROUP_H
#define DS_CGROUP_H

#include "segment/real.h"

#include <stdbool.h>
#include <stdint.h>

/* May a ring, or a new flow, take n bytes more? Not if half of the memory of a group would be in use then, by
 * whichever process. It looks at most every 10 ms, or if there is no limit, every second. */
bool ds_memory_room(uint64_t n) DS_HIDDEN;

/* Where it looks; for tests. */
extern const char *ds_cgroup_self, *ds_cgroup_root DS_HIDDEN;
/* Has the next call of ds_memory_room look; for tests. */
void ds_memory_look(void) DS_HIDDEN;

#endif

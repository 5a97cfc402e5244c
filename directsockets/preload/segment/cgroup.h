/* How much memory the control groups of this process leave. A full one has the kernel kill the
 * program, where TCP would send less. ds_memory_room is in segment.h. */
#ifndef DS_CGROUP_H
#define DS_CGROUP_H

#include "segment/segment.h"

/* Where it looks; for tests. */
extern const char *ds_cgroup_self, *ds_cgroup_root DS_HIDDEN;
/* Has the next call of ds_memory_room look; for tests. */
void ds_memory_look(void) DS_HIDDEN;

#endif

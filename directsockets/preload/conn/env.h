/* The variables of the environment that the library reads. */
#ifndef DS_ENV_H
#define DS_ENV_H

#include "segment/segment.h"

/* The variable of the environment that the program began with, or has now; NULL: there is none, or
 * the program has more rights than who started it (set-user-ID, file capabilities). It stays. */
const char *ds_env(const char *name) DS_HIDDEN;

#endif

/* The variables of the environment that the library reads. */
#ifndef DS_ENV_H
#define DS_ENV_H

#include "segment/segment.h"

/* The variable of the environment that the program began with, or has now; NULL: there is none. It
 * stays. */
const char *ds_env(const char *name) DS_HIDDEN;

#endif

/* Where the broker's socket is (SPEC 6): $EXNET_TAP, else $EXNET_BROKER, else root's of this
 * network namespace, else the user's own. */
#ifndef DS_PLACE_H
#define DS_PLACE_H

#include "segment/segment.h"

#include <stdbool.h>

/* Reads the environment. */
void ds_place_init(void) DS_HIDDEN;
/* Connect to the broker: a descriptor, or -1. ds_place_roots: to root's, which all users of
 * the namespace share. ds_place_find: to any; *users: it is the user's own. */
int ds_place_roots(void) DS_HIDDEN;
int ds_place_find(bool *users) DS_HIDDEN;
/* Has ds_knock told an agent of this process? */
bool ds_place_knocked(void) DS_HIDDEN;

#endif

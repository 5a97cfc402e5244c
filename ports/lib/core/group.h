// group.h: what port.c needs of group.c.
#ifndef EXN_GROUP_H
#define EXN_GROUP_H

#include "port.h"

// exn_group_free frees the groups of a port, whose grants are freed, too.
void exn_group_free(struct exn_port *p);

#endif

// group.h: what port.c calls in group.c.
#ifndef EXN_GROUP_H
#define EXN_GROUP_H

#include "port.h"

// exn_group_free frees the groups of a port. The grants of their members are freed with the port.
void exn_group_free(struct exn_port *p);

#endif

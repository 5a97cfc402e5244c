// group.h: what port.c calls in group.c.
#ifndef EXN_GROUP_H
#define EXN_GROUP_H

#include "port.h"

// exn_group_free frees the groups of a port. The grants of their members are freed with the port.
void exn_group_free(struct exn_port *p);

// exn_group_drop removes a member from all groups.
void exn_group_drop(struct exn_port *p, const struct exn_grant *member);

#endif

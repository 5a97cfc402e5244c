/* The descriptors of a program: what the hooks call.
 *
 *   fdtab.h    what each descriptor is, and calls under way on it
 *   epoll.h    epoll instances
 *   pollset.h  poll and select
 *   carry.h    descriptors that become another process's; fork
 */
#ifndef DS_FD_H
#define DS_FD_H

#include "fd/carry.h"
#include "fd/epoll.h"
#include "fd/fdtab.h"
#include "fd/pollset.h"

#endif

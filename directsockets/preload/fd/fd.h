/* The descriptors of a program: what the hooks call.
 *
 *   fdtab.h      what each descriptor is
 *   uncounted.h  connections that have hardly been used
 *   call.h       calls under way on connections
 *   epoll.h      epoll instances
 *   pollset.h    poll and select
 *   handover.h   descriptors that become another process's; fork
 */
#ifndef DS_FD_H
#define DS_FD_H

#include "fd/call.h"
#include "fd/handover.h"
#include "fd/epoll.h"
#include "fd/fdtab.h"
#include "fd/pollset.h"
#include "fd/uncounted.h"

#endif

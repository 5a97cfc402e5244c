/* poll and select over sets in which some sockets are direct. */
#ifndef DS_POLLSET_H
#define DS_POLLSET_H

#include "fd/waits.h"

/* As ppoll(2). timeout NULL: for ever. The kernel waits for the
 * connections of uncounted (NULL: none). */
int wait_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, const struct waits *uncounted) DS_HIDDEN;

/* As pselect(2). left, if not NULL, gets the time that was not used. */
int wait_select(int n, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout, const sigset_t *mask, struct timespec *left, const struct waits *uncounted) DS_HIDDEN;

#endif

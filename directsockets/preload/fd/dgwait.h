/* UDP sockets in a set of poll or select. */
#ifndef DS_DGWAIT_H
#define DS_DGWAIT_H

#include "fd/fdtab.h"

enum { DGWAIT_MOST = 64 };

/* Those of a set that ask whether there is something to read. */
struct dgwait {
	unsigned n, asleep; /* of these the first ones count the caller as one that waits */
	int slot;
	struct {
		struct ds_dgram *d;
		nfds_t at;
	} of[DGWAIT_MOST];
};

/* Takes references; dgwait_end drops them. Those that are too many, or in an epoll instance of the
 * set, are the kernel's from now on. */
void dgwait_begin(struct dgwait *w, const struct pollfd *fds, nfds_t n) DS_HIDDEN;
void dgwait_end(struct dgwait *w) DS_HIDDEN;
/* Is there something to read? Are flows awake, to look at for a while? */
bool dgwait_ready(struct dgwait *w) DS_HIDDEN;
/* For a call that does not wait: gives up what the kernel has lost. */
void dgwait_look(struct dgwait *w, const struct pollfd *fds) DS_HIDDEN;
bool dgwait_awake(const struct dgwait *w) DS_HIDDEN;
/* They are announced, and take what is offered to them (ds_dg_eager). */
void dgwait_tick(struct dgwait *w, const struct pollfd *fds) DS_HIDDEN;
/* Before and after a wait in the kernel: may the caller sleep there? DGWAIT_READY: there is
 * something to read. DGWAIT_LOOK: the kernel has something, which another thread may take: the
 * caller asks it without waiting. */
enum { DGWAIT_SLEEP, DGWAIT_READY, DGWAIT_LOOK };
int dgwait_sleep(struct dgwait *w, const struct pollfd *fds) DS_HIDDEN;
void dgwait_awoke(struct dgwait *w) DS_HIDDEN;
/* Adds what there is to read to revents, of which n are not 0 already. Returns how many there
 * are. */
int dgwait_tell(struct dgwait *w, struct pollfd *fds, int n) DS_HIDDEN;

#endif

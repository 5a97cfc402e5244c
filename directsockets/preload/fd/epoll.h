/* epoll over sockets of which some are direct.
 *
 * The kernel's instance stays in use. The entry of a socket without a bell stays as the program
 * made it. When the socket gets a bell, the bell joins the instance, and both entries carry a tag
 * of ours (a random prefix and the member's index), which leads back to the program's own data. The
 * shadow's entry then asks only for what the shadow still decides. Where it matters whether an
 * entry has fired (EPOLLET, EPOLLONESHOT), it carries the tag from the beginning, and only the
 * program changes it.
 *
 * A member is either *active*: every epoll_wait looks at it; or *armed*: its peer rings the bell. A
 * sleeper arms all active members at the cost of one barrier; a ring, or a call on the socket,
 * makes a member active again. So idle sockets cost nothing. While another thread sleeps in the
 * instance, or it is nested in another set, no member may stay active: all are armed again at once,
 * and the instance's wakefd, an eventfd in it, reports what is ready already.
 *
 * A conn can be in several instances, which share its bell: whichever reads the bell tells the
 * others (epi_pass_on, and ep_news when a thread in recv or poll has read it). If another process
 * has the bell, a sleeper looks again every DS_FOLLOW_MS.
 *
 * Events are reported in the order in which they came (eporder.c).
 *
 * Locks, in this order; none is held asleep:
 *
 * 	setup (pool.c)       held by conn/ when it reports a bell
 * 	ep_lock              the instances, and the members of each conn: conn.members, cnext,
 * 	                     the free lists of instances and members
 * 	lock of an instance  its lists (all, active, a round's), and all else of its members
 * 	                     except e, c, fd and cnext, which change only with both locks;
 * 	                     of nested instances, the outer's lock before the inner's
 * 	lock (dgset.c)       the UDP sockets of all instances
 * 	tx_lock, rx_lock     of a connection: taken to look at it; arming, in ds_arm and its like
 *
 * So nothing that takes setup is called with ep_lock or an instance's lock held: ds_ready takes it
 * only for a member without a bell (an offer, a claim); ds_fall_back always does.
 */
#ifndef DS_EPOLL_H
#define DS_EPOLL_H

#include "fd/uncounted.h"

struct epi;

/* Before the program runs; stay_by: stay_behind (handover.h), which is above this. */
void ep_init(bool (*stay_by)(struct ds_sock *s, struct conn *c, int fd)) DS_HIDDEN;

/* Wakes the threads that sleep in instances with c: something is ready for which the peer has not
 * rung. */
void ep_news(struct conn *c) DS_HIDDEN;

/* A send on c did not take all: the next room is an edge, also for a thread that sleeps already.
 * errno stays, which is the send's. */
void ep_blocked(struct conn *c) DS_HIDDEN;

void epi_new(int epfd) DS_HIDDEN;

/* e is in a poll or epoll set: makes its descriptor readable or unreadable, as its direct members
 * require (what only the kernel knows is left alone). rung: one of its bells may have been rung for
 * nothing. */
void epi_settle(struct epi *e, bool rung) DS_HIDDEN;

void ep_fork_prepare(void) DS_HIDDEN;
void ep_fork_parent(void) DS_HIDDEN;
void ep_fork_child(void) DS_HIDDEN;

int ep_ctl(int epfd, int op, int fd, struct epoll_event *ev) DS_HIDDEN;

/* Has no instance ever had a member, and will none get one while this thread waits? Then epoll_wait
 * is the kernel's. */
extern uint32_t ep_members DS_HIDDEN;
static inline bool ep_none(void) { return __atomic_load_n(&ep_members, __ATOMIC_RELAXED) == 0 && ds_one_thread() && !__atomic_load_n(&ds_dg_flows, __ATOMIC_RELAXED); }

/* epoll_wait in few instructions, if nothing in the set of epfd is direct: the kernel waits, and *n
 * is the result. False: ep_wait is needed, for *ms. */
bool ep_wait_plain(int epfd, struct epoll_event *ev, int max, int *ms, int *n) DS_HIDDEN;

/* timeout NULL: for ever. mask NULL: none. */
int ep_wait(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout, const sigset_t *mask) DS_HIDDEN;

/* Time left until a deadline of CLOCK_MONOTONIC. */
void deadline_set(struct timespec *deadline, const struct timespec *timeout) DS_HIDDEN;
bool deadline_left(const struct timespec *deadline, struct timespec *left) DS_HIDDEN; /* false: it has passed */

/* Adds the synonyms that the kernel reports with POLLIN and POLLOUT. */
static inline unsigned poll_synonyms(unsigned now, unsigned asked)
{
	if (now & POLLIN)
		now |= asked & POLLRDNORM;
	if (now & POLLOUT)
		now |= asked & POLLWRNORM;
	return now;
}

/* The events to ask conn/ for. */
static inline unsigned poll_plain(unsigned asked)
{
	if (asked & POLLRDNORM)
		asked |= POLLIN;
	if (asked & POLLWRNORM)
		asked |= POLLOUT;
	return asked & (POLLIN | POLLOUT | POLLRDHUP | POLLPRI);
}

#endif

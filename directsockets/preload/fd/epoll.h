/* epoll over sockets of which some are direct.
 *
 * The kernel's instance stays in use. For a socket without a bell the program's
 * entry is as the program made it. When the socket gets a bell, the bell joins the instance,
 * and both entries carry a tag of ours (a random prefix, the member's index), from
 * which the program's own data is found again. The entry of the shadow asks
 * only for what the shadow still decides; where it matters whether an entry has fired (EPOLLET,
 * EPOLLONESHOT) it carries the tag from the beginning, and is changed by the program only.
 *
 * A member is *active*, and looked at by every epoll_wait, or *armed*: then its
 * peer rings the bell. Sleeping arms all active ones at the cost of one barrier;
 * a ring, or a call on the socket, makes it active again. So idle sockets cost
 * nothing. While another thread sleeps in the instance, or it is itself part of a
 * set (nested), nothing may stay active: everything is armed again at once, and
 * what is ready already is told by the instance's wakefd, an eventfd in it.
 *
 * A conn can be in several instances, and its bell is one for all of them: whoever reads that tells the others
 * (epi_pass_on, and ep_news when a thread in recv or poll has read it). If another process has the bell, a sleeper
 * looks every DS_FOLLOW_MS.
 *
 * Events are told in the order in which they came (epready.c).
 *
 * Locks, in this order; none is held asleep:
 *
 *	setup (pool.c)       the core holds it when it tells of a bell
 *	ep_lock              which instances there are, and the members of each conn: conn.members, cnext,
 *	                     the free lists of instances and members
 *	lock of an instance  its lists (all, active, a round's), and all else of its members
 *	                     but e, c, fd and cnext, which change only with both
 *	  one of an instance inside of it (nested): the outer's before the inner's
 *	tx_lock, rx_lock     of a connection: looking at it takes them; arming, in ds_arm and its like
 *
 * So with ep_lock or an instance's nothing is called that takes setup: ds_ready of a member that has its bell
 * does not, of any other it may (an offer, a claim); ds_freeze_demote does.
 */
#ifndef DS_EPOLL_H
#define DS_EPOLL_H

#include "fd/fdtab.h"

struct epi;

void ep_init(void) DS_HIDDEN;

/* Something of c holds that its peer has not rung for: whoever sleeps in an instance that has it is told. */
void ep_news(struct conn *c) DS_HIDDEN;

void epi_new(int epfd) DS_HIDDEN;

/* e is in a poll or epoll set: makes its descriptor readable if it ought to be, and not readable otherwise (what
 * only the kernel knows of is left alone). rung: one of its bells may have been rung for nothing. */
void epi_settle(struct epi *e, bool rung) DS_HIDDEN;

void ep_fork_prepare(void) DS_HIDDEN;
void ep_fork_parent(void) DS_HIDDEN;
void ep_fork_child(void) DS_HIDDEN;

int ep_ctl(int epfd, int op, int fd, struct epoll_event *ev) DS_HIDDEN;

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

/* The events to ask the core for. */
static inline unsigned poll_plain(unsigned asked)
{
	if (asked & POLLRDNORM)
		asked |= POLLIN;
	if (asked & POLLWRNORM)
		asked |= POLLOUT;
	return asked & (POLLIN | POLLOUT | POLLRDHUP | POLLPRI);
}

#endif

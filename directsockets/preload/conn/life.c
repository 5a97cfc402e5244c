#include "conn/inner.h"

#include <errno.h>
#include <sys/syscall.h>

void ds_life_begin(struct ds_life *l, enum conn_event how, enum ds_nonblocking nonblock)
{
	l->s = NULL;
	__atomic_store_n(&l->calls, 0, __ATOMIC_RELAXED);
	l->side = how == CONN_ON_ACCEPT;
	__atomic_store_n(&l->nonblock, nonblock, __ATOMIC_RELAXED);
	l->gen = ds_gen;
	l->traffic = (struct ds_traffic){0};
	ds_life_on(l, how); /* last: a late call may look at it without a reference */
}

bool ds_life_connect(struct ds_life *l, bool wait) { return ds_life_on(l, wait ? CONN_ON_DEFER : CONN_ON_CONNECT) != CONN_NO_STEP; }

/* Real calls that began before l had its handle s become users of the shadow, of which each ends by
 * ds_life_uncount. Not if s is plain from its start. */
static void take_over(struct ds_life *l, struct ds_sock *s)
{
	if (!s->sh)
		return;
	__atomic_store_n(&s->sh->gate, ds_me(), __ATOMIC_SEQ_CST); /* until they are counted here */
	int n = __atomic_fetch_or(&l->calls, DS_TAKEN_OVER, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&s->sh->users, (uint32_t)n, __ATOMIC_SEQ_CST);
	ds_gate_open(s);
}

/* What the program has done with l before it had its handle s. */
static void begun(const struct ds_life *l, struct ds_sock *s)
{
	const struct ds_traffic *t = &l->traffic;
	uint64_t *counters = ds_stats_counters(s->entry);

	s->moved = (uint64_t)DS_GET(t->sent) + DS_GET(t->received);
	s->sends = DS_GET(t->sends);
	ds_bump(counters, DS_C_SENT_SHADOW, DS_GET(t->sent));
	ds_bump(counters, DS_C_RECEIVED_SHADOW, DS_GET(t->received));
}

/* shutdown was called while s had no segment. */
static void shut(struct ds_sock *s, unsigned how)
{
	if (!s->sh)
		return;
	if (how & (1 << SHUT_RD | 1 << SHUT_RDWR))
		__atomic_store_n(&s->sh->rx_shut, 1, __ATOMIC_RELEASE);
	if (how & (1 << SHUT_WR | 1 << SHUT_RDWR))
		__atomic_store_n(&s->sh->tx_shut, 1, __ATOMIC_RELAXED);
}

/* l has the handle s, by CONN_ON_HANDLE or CONN_ON_INHERIT. False: direct sockets were given up
 * meanwhile. */
static bool known(struct ds_life *l, struct ds_sock *s, enum conn_event how)
{
	l->s = s;
	s->life = l;
	take_over(l, s);
	shut(s, __atomic_load_n(&l->traffic.shut, __ATOMIC_SEQ_CST));
	bool wanted = ds_life_on(l, how) != CONN_UNWANTED;
	if (s->seg.bell >= 0 && ds_above)
		ds_above->bell(s);
	return wanted;
}

void ds_life_inherit(struct ds_life *l, struct ds_sock *s) { known(l, s, CONN_ON_INHERIT); }

/* Makes the handle of l, which is SETTLING, with the descriptor fd. NULL: it stays plain. With the
 * lock that a fork takes, too: a child has the whole connection, or one without a handle. */
static struct ds_sock *settle(struct ds_life *l, int fd)
{
	struct ds_sock *s = NULL;
	bool wanted = true;

	if (!ds_setup_lock())
		return NULL;
	if (l->gen == ds_gen) /* or another process has the socket without knowing the connection */
		s = ds_make(fd, l->side, l);
	if (s) {
		begun(l, s);
		wanted = known(l, s, CONN_ON_HANDLE);
	}
	ds_setup_unlock();
	if (!wanted)
		ds_fall_back(s, fd);
	return s;
}

void ds_life_connected(struct ds_life *l, int fd)
{
	int saved = errno;

	ds_critical_begin(); /* no handler is to find it between two states */
	if (ds_life_on(l, CONN_ON_CONNECTED) == CONN_NO_STEP) {
		ds_critical_end();
		return;
	}
	struct ds_sock *s;
	do {
		__atomic_store_n(&l->renumbered, false, __ATOMIC_SEQ_CST);
		if (ds_above)
			fd = ds_above->open(l, fd);
		s = fd >= 0 ? settle(l, fd) : NULL;
	} while (!s && fd >= 0 && ds_life_has_moved(l)); /* by another descriptor, if there is one */
	if (s)
		fd = ds_still(s, fd);
	else
		ds_life_on(l, CONN_ON_NONE);
	if (s && ds_config.wait && l->side == 0)
		ds_tick(s, fd); /* offers it at once, if EXNET_DS_SENDS is 0 */
	if (s && __atomic_load_n(&l->traffic.options, __ATOMIC_SEQ_CST))
		ds_options_changed(s, fd); /* by calls that were not taken over yet */
	ds_critical_end();
	if (s && ds_config.wait && l->side == 1)
		ds_test_wait(s, fd);
	errno = saved;
}

void ds_life_complete(struct ds_life *l, int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof peer;
	int saved = errno;

	/* A connection that is being made, or has failed, has no peer. Asking does not clear an
	 * error, as SO_ERROR does, and takes no lock in the kernel, as TCP_INFO does. */
	if (l->side == 1 || kernel_getpeername(fd, (struct sockaddr *)&peer, &len) == 0)
		ds_life_connected(l, fd);
	errno = saved;
}

/* Waits for the thread that makes the handle of l. */
static void wait_settled(const struct ds_life *l)
{
	enum { LOOKS = 1000, MOST = 3000 };

	for (int i = 0; i < MOST && ds_life_is(l) == CONN_SETTLING && l->gen == ds_gen; i++) {
		if (i < LOOKS)
			ds_syscall(SYS_sched_yield);
		else
			ds_syscall(SYS_nanosleep, &(struct timespec){0, 1000000}, NULL);
	}
}

void ds_life_settle(struct ds_life *l, int fd)
{
	if (ds_life_is(l) == CONN_UNCOUNTED)
		ds_life_complete(l, fd);
	wait_settled(l);
}

void ds_life_demote(struct ds_life *l, int fd)
{
	ds_life_settle(l, fd);
	if (ds_life_on(l, CONN_ON_GIVE_UP) == CONN_NO_STEP && ds_life_is(l) == CONN_KNOWN)
		ds_fall_back(l->s, fd);
}

bool ds_life_leave(struct ds_life *l) { return ds_life_on(l, CONN_ON_GIVE_UP) != CONN_NO_STEP; }

void ds_life_forget(struct ds_life *l)
{
	if (ds_life_on(l, CONN_ON_GIVE_UP) == CONN_NO_STEP)
		ds_life_on(l, CONN_ON_FORGET);
}

void ds_life_abandon(struct ds_life *l) { ds_life_on(l, CONN_ON_ABANDON); }

void ds_life_end(struct ds_life *l, int fd)
{
	if (l->s)
		ds_close(l->s, fd);
	l->s = NULL;
	ds_life_on(l, CONN_ON_END);
}

/* ---- real calls ------------------------------------------------------------------- */

void ds_life_uncount_known(struct ds_life *l) { ds_users_end(l->s); }

void ds_life_shuts(struct ds_life *l, int how)
{
	if (how >= SHUT_RD && how <= SHUT_RDWR)
		__atomic_fetch_or(&l->traffic.shut, (uint8_t)(1 << how), __ATOMIC_SEQ_CST);
}

void ds_life_has_shut(struct ds_life *l)
{
	if (__atomic_load_n(&l->calls, __ATOMIC_SEQ_CST) & DS_TAKEN_OVER)
		shut(l->s, l->traffic.shut);
}

void ds_life_options(struct ds_life *l, int fd)
{
	__atomic_store_n(&l->traffic.options, true, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&l->calls, __ATOMIC_SEQ_CST) & DS_TAKEN_OVER)
		ds_options_changed(l->s, fd);
}

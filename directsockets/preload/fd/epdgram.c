/* epoll_wait where UDP sockets are in the set: it looks at their flows as well. */
#include "fd/epoll_int.h"

#include <errno.h>

static const struct timespec none;

/* Looks at flows for a while, and at the rest now and then: the number of events. */
static int spin_dgrams(struct waiter *w, ep_rest *rest, struct ds_spin *s)
{
	enum { STEP_US = 10 };
	uint64_t next;
	int n = 0;

	ds_spin_begin(s, NULL);
	next = ds_dg_first_ask(s);
	do {
		n = dgset_collect(w->e, waiter_fd(w), w->ev, w->max);
		if (n == 0 && (int64_t)(ds_ticks() - next) >= 0) {
			n = dgset_merge(w->e, w->ev, 0, rest(w, &none));
			next = ds_ticks() + ds_dg_ticks(STEP_US);
		}
	} while (n == 0 && ds_spin_more(s));
	if (n > 0)
		ds_spin_end(s, NULL, true);
	return n;
}

int ep_wait_dgrams(struct waiter *w, ep_rest *rest)
{
	const struct timespec *timeout = w->timeout;
	struct timespec deadline, left;
	bool poll = timeout && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
	enum ds_spun spun = DS_SPUN_NOT;
	struct ds_spin s;

	if (timeout && !poll)
		deadline_set(&deadline, timeout);
	for (;;) {
		w->kicks = __atomic_load_n(&w->e->kicks, __ATOMIC_SEQ_CST);
		int n = dgset_collect(w->e, waiter_fd(w), w->ev, w->max);
		if (n > 0 && n < w->max) {
			struct waiter other = *w;
			other.ev += n;
			other.max -= n;
			int saved = errno, more = rest(&other, &none);
			errno = saved;
			n = dgset_merge(w->e, w->ev, n, more);
		}
		if (n > 0)
			return n;
		if (poll)
			return dgset_merge(w->e, w->ev, 0, rest(w, timeout));
		if (spun == DS_SPUN_NOT && dgset_awake(w->e)) {
			n = spin_dgrams(w, rest, &s);
			if (n != 0)
				return n;
			spun = DS_SPUN_OPEN;
		}
		bool time = !timeout || deadline_left(&deadline, &left);
		waiter_rest(w, true);
		int how = dgset_rest(w->e);
		if (how != DGSET_READY)
			n = rest(w, how == DGSET_LOOK ? &none : timeout ? &left : NULL);
		int saved = errno;
		waiter_rest(w, false);
		if (how == DGSET_READY)
			continue;
		if (how == DGSET_LOOK && n == 0)
			ds_dg_moment();
		errno = saved;
		ds_spun_slept(&spun, &s);
		n = dgset_merge(w->e, w->ev, 0, n);
		if (n != 0 || !time || (timeout && !deadline_left(&deadline, &left)))
			return n;
	}
}

/* Waiting in an epoll instance: epoll.h says how. */
#include "fd/epoll_int.h"

#include <errno.h>
#include <limits.h>

/* Of so many calls that found something in the segments, one asks the kernel too. */
enum { ASK_KERNEL = 8 };

/* A member that was looked at in vain so often is armed, though nobody sleeps. */
enum { LOOKS = 512 };

void deadline_set(struct timespec *d, const struct timespec *timeout)
{
	clock_gettime(CLOCK_MONOTONIC, d);
	d->tv_sec += timeout->tv_sec;
	d->tv_nsec += timeout->tv_nsec;
	if (d->tv_nsec >= 1000000000L) {
		d->tv_nsec -= 1000000000L;
		d->tv_sec++;
	}
	if (d->tv_sec < 0)
		d->tv_sec = LONG_MAX; /* a timeout beyond the end of time */
}

bool deadline_left(const struct timespec *d, struct timespec *left)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	left->tv_sec = d->tv_sec - now.tv_sec;
	left->tv_nsec = d->tv_nsec - now.tv_nsec;
	if (left->tv_nsec < 0) {
		left->tv_nsec += 1000000000L;
		left->tv_sec--;
	}
	if (left->tv_sec < 0)
		*left = (struct timespec){0, 0};
	return left->tv_sec > 0 || left->tv_nsec > 0;
}

/* The kernel's wait, as precise as it can be. left NULL: for ever. */
static int raw_wait(int epfd, struct epoll_event *ev, int max, const struct timespec *left, const sigset_t *mask)
{
	int ms = -1;

	if (left) {
		if (left->tv_nsec % 1000000 != 0 && REAL(epoll_pwait2))
			return REAL(epoll_pwait2)(epfd, ev, max, left, mask);
		long long t = (long long)left->tv_sec * 1000 + (left->tv_nsec + 999999) / 1000000;
		ms = left->tv_sec > INT_MAX / 1000 - 1 ? INT_MAX : (int)t;
	}
	return mask ? REAL(epoll_pwait)(epfd, ev, max, ms, mask) : REAL(epoll_wait)(epfd, ev, max, ms);
}

static void drain_kick(struct epi *e)
{
	uint64_t v;
	int saved = errno;

	if (e->kicked) {
		e->kicked = false;
		if (REAL(read)(e->kick, &v, sizeof v) < 0)
			errno = saved;
	}
}

/* The lock is held. Arms those that had nothing to tell for long: then they need not be looked at. */
static void doze(struct epi *e)
{
	struct member *m, *next;

	for (m = e->active_head; m; m = m->anext)
		if (m->vain > LOOKS)
			m_arm(m);
	ds_barrier();
	for (m = e->active_head; m; m = next) {
		next = m->anext;
		if (m->vain <= LOOKS || !m->armed)
			continue;
		bool fresh = m->fresh;
		uint64_t rx = m->rx, tx = m->tx;
		if (m_look(m, 0) == 0) {
			m_passive(m);
			continue;
		}
		m->fresh = fresh;
		m->rx = rx;
		m->tx = tx;
		m_disarm(m);
		m->vain = 0;
	}
}

/* The lock is held. Looks at the active members, most patient first. */
static int scan(struct epi *e, struct epoll_event *ev, int max, bool first)
{
	struct member *m = e->active_head, *last = e->active_tail, *next;
	int n = 0;
	bool idle = false, odd = false;

	for (; m && n < max; m = next) {
		next = m == last ? NULL : m->anext;
		if (m->stamp == e->seq)
			continue;
		uint32_t got = m_look(m, 0);
		odd |= ds_direct(m->c->s) != 3;
		if (got == 0) {
			idle |= first && !m->armed && ++m->vain > LOOKS;
			continue;
		}
		m_told(m);
		ev[n].events = got;
		ev[n++].data.u64 = m->data;
		m_passive(m);
		m_activate(m);
	}
	e->odd = odd;
	if (idle)
		doze(e);
	return n;
}

/* Turns what the kernel told into what the program should see, in place. */
static int translate(struct epi *e, struct epoll_event *ev, int n)
{
	int out = 0, foreign = 0;
	bool others = false;

	for (int i = 0; i < n; i++) {
		uint64_t d = ev[i].data.u64;
		if (!tag_is_ours(d)) {
			ev[out++] = ev[i];
			others = true;
			continue;
		}
		lk_lock(&e->lock);
		struct member *m = m_by_tag(d);
		if (tag_is_kick(d)) {
			drain_kick(e);
		} else if (!m || m->e != e || m->tag != (d & ~(uint64_t)1)) {
			foreign++; /* of a process that shares the instance, or just gone */
		} else if (m->deleted) {
			if (!m->unlinked) {
				REAL(epoll_ctl)(e->epfd, EPOLL_CTL_DEL, m->bell, NULL);
				REAL(epoll_ctl)(e->epfd, EPOLL_CTL_DEL, m->fd, NULL);
				m->unlinked = true;
				m->bell = -1;
			}
		} else {
			uint32_t kernel = 0;
			if (d & 1) {
				ds_rung(m->c->s, conn_fd(m->c));
				m_dead_bell(m);
				for (struct member *t = m->c->twins ? e->all : NULL; t; t = t->enext)
					if (t->c == m->c) {
						m_disarm(t);
						m_activate(t);
					}
			} else {
				kernel = ev[i].events;
				others = true;
			}
			m_disarm(m);
			m_activate(m);
			if (m->stamp == e->seq) { /* its bell came first: what the shadow says joins it */
				if (kernel && !m->disabled && m->at < out)
					ev[m->at].events |= m_look(m, kernel);
				lk_unlock(&e->lock);
				continue;
			}
			uint32_t got = m_look(m, kernel);
			if (got) {
				m_told(m);
				m->at = out;
				ev[out].events = got;
				ev[out++].data.u64 = m->data;
			}
		}
		lk_unlock(&e->lock);
	}
	__atomic_store_n(&e->others, others, __ATOMIC_RELAXED);
	if (foreign && out == 0)
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	return out;
}

/* What others who wait in this instance, or on it, should know. */
static void settle(struct epi *e)
{
	if (__atomic_load_n(&e->sleepers, __ATOMIC_RELAXED) == 0 && !e->nested)
		return;
	lk_lock(&e->lock);
	if (epi_arm_all(e))
		epi_kick(e);
	lk_unlock(&e->lock);
}

bool epi_settle(struct epi *e)
{
	bool kicked;

	lk_lock(&e->lock);
	if (epi_arm_all(e))
		epi_kick(e);
	kicked = e->kicked;
	lk_unlock(&e->lock);
	return kicked;
}

struct sleeper {
	struct epi *e;
	bool asleep;
};

static void sleeper_wake(struct sleeper *w)
{
	if (w->asleep)
		__atomic_sub_fetch(&w->e->sleepers, 1, __ATOMIC_SEQ_CST);
	w->asleep = false;
}

static void sleeper_end(struct sleeper *w)
{
	sleeper_wake(w);
	epi_put(w->e);
}

static bool look_for(struct epi *e, struct ds_spin *spin, struct epoll_event *ev, int max, int *n)
{
	ds_spin_begin(spin, NULL);
	if (__atomic_load_n(&e->others, __ATOMIC_RELAXED)) { /* not to let them wait */
		int k = raw_wait(e->epfd, ev, max, &(struct timespec){0, 0}, NULL);
		if (k >= 0)
			*n = translate(e, ev, k);
	}
	while (*n == 0 && ds_spin_more(spin)) {
		lk_lock(&e->lock);
		*n = scan(e, ev, max, false);
		lk_unlock(&e->lock);
	}
	if (*n > 0)
		ds_spin_end(spin, NULL, true);
	return *n > 0;
}

int ep_wait(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout, const sigset_t *mask)
{
	struct epi *e = max > 0 && ev ? epi_get(epfd) : NULL;

	if (!e)
		return raw_wait(epfd, ev, max, timeout, mask);

	__attribute__((cleanup(sleeper_end))) struct sleeper w = {e, false};
	static const struct timespec zero;
	struct timespec deadline, left;
	struct ds_spin spin;
	bool poll = timeout && timeout->tv_sec == 0 && timeout->tv_nsec == 0, spun = false;
	int n = 0, k;

	__atomic_add_fetch(&e->sleepers, 1, __ATOMIC_SEQ_CST);
	w.asleep = true;
	if (__atomic_load_n(&e->tagged, __ATOMIC_SEQ_CST) == 0 && !e->kicked) {
		/* Nothing direct in it; what becomes direct meanwhile is armed at once. */
		n = raw_wait(epfd, ev, max, timeout, mask);
		sleeper_wake(&w);
		if (n <= 0 || __atomic_load_n(&e->tagged, __ATOMIC_RELAXED) == 0)
			return n;
		lk_lock(&e->lock);
		e->seq++;
		lk_unlock(&e->lock);
		k = translate(e, ev, n);
		settle(e);
		if (k > 0 || poll)
			return k;
	} else {
		sleeper_wake(&w);
	}
	if (timeout && !poll)
		deadline_set(&deadline, timeout);

	for (;;) {
		lk_lock(&e->lock);
		if (__atomic_load_n(&e->epfd, __ATOMIC_RELAXED) < 0)
			__atomic_store_n(&e->epfd, epfd, __ATOMIC_RELAXED);
		drain_kick(e);
		e->seq++;
		bool ask = ++e->skipped >= ASK_KERNEL || e->odd;
		if (ask)
			e->skipped = 0;
		else
			n = scan(e, ev, max, true);
		lk_unlock(&e->lock);
		if (ask || (n == 0 && poll)) {
			k = raw_wait(epfd, ev, max, &zero, mask);
			if (k < 0)
				return k;
			n = translate(e, ev, k);
			if (ask && n < max) {
				lk_lock(&e->lock);
				n += scan(e, ev + n, max - n, true);
				lk_unlock(&e->lock);
			}
		}
		if (n > 0 || poll)
			break;
		bool looked = !spun && __atomic_load_n(&e->active_head, __ATOMIC_RELAXED);
		if (looked && look_for(e, &spin, ev, max, &n))
			break;
		spun = true;

		lk_lock(&e->lock);
		__atomic_add_fetch(&e->sleepers, 1, __ATOMIC_SEQ_CST);
		w.asleep = true;
		bool found = epi_arm_all(e);
		bool follow = e->followers > 0 || e->nobell;
		lk_unlock(&e->lock);
		if (found) {
			sleeper_wake(&w);
			lk_lock(&e->lock);
			epi_wake(e);
			lk_unlock(&e->lock);
			continue;
		}
		const struct timespec *t = NULL;
		if (timeout) {
			deadline_left(&deadline, &left);
			t = &left;
		}
		if (follow && (!t || left.tv_sec > 0 || left.tv_nsec > DS_FOLLOW_MS * 1000000L)) {
			left = (struct timespec){0, DS_FOLLOW_MS * 1000000L};
			t = &left;
		}
		k = raw_wait(epfd, ev, max, t, mask);
		sleeper_wake(&w);
		if (looked) {
			int saved = errno;
			ds_spin_end(&spin, NULL, false);
			errno = saved;
		}
		lk_lock(&e->lock);
		epi_wake(e);
		lk_unlock(&e->lock);
		if (k < 0)
			return k;
		n = translate(e, ev, k);
		if (k > 0 && n < max) { /* what came at the same time */
			lk_lock(&e->lock);
			n += scan(e, ev + n, max - n, true);
			lk_unlock(&e->lock);
		}
		if (follow && n == 0) { /* its bell is another's: look by ourselves */
			lk_lock(&e->lock);
			for (struct member *m = e->all; m; m = m->enext)
				if (m->armed && (!m->had || e->nobell)) {
					m_disarm(m);
					m_activate(m);
				}
			lk_unlock(&e->lock);
		}
		if (n > 0)
			break;
		if (timeout && !deadline_left(&deadline, &left)) {
			lk_lock(&e->lock);
			n = scan(e, ev, max, true);
			lk_unlock(&e->lock);
			break;
		}
	}
	settle(e);
	return n;
}

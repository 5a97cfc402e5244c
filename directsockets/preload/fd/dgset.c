/* UDP sockets in epoll sets. The kernel's entry is the program's own; what flows hold is told in
 * its place. A thread that waits is counted in the instance, whose sockets' flows it has armed: so
 * what comes meanwhile comes by the kernel. */
#include "fd/epoll_int.h"

#include <errno.h>

enum {
	IN = EPOLLIN | EPOLLRDNORM,
	OUT = EPOLLOUT | EPOLLWRNORM,
	IDLE = 1024, /* looks in vain after which its flows are armed: they cost as much as a wake-up */
};
#define UNSEEN UINT64_MAX

/* Guards the sets of all sockets, and struct epi's dgrams. After ep_lock, before the lock of a
 * socket. */
static struct ds_lock lock;

/* The place of e and fd in d; NULL: there is none. e NULL: a free one. */
static struct ds_dg_set *place(struct ds_dgram *d, const struct epi *e, int fd)
{
	for (int i = 0; i < DS_DG_SETS; i++)
		if (d->sets[i].set == e && (!e || d->sets[i].fd == fd))
			return &d->sets[i];
	return NULL;
}

/* The places of e that may have flows that are awake, each once. With the lock. */
static struct ds_dg_set **looked(struct epi *e)
{
	struct ds_dg_set *s = __atomic_exchange_n(&e->live, NULL, __ATOMIC_SEQ_CST), *next;

	for (; s; s = next) {
		next = s->next;
		s->next = e->looked;
		e->looked = s;
	}
	return &e->looked;
}

/* Frees s. */
static void clear(struct ds_dg_set *s)
{
	struct epi *e = s->set;
	bool locked = ds_own_lock(&s->of->in) != DS_NESTED;

	__atomic_store_n(&s->asleep, NULL, __ATOMIC_RELEASE);
	__atomic_store_n(&s->live, NULL, __ATOMIC_RELEASE);
	if (s->queued) {
		struct ds_dg_set **at = looked(e);
		while (*at && *at != s)
			at = &(*at)->next;
		if (*at)
			*at = s->next;
	}
	s->queued = false;
	if (locked)
		ds_own_unlock(&s->of->in);
	e->once -= (s->events & EPOLLONESHOT) != 0;
	s->events = 0;
	s->set = NULL;
	__atomic_sub_fetch(&e->dgrams, 1, __ATOMIC_RELAXED);
}

void dgset_kick(struct epi *e)
{
	__atomic_add_fetch(&e->kicks, 1, __ATOMIC_SEQ_CST);
	lk_lock(&e->lock);
	epi_wake(e);
	lk_unlock(&e->lock);
}

void dgset_ctl(struct epi *e, int op, struct ds_dgram *d, int fd, const struct epoll_event *ev)
{
	if (!e || e->nested) {
		ds_dg_harden(d, DS_WHY_UNSUPPORTED_CALL);
		return;
	}
	lk_lock(&lock);
	struct ds_dg_set *s = place(d, e, fd);
	if (op == EPOLL_CTL_DEL && s)
		clear(s);
	if (op == EPOLL_CTL_ADD && !s && (s = place(d, NULL, 0))) {
		s->set = e;
		s->fd = fd;
		s->of = d;
		s->events = 0;
		s->queued = false;
		__atomic_store_n(&s->asleep, &e->asleep, __ATOMIC_RELEASE);
		__atomic_store_n(&s->live, &e->live, __ATOMIC_RELEASE);
		__atomic_add_fetch(&e->dgrams, 1, __ATOMIC_RELAXED);
		if (ds_own_lock(&d->in) != DS_NESTED) { /* it may have some already */
			ds_dg_enqueue(s);
			ds_own_unlock(&d->in);
		}
		/* Who has closed it meanwhile sees the place, or this sees that it is closed. */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (!__atomic_load_n(&d->nfds, __ATOMIC_RELAXED)) {
			clear(s);
			s = NULL;
		}
	}
	if (op != EPOLL_CTL_DEL && s) {
		e->once += ((ev->events & EPOLLONESHOT) != 0) - ((s->events & EPOLLONESHOT) != 0);
		s->events = ev->events;
		s->data = ev->data.u64;
		s->seen = UNSEEN;
		s->off = false;
	}
	lk_unlock(&lock);
	if (op == EPOLL_CTL_DEL)
		return;
	if (!s)
		ds_dg_harden(d, DS_WHY_UNSUPPORTED_CALL);
	/* Those who wait in it know nothing of what flows hold, nor that it has a UDP socket. */
	if (__atomic_load_n(&e->sleepers, __ATOMIC_SEQ_CST) && (op == EPOLL_CTL_ADD || ds_dg_ready(d)))
		dgset_kick(e);
}

/* Takes a reference of e, which a call that waits in it has, too. False: none waits any more. */
static bool hold_waited(struct epi *e)
{
	int n = __atomic_load_n(&e->users, __ATOMIC_RELAXED);

	while (n > 0 && !__atomic_compare_exchange_n(&e->users, &n, n + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		;
	return n > 0;
}

int dgset_waited(struct ds_dgram *d, struct epi *waited[DS_DG_SETS])
{
	int n = 0;

	lk_lock(&lock);
	for (int i = 0; i < DS_DG_SETS; i++) {
		struct epi *e = d->sets[i].set;
		if (e && __atomic_load_n(&e->asleep, __ATOMIC_SEQ_CST) && hold_waited(e))
			waited[n++] = e;
	}
	lk_unlock(&lock);
	return n;
}

/* Is d in a set, by a number of its own? -1: any. */
static bool in_set(const struct ds_dgram *d, int fd)
{
	for (int i = 0; i < DS_DG_SETS; i++)
		if (d->sets[i].set && (fd < 0 || d->sets[i].fd == fd))
			return true;
	return false;
}

/* The kernel goes on telling of d, and its entry can be changed no more: from now on all of d's
 * datagrams are the kernel's. */
void dgset_renumbered(struct ds_dgram *d, int fd)
{
	if (!in_set(d, fd))
		return;
	lk_lock(&lock);
	ds_dg_harden(d, DS_WHY_UNSUPPORTED_CALL);
	for (int i = 0; i < DS_DG_SETS; i++)
		if (d->sets[i].set && d->sets[i].fd == fd)
			d->sets[i].fd = -1; /* it may be another file's soon */
	lk_unlock(&lock);
}

void dgset_forget(struct ds_dgram *d)
{
	if (!in_set(d, -1))
		return;
	lk_lock(&lock);
	for (int i = 0; i < DS_DG_SETS; i++)
		if (d->sets[i].set)
			clear(&d->sets[i]);
	lk_unlock(&lock);
}

/* For ds_dg_each: calls fn for each place of d in the set. */
struct each {
	struct epi *e;
	void (*fn)(struct ds_dgram *d, struct ds_dg_set *s, void *arg);
	void *arg;
};

/* For ds_dg_each: struct each *. */
static void visit(struct ds_dgram *d, void *arg)
{
	struct each *a = arg;

	for (int i = 0; i < DS_DG_SETS; i++)
		if (d->sets[i].set == a->e)
			a->fn(d, &d->sets[i], a->arg);
}

/* Calls fn for each socket of e. With the lock. */
static void each(struct epi *e, void (*fn)(struct ds_dgram *d, struct ds_dg_set *s, void *arg), void *arg)
{
	struct each a = {e, fn, arg};

	ds_dg_each(visit, &a);
}

/* For each: e is gone. */
static void leave(struct ds_dgram *d, struct ds_dg_set *s, void *arg)
{
	(void)d, (void)arg;
	clear(s);
}

/* Calls fn for each socket of e that may have flows that are awake, or records; forgets those that
 * have none. With the lock. */
static void each_awake(struct epi *e, void (*fn)(struct ds_dgram *d, struct ds_dg_set *s, void *arg), void *arg)
{
	for (struct ds_dg_set **at = looked(e); *at;) {
		struct ds_dg_set *s = *at;
		bool idle = false;

		if (ds_own_lock(&s->of->in) != DS_NESTED) {
			idle = !s->of->nlisted;
			if (idle) {
				s->queued = false; /* under this lock: its next flow that is listed queues it */
				*at = s->next;
			}
			ds_own_unlock(&s->of->in);
		}
		if (idle)
			continue;
		fn(s->of, s, arg);
		at = &s->next;
	}
}

void dgset_gone(struct epi *e)
{
	if (!e->dgrams)
		return;
	lk_lock(&lock);
	each(e, leave, NULL);
	lk_unlock(&lock);
}

/* For each: d is the kernel's from now on. */
static void native(struct ds_dgram *d, struct ds_dg_set *s, void *arg)
{
	(void)s, (void)arg;
	ds_dg_harden(d, DS_WHY_UNSUPPORTED_CALL);
}

void dgset_native(struct epi *e)
{
	if (!e->dgrams)
		return;
	lk_lock(&lock);
	each(e, native, NULL);
	lk_unlock(&lock);
}

/* ---- fork --------------------------------------------------------------------------- */

void dgset_fork_prepare(void) { lk_lock(&lock); }

void dgset_fork_parent(void) { lk_unlock(&lock); }

/* For ds_dg_each: in a child, in which no flow is listed, d is queued nowhere. */
static void unqueue(struct ds_dgram *d, void *arg)
{
	(void)arg;
	for (int i = 0; i < DS_DG_SETS; i++)
		d->sets[i].queued = false;
}

void dgset_fork_child(void)
{
	lk_unlock(&lock);
	lock = (struct ds_lock){0};
	ds_dg_each(unqueue, NULL);
}

/* ---- events ------------------------------------------------------------------------- */

struct events {
	int epfd, n, max;
	struct epoll_event *ev;
};

/* Writes an event for d, if it has something to read. */
static void collect(struct ds_dgram *d, struct ds_dg_set *s, void *arg)
{
	struct events *l = arg;
	uint64_t arrived;

	if (l->n == l->max || s->off || !(s->events & IN))
		return;
	if (s->fd >= 0 ? !ds_dg_due(d, s->fd) : !ds_dg_ready(d)) {
		if (++s->idle == IDLE && s->fd >= 0) {
			s->idle = 0;
			ds_dg_rest(d, s->fd);
		}
		return;
	}
	s->idle = 0;
	if (s->events & EPOLLET) {
		arrived = ds_dg_arrivals(d);
		if (arrived == s->seen)
			return;
		s->seen = arrived;
	}
	uint32_t now = s->events & IN;
	if ((s->events & OUT) && s->fd >= 0) {
		struct pollfd p = {s->fd, POLLOUT, 0};
		int saved = errno;
		if (REAL(ppoll, &p, 1, &(struct timespec){0, 0}, NULL) > 0 && (p.revents & POLLOUT))
			now |= s->events & OUT;
		errno = saved;
	}
	l->ev[l->n].events = now;
	l->ev[l->n++].data.u64 = s->data;
	if (s->events & EPOLLONESHOT) {
		struct epoll_event none = {.events = s->events & (EPOLLONESHOT | EPOLLET), .data.u64 = s->data};
		s->off = true;
		if (s->fd >= 0)
			REAL(epoll_ctl, l->epfd, EPOLL_CTL_MOD, s->fd, &none);
	}
}

int dgset_collect(struct epi *e, int epfd, struct epoll_event *ev, int max)
{
	struct events l = {epfd, 0, max, ev};

	if (!__atomic_load_n(&ds_dg_flows, __ATOMIC_RELAXED))
		return 0;
	lk_lock(&lock);
	each_awake(e, collect, &l);
	lk_unlock(&lock);
	return l.n;
}

/* The kernel has told data: once, if it was to be told once. */
struct told {
	uint64_t data;
	int n;
};

/* For each: struct told *. */
static void tell(struct ds_dgram *d, struct ds_dg_set *s, void *arg)
{
	struct told *t = arg;

	if (!(s->events & EPOLLONESHOT) || s->data != t->data)
		return;
	s->off = true;
	if (++t->n > 1) /* of which one it was is not known */
		ds_dg_harden(d, DS_WHY_UNSUPPORTED_CALL);
}

int dgset_merge(struct epi *e, struct epoll_event *ev, int at, int n)
{
	int saved = errno, left = at;

	if (n <= 0)
		return at > 0 ? at : n;
	if (!__atomic_load_n(&ds_dg_flows, __ATOMIC_RELAXED))
		return at + n;
	lk_lock(&lock);
	for (int i = 0; i < n; i++) {
		struct told t = {ev[at + i].data.u64, 0};
		int k = 0;

		if (e->once)
			each(e, tell, &t);
		while (k < at && ev[k].data.u64 != t.data)
			k++;
		if (k < at)
			ev[k].events |= ev[at + i].events;
		else
			ev[left++] = ev[at + i];
	}
	lk_unlock(&lock);
	errno = saved;
	return left;
}

/* For each: has d flows that are awake? bool *. */
static void awake(struct ds_dgram *d, struct ds_dg_set *s, void *arg)
{
	if (!s->off && (s->events & IN) && __atomic_load_n(&d->awake, __ATOMIC_RELAXED))
		*(bool *)arg = true;
}

bool dgset_awake(struct epi *e)
{
	bool any = false;

	lk_lock(&lock);
	each_awake(e, awake, &any);
	lk_unlock(&lock);
	return any;
}

/* Is there something to read? Has some socket a record that waits for what the kernel will have? */
struct resting {
	bool ready, naps;
};

/* For each: arms the flows of d. struct resting *. */
static void rest(struct ds_dgram *d, struct ds_dg_set *s, void *arg)
{
	struct resting *r = arg;
	int how = s->fd >= 0 ? ds_dg_rest(d, s->fd) : DG_RESTS;

	r->naps |= how == DG_NAPS;
	if (s->off || !(s->events & IN))
		return;
	r->ready |= ds_dg_ready(d) && (!(s->events & EPOLLET) || ds_dg_arrivals(d) != s->seen);
}

int dgset_rest(struct epi *e)
{
	struct resting r = {.ready = false};

	if (!__atomic_load_n(&ds_dg_flows, __ATOMIC_RELAXED))
		return DGSET_SLEEP;
	lk_lock(&lock);
	each_awake(e, rest, &r);
	lk_unlock(&lock);
	return r.ready ? DGSET_READY : r.naps ? DGSET_LOOK : DGSET_SLEEP;
}

void waiter_rest(struct waiter *w, bool rests)
{
	ds_critical_begin();
	if (w->e && w->rests != rests)
		__atomic_add_fetch(&w->e->asleep, rests ? 1 : -1u, __ATOMIC_SEQ_CST);
	w->rests = rests;
	ds_critical_end();
}

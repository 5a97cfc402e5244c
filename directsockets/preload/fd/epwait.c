/* epoll_wait: epoll.h explains how. */
#include "fd/epoll_int.h"

#include <errno.h>
#include <limits.h>

static const struct timespec zero;

/* The kernel's wait, as precise as it can be. left NULL: for ever. */
static int raw_wait(const struct waiter *w, const struct timespec *left)
{
	int ms = -1, epfd = waiter_fd(w);

	if (left) {
		if (left->tv_nsec % 1000000 != 0 && REAL_FN(epoll_pwait2))
			return REAL(epoll_pwait2, epfd, w->ev, w->max, left, w->mask);
		long long t = (long long)left->tv_sec * 1000 + (left->tv_nsec + 999999) / 1000000;
		ms = left->tv_sec > INT_MAX / 1000 - 1 ? INT_MAX : (int)t;
	}
	return w->mask ? REAL(epoll_pwait, epfd, w->ev, w->max, ms, w->mask) : REAL(epoll_wait, epfd, w->ev, w->max, ms);
}

/* The timeout begins. A call that finds something at once does not read the clock. */
static void begin_time(struct waiter *w)
{
	if (w->timeout && w->deadline.tv_nsec < 0)
		deadline_set(&w->deadline, w->timeout);
}

/* False: the timeout has passed. *left is what is left of it, if there is one. */
static bool time_left(const struct waiter *w, struct timespec *left)
{
	if (w->timeout && w->deadline.tv_nsec >= 0)
		return deadline_left(&w->deadline, left);
	if (w->timeout)
		*left = *w->timeout;
	return true;
}

/* As raw_wait, for an instance that has others in it: a bell in those may have rung for nothing, so
 * they are settled before the kernel is asked what holds. */
static int raw_wait_settled(const struct waiter *w, const struct timespec *left)
{
	struct pollfd p = {.fd = waiter_fd(w), .events = POLLIN};
	int rc = REAL(ppoll, &p, 1, left, w->mask);

	if (rc <= 0)
		return rc;
	epi_settle_nested(true);
	return raw_wait(w, &zero);
}

/* Counts the caller as a sleeper, so that news wakes it by the wakefd. No lock. */
static void begin_sleep(struct waiter *w)
{
	ds_critical_begin();
	ds_add_shared(&w->e->sleepers, 1);
	w->asleep = true;
	ds_critical_end();
}

/* Ends begin_sleep, and a nap. No lock. */
static void end_sleep(struct waiter *w)
{
	ds_critical_begin();
	if (w->e && w->napping)
		__atomic_sub_fetch(&w->e->naps, 1, __ATOMIC_SEQ_CST);
	if (w->e && w->asleep)
		ds_add_shared(&w->e->sleepers, -1);
	w->asleep = w->napping = false;
	ds_critical_end();
}

/* A jump leaves the call: struct waiter *. */
static void jumped(void *call)
{
	struct waiter *w = call;

	end_sleep(w);
	waiter_rest(w, false);
	if (w->e)
		epi_put(w->e);
	w->e = NULL;
}

/* Ends a call, also if the thread is cancelled asleep. */
static void waiter_end(struct waiter *w)
{
	int before = ds_critical_enter();

	ds_cleanup_pop(w->cleanup);
	jumped(w);
	ds_critical_leave(before);
}

/* Has e members that a round looks at, direct ones or with an event that was left? */
static bool has_active(struct epi *e)
{
	return __atomic_load_n(&e->joined, __ATOMIC_SEQ_CST) > 0 || __atomic_load_n(&e->active_head, __ATOMIC_RELAXED);
}

/* Is there nothing in e but what the kernel tells of? The caller is counted as a sleeper: what
 * becomes direct from now on is armed at once. */
static bool is_plain(struct epi *e)
{
	return !has_active(e) && !__atomic_load_n(&e->woken, __ATOMIC_RELAXED) && !e->holds;
}

/* Begins a call: all of w but timeout and mask, with a reference of the instance of epfd; w->e
 * NULL: none of ours. True: the kernel can wait for all that is in it, and the caller is counted as
 * a sleeper. Takes ep_lock; a jump gives it back. */
static bool waiter_begin(struct waiter *w, int epfd, struct epoll_event *ev, int max)
{
	int before = ds_critical_enter();
	struct epi *e = max > 0 && ev ? epi_get(epfd) : NULL;

	w->e = e;
	w->epfd = epfd;
	w->ev = ev;
	w->max = max;
	w->asleep = w->napping = w->rests = false;

	w->cleanup = e ? ds_cleanup_push_frame(jumped, w) : -1;
	if (e) {
		w->kicks = __atomic_load_n(&e->kicks, __ATOMIC_SEQ_CST);
		ds_add_shared(&e->sleepers, 1);
		w->asleep = is_plain(e) && __atomic_load_n(&e->dgrams, __ATOMIC_SEQ_CST) == 0;
		if (!w->asleep)
			ds_add_shared(&e->sleepers, -1);
	}
	ds_critical_leave(before);
	return w->asleep;
}

static const struct answer not_asked = {-1, 0, false};

/* Spins; returns the number of events. */
static int spin(const struct waiter *w, struct ds_spin *spin)
{
	int n = 0;

	ds_spin_begin(spin, NULL);
	if (__atomic_load_n(&w->e->others, __ATOMIC_RELAXED)) /* which must not wait for the spin */
		n = epi_round(w, not_asked, true, false);
	while (n == 0 && ds_spin_more(spin))
		n = epi_round(w, not_asked, false, false);
	if (n > 0)
		ds_spin_end(spin, NULL, true);
	return n;
}

/* Has the members looked at whose bells do not tell all, or could not be added. */
static void look_without_bells(struct epi *e)
{
	lk_lock(&e->lock);
	for (struct member *m = e->all; m; m = m->enext)
		if (m->armed && (m->follows || e->nobell)) {
			ds_leader_check(m->c->life.s);
			m_disarm(m);
			m_activate(m);
		}
	lk_unlock(&e->lock);
}

/* Disarms the members of e that are not idle: a thread is awake. Takes e's lock. */
static void woken(struct epi *e)
{
	lk_lock(&e->lock);
	epi_disarm_all(e);
	lk_unlock(&e->lock);
}

/* Sleeps for left at most (NULL: for ever). Returns what the kernel said; n 0: look again; -1:
 * errno. looked: the spin before, if any. */
static struct answer sleep_once(struct waiter *w, const struct timespec *left, struct ds_spin *looked)
{
	static const struct timespec short_nap = {0, DS_FOLLOW_MS * 1000000L};
	struct epi *e = w->e;

	begin_sleep(w);
	lk_lock(&e->lock);
	/* What a kick has made readable before this lock is about to be cleared. */
	bool found = epi_arm_all(e) || w->kicks != __atomic_load_n(&e->kicks, __ATOMIC_SEQ_CST), follow = epi_follows(e), holds = e->holds;
	if (!found)
		epi_clear_wake(e);
	w->napping = follow;
	__atomic_add_fetch(&e->naps, follow, __ATOMIC_SEQ_CST);
	lk_unlock(&e->lock);
	if (found) {
		end_sleep(w);
		woken(e);
		return (struct answer){0, 0, false};
	}
	if (follow && (!left || left->tv_sec > 0 || left->tv_nsec > short_nap.tv_nsec))
		left = &short_nap;
	struct answer a = {0, ds_ticks(), true};
	a.n = holds ? raw_wait_settled(w, left) : raw_wait(w, left);
	end_sleep(w);
	int saved = errno;
	if (looked)
		ds_spin_end(looked, NULL, false);
	woken(e);
	if (follow && a.n == 0)
		look_without_bells(e);
	errno = saved;
	return a;
}

/* Wakes others that wait in this instance, or on it, if they should know. */
static void settle(struct epi *e)
{
	if (__atomic_load_n(&e->sleepers, __ATOMIC_RELAXED) == 0 && !__atomic_load_n(&e->nested, __ATOMIC_RELAXED))
		return;
	lk_lock(&e->lock);
	epi_news(e);
	lk_unlock(&e->lock);
}

/* Does one of the n events at ev carry a tag? A member can get or lose its tag while its event is
 * on the way to this thread, so only the event itself says. */
static bool any_tag(const struct epoll_event *ev, int n)
{
	while (n > 0 && !tag_is_ours(ev[n - 1].data.u64))
		n--;
	return n > 0;
}

/* e has got its first direct member: hands the uncounted servers among the others to conn/, for
 * their events to have a place in the order. Takes e's lock. */
static __attribute__((noinline)) void settle_members(struct epi *e)
{
	enum { SOME = 64 };
	struct conn *found[SOME];
	int n;

	__atomic_store_n(&e->unsettled, false, __ATOMIC_RELAXED);
	do {
		n = 0;
		ds_critical_begin();
		lk_lock(&e->lock);
		for (struct member *m = e->all; m && n < SOME; m = m->enext)
			if (m->c->life.side == 1 && conn_is(m->c) == CONN_UNCOUNTED && conn_hold_live(m->c))
				found[n++] = m->c;
		lk_unlock(&e->lock);
		for (int i = 0; i < n; i++) {
			conn_completed(found[i], conn_fd(found[i]));
			conn_put(found[i]);
		}
		ds_critical_end();
	} while (n == SOME);
}

/* The result of a call for which the kernel has waited, where nothing was direct, and its answer is
 * a: sets *done to false if that has nothing for the program. */
static int take_plain(const struct waiter *w, struct answer a, bool *done)
{
	if (__builtin_expect(__atomic_load_n(&w->e->unsettled, __ATOMIC_RELAXED), 0))
		settle_members(w->e);
	if (a.n <= 0 || !any_tag(w->ev, a.n))
		return a.n;
	int n = epi_plain(w, a);
	if (n < 0)
		n = epi_round(w, a, false, true);
	*done = n > 0;
	return n;
}

/* Waits in the kernel, if nothing is direct; what becomes direct meanwhile is armed at once. *done:
 * the result is the call's. w->asleep: waiter_begin has found that nothing is. */
static int wait_plain(struct waiter *w, bool *done)
{
	struct epi *e = w->e;

	*done = false;
	if (!w->asleep) {
		if (has_active(e))
			return 0;
		begin_sleep(w);
		if (!is_plain(e)) {
			end_sleep(w);
			return 0;
		}
	}
	if (!ds_one_thread()) /* a UDP socket may join */
		begin_time(w);
	struct answer a = {0, ds_ticks(), false};
	a.n = raw_wait(w, w->timeout);
	end_sleep(w);
	*done = true;
	return take_plain(w, a, done);
}

/* What the kernel says now. It reports w->max events at a time, and bells, which are not for the
 * program, may come before the rest. */
static int ask(const struct waiter *w)
{
	enum { ROUNDS = 16 };
	int n = 0;

	for (int i = 0; i < ROUNDS && n == 0; i++) {
		struct answer a = {0, ds_ticks(), false};
		a.n = raw_wait(w, &zero);
		if (a.n <= 0)
			return a.n;
		n = epi_round(w, a, false, true);
	}
	return n;
}

/* Waits in an instance with direct members. poll: the timeout is 0. */
static int wait_direct(struct waiter *w, bool poll)
{
	struct epi *e = w->e;
	struct timespec left;
	struct ds_spin looking;
	bool first = true;

	if (__builtin_expect(__atomic_load_n(&e->unsettled, __ATOMIC_RELAXED), 0))
		settle_members(e);
	for (;; first = false) {
		if (w->kicks != __atomic_load_n(&e->kicks, __ATOMIC_SEQ_CST))
			return 0; /* a UDP socket has something */
		if (e->holds)
			epi_settle_nested(false);
		int n = epi_round(w, not_asked, false, true);
		if (n > 0)
			return n;
		if (poll)
			return ask(w);
		begin_time(w);
		bool look = first && __atomic_load_n(&e->active_head, __ATOMIC_RELAXED);
		if (look && (n = spin(w, &looking)) > 0)
			return n;
		bool time = time_left(w, &left);
		struct answer a = sleep_once(w, w->timeout ? &left : NULL, look ? &looking : NULL);
		if (a.n < 0)
			return a.n;
		n = epi_round(w, a.n > 0 ? a : not_asked, false, true);
		if (n > 0 || !time)
			return n;
	}
}

#ifdef __SANITIZE_ADDRESS__
/* Of a frame that a cancellation leaves, AddressSanitizer forgets the variables only where the
 * frame cleans up. */
static __attribute__((noinline)) void forgotten(const int *n) { __asm__ volatile("" : : "r"(n)); }
#define FORGOTTEN __attribute__((cleanup(forgotten)))
#else
#define FORGOTTEN
#endif

/* Waits for all that is no UDP socket's flow. */
static int wait_rest(struct waiter *w, const struct timespec *timeout)
{
	bool poll = timeout && timeout->tv_sec == 0 && timeout->tv_nsec == 0, done;
	FORGOTTEN int n = 0;

	w->timeout = timeout;
	w->deadline.tv_nsec = -1;
	n = wait_plain(w, &done);
	if (!done)
		n = wait_direct(w, poll);
	return n;
}

bool ep_wait_plain(int epfd, struct epoll_event *ev, int max, int *ms, int *n)
{
	__attribute__((cleanup(waiter_end))) struct waiter w;
	struct timespec left, deadline;
	bool done = true, timed = *ms > 0 && !ds_one_thread();

	if (!waiter_begin(&w, epfd, ev, max))
		return false;
	if (timed)
		deadline_set(&deadline, &(struct timespec){*ms / 1000, *ms % 1000 * 1000000L});
	struct answer a = {0, ds_ticks(), false};
	a.n = *n = REAL(epoll_wait, epfd, ev, max, *ms);
	end_sleep(&w);
	if (a.n > 0 && max > a.n && !ds_writable(ev, (size_t)max * sizeof *ev))
		w.max = a.n; /* the kernel has written so many */
	*n = take_plain(&w, a, &done);
	if (*n == 0 && w.kicks != __atomic_load_n(&w.e->kicks, __ATOMIC_SEQ_CST)) /* a UDP socket has joined */
		done = false;
	if (done && *n >= 0)
		settle(w.e);
	if (!done && timed)
		*ms = deadline_left(&deadline, &left) ? (int)(left.tv_sec * 1000 + (left.tv_nsec + 999999) / 1000000) : 0;
	return done;
}

int ep_wait(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout, const sigset_t *mask)
{
	__attribute__((cleanup(waiter_end))) struct waiter w;
	int n = 0;

	w.timeout = timeout;
	w.mask = mask;
	bool plain = waiter_begin(&w, epfd, ev, max);
	if (!w.e)
		return raw_wait(&w, timeout);
	bool dgrams = !plain && __atomic_load_n(&w.e->dgrams, __ATOMIC_SEQ_CST) != 0;
	if (__builtin_expect(!dgrams, 1)) {
		struct timespec left;
		uint32_t kicks = w.kicks;
		n = wait_rest(&w, timeout);
		dgrams = n == 0 && !ds_one_thread() && kicks != __atomic_load_n(&w.e->kicks, __ATOMIC_SEQ_CST); /* one has joined */
		if (dgrams) {
			time_left(&w, &left);
			w.timeout = timeout ? &left : NULL;
			n = ep_wait_dgrams(&w, wait_rest);
		}
	} else {
		n = ep_wait_dgrams(&w, wait_rest);
	}
	if (n >= 0)
		settle(w.e);
	return n;
}

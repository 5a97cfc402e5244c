#include "fd/pollset.h"
#include "fd/dgwait.h"
#include "fd/epoll.h"
#include "fd/slots.h"

#include <errno.h>
#include <string.h>

/* As ppoll(2), the kernel's. */
static int raw_poll(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
	return REAL(ppoll, fds, n, t, mask);
}

/* The kernel's array: the program's, with the shadows asked only for what they decide; then, to
 * sleep, doorbells and eventfds. A doorbell stands in the place of a shadow that is not asked.
 * Returns its length. */
static nfds_t kernel_set(struct waiting *w, const struct pollfd *fds, nfds_t n, struct pollfd *k, bool sleep)
{
	nfds_t len = n;

	memcpy(k, fds, n * sizeof *k);
	for (nfds_t i = 0; i < w->n; i++) {
		struct slot *t = &w->slots[i];
		struct pollfd *p = &k[t->at];
		p->events = (short)((unsigned short)p->events & t->kernel);
		bool leads = t->armed && t->had;
		if (p->events == 0 && (!(t->kernel & (POLLERR | POLLHUP)) || (t->quiet && (leads || !sleep) && ds_bell_tells(t->c->life.s))))
			p->fd = -1;
		t->extras = 0;
		t->extra = len;
		t->in_place = false;
		if (!sleep)
			continue;
		int bell = leads ? ds_bell(t->c->life.s) : -1, event = leads ? ds_leadfd(t->c->life.s) : ds_wakefd(t->c->life.s);
		if (bell >= 0 && p->fd < 0) {
			*p = (struct pollfd){bell, POLLIN, 0};
			t->in_place = true;
		} else if (bell >= 0) {
			k[len++] = (struct pollfd){bell, POLLIN, 0};
		}
		if (event >= 0)
			k[len++] = (struct pollfd){event, POLLIN, 0};
		t->extras = (int)(len - t->extra);
	}
	return len;
}

/* A call, once its sockets are known. */
struct set {
	struct waiting *w;
	struct pollfd *fds; /* the program's */
	nfds_t n;
	struct pollfd *k; /* for the kernel: room for all, doorbells and eventfds */
	const struct timespec *timeout;
	const sigset_t *mask;
	bool poll;   /* the timeout is 0 */
	bool ours;   /* all of it is direct both ways: the kernel has no say */
	bool bells;  /* some have bells */
	bool nested; /* epoll instances are in it */
};

/* Which events of slot t's shadow hold, if the kernel reports r. The kernel was asked only for
 * those that the shadow decided then; when the shadow has failed, or ended, it decides others. One
 * that has ended can be read. */
static unsigned of_shadow(const struct slot *t, int fd, unsigned r)
{
	unsigned more = __builtin_expect(r & (POLLERR | POLLRDHUP), 0) ? ds_shadow_says(t->c->life.s, conn_still(t->c, fd), r) : 0;

	if (r & POLLRDHUP)
		r |= t->kernel & (POLLIN | POLLRDNORM);
	return more ? r | more : r & (t->kernel | POLLNVAL);
}

/* Puts the kernel's answers beside ours. Returns the entries that are ready. */
static int merge(const struct set *p)
{
	struct waiting *w = p->w;
	int ready = 0;
	nfds_t next = 0;

	for (nfds_t i = 0; i < p->n; i++) {
		struct pollfd *f = &p->fds[i];
		if (next < w->n && w->slots[next].at == i) {
			const struct slot *t = &w->slots[next];
			unsigned r = p->k[i].fd < 0 || t->in_place ? 0 : of_shadow(t, f->fd, (unsigned short)p->k[i].revents);
			f->revents |= (short)(r & ((unsigned short)f->events | POLLERR | POLLHUP | POLLNVAL));
			next++;
		} else {
			f->revents = p->k[i].revents;
		}
		ready += f->revents != 0;
	}
	return ready;
}

/* Asks the kernel what holds. The entries that are ready, or -1 and errno. */
static int ask(const struct set *p, const sigset_t *mask)
{
	static const struct timespec zero;
	int rc = raw_poll(p->k, kernel_set(p->w, p->fds, p->n, p->k, false), &zero, mask);

	return rc < 0 ? rc : merge(p);
}

/* Clears the events of the others, about which the kernel was not asked. */
static void others_none(const struct set *p)
{
	for (nfds_t i = 0, next = 0; i < p->n; i++)
		if (next < p->w->n && p->w->slots[next].at == i)
			next++;
		else
			p->fds[i].revents = 0;
}

/* How many entries of the program's array are ready. No lock. */
static int count(const struct set *p)
{
	int ready = 0;

	for (nfds_t i = 0; i < p->n; i++)
		ready += p->fds[i].revents != 0;
	return ready;
}

/* Something was found. What came before it must be reported too, even if it was looked at too
 * early: so all is looked at again until nothing more is found. fresh: the kernel was asked before
 * the sockets were looked at. Returns the entries that are ready. */
static int complete(const struct set *p, bool fresh)
{
	for (nfds_t i = 0; i <= p->w->n; i++) {
		if (fresh && !p->ours && ask(p, NULL) < 0)
			break;
		if (p->n == 1 || slots_look_more(p->w, p->fds) == 0)
			break;
		fresh = true;
	}
	return count(p);
}

/* A peer that was killed has said nothing in memory, and the kernel tells of it by the doorbell,
 * which only a sleeper polls. So a call that does not sleep asks about a few sockets that have
 * nothing to be read, about each every 10 ms. ready: how many entries are; returns how many. */
static int look_at_peers(const struct set *p, int ready)
{
	enum { ASKS = 8 };
	struct waiting *w = p->w;
	nfds_t first = w->n > ASKS ? ds_ticks() % w->n : 0;
	int asks = 0;

	for (nfds_t i = 0; i < w->n && asks < ASKS; i++) {
		struct slot *t = &w->slots[(first + i) % w->n];
		struct pollfd *f = &p->fds[t->at];
		if ((f->revents & (POLLIN | POLLRDNORM)) || !ds_ask_peer(t->c->life.s, conn_still(t->c, f->fd)))
			continue;
		asks++;
		ready -= f->revents != 0;
		ready += slots_look_at(w, t, f);
	}
	return ready;
}

/* Looks without sleeping: how many entries are ready, or -1 and errno. */
static int at_once(struct set *p)
{
	struct waiting *w = p->w;
	int ready = slots_look(w, p->fds);

	if (ready > 0 || p->poll)
		ready = look_at_peers(p, ready);
	p->ours = w->n == p->n;
	for (nfds_t i = 0; i < w->n; i++) {
		p->ours = p->ours && w->slots[i].direct;
		bool bell = ds_bell(w->slots[i].c->life.s) >= 0;
		p->bells |= bell;
		w->slots[i].early = w->large && !bell;
	}
	if (ready > 0 && p->ours)
		return complete(p, false);
	if (ready == 0 && !p->poll && (!p->bells || p->ours || w->large))
		return 0;
	int rc = ask(p, p->mask);
	if (rc < 0 && ready > 0) { /* interrupted, with something to report */
		others_none(p);
		return ready;
	}
	return rc > 0 ? complete(p, false) : rc;
}

/* Arms all that have bells. Returns for how many ms to sleep at most, because another sleeper has
 * some bell, or another process may end a direction; 0: for ever. */
static long arm(const struct set *p)
{
	bool armed = false;
	long nap = 0;

	for (nfds_t i = 0; i < p->w->n; i++) {
		struct slot *s = &p->w->slots[i];
		slots_sleep(s, p->fds);
		armed |= s->armed;
		if (s->follows)
			nap = s->far || nap == DS_FOLLOW_MS ? DS_FOLLOW_MS : DS_LEADER_MS;
		else if (!nap && s->armed && ds_unheard(s->c->life.s, poll_plain((unsigned short)p->fds[s->at].events)))
			nap = DS_LEADER_MS;
	}
	if (armed)
		ds_barrier();
	return nap;
}

/* Calls ds_rung for the sockets whose bell or eventfd the kernel has reported; all: it was asked
 * about them, or each may have rung. No lock. */
static void hear(const struct set *p, bool all)
{
	for (nfds_t i = 0; i < p->w->n; i++) {
		struct slot *s = &p->w->slots[i];
		bool rung = all ? s->in_place && p->k[s->at].revents : s->armed && s->had;
		for (int x = 0; x < s->extras; x++)
			rung |= p->k[s->extra + (nfds_t)x].revents != 0;
		if (rung)
			ds_rung(s->c->life.s);
		s->rung = rung || !all || s->follows; /* a leader of another process may have rung for nothing */
	}
}

/* As look, when a sleep has ended in which nothing was ready before: of a large set, at what has
 * rung. The others follow if something is found. */
static bool look_again(const struct set *p)
{
	bool found = false;

	if (!p->w->large)
		return slots_look(p->w, p->fds) > 0;
	for (nfds_t i = 0; i < p->w->n; i++) {
		struct slot *s = &p->w->slots[i];
		if (s->rung)
			found |= slots_look_at(p->w, s, &p->fds[s->at]);
	}
	return found;
}

/* Settles the epoll instances in the set; rung: a sleep has ended. Takes their locks. */
static void settle(const struct set *p, bool rung)
{
	for (nfds_t i = 0; p->nested && i < p->n; i++) {
		struct epi *e = word_epi(fd_word(p->fds[i].fd));
		if (e)
			epi_settle(e, rung);
	}
}

/* The kernel takes no more entries than the process may have descriptors. If it does not take the
 * doorbells with the program's own, a sleep looks so often. */
enum { UNHEARD_MS = 1 };

/* Sleeps once, for left at most (NULL: for ever). How many entries are ready, or -1 and errno. */
static int sleep_once(const struct set *p, const struct timespec *left, struct ds_spin *spin, struct ds_sock *spun)
{
	struct waiting *w = p->w;
	unsigned handled = ds_handled();
	struct timespec nap = {0, arm(p) * 1000000L};

	if (slots_look(w, p->fds) > 0) {
		slots_wake(w);
		others_none(p);
		return complete(p, true);
	}
	nfds_t n = kernel_set(w, p->fds, p->n, p->k, true);
	bool all = n == p->n || n <= ds_fds_most();
	if (!all) {
		n = kernel_set(w, p->fds, p->n, p->k, false);
		nap.tv_nsec = UNHEARD_MS * 1000000L;
	}
	if (nap.tv_nsec && (!left || left->tv_sec > 0 || left->tv_nsec > nap.tv_nsec))
		left = &nap;
	int rc = ds_handled() == handled ? raw_poll(p->k, n, left, p->mask) : -1;
	int err = rc < 0 && ds_handled() != handled ? EINTR : errno;
	if (spin)
		ds_spin_end(spin, spun, false);
	hear(p, all);
	slots_wake(w);
	errno = err;
	if (rc < 0)
		return rc;
	if (rc > 0 && p->nested) { /* a bell in there may be rung for nothing */
		settle(p, true);
		rc = raw_poll(p->k, kernel_set(w, p->fds, p->n, p->k, false), &(struct timespec){0, 0}, NULL);
		if (rc < 0)
			return rc;
	}
	bool found = look_again(p);
	return merge(p) > 0 ? complete(p, found) : 0;
}

/* As ppoll, for a set with sockets of ours or epoll instances. */
static int poll_mixed(struct set *p)
{
	struct timespec deadline, left;
	struct ds_sock *spun = p->w->n == 1 ? p->w->slots[0].c->life.s : NULL;
	struct ds_spin spin;
	bool spinning = false;

	int ready = at_once(p);
	if (ready != 0 || p->poll)
		return ready;
	if (p->timeout)
		deadline_set(&deadline, p->timeout);
	if (p->bells) {
		spinning = true;
		ds_spin_begin(&spin, spun);
		while (ready == 0 && ds_spin_more(&spin))
			ready = slots_look(p->w, p->fds);
	}
	if (ready > 0) {
		ds_spin_end(&spin, spun, true);
		others_none(p);
		return complete(p, true);
	}
	for (;;) {
		bool time = !p->timeout || deadline_left(&deadline, &left);
		ready = sleep_once(p, p->timeout ? &left : NULL, spinning ? &spin : NULL, spun);
		if (ready != 0 || !time)
			return ready;
		spinning = false;
	}
}

/* As wait_poll, without what UDP sockets have from flows. */
static int wait_others(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, const struct waits *uncounted)
{
	__attribute__((cleanup(slots_end))) struct waiting w = {.cleanup = -1};
	struct set p = {.w = &w, .fds = fds, .n = n, .timeout = timeout, .mask = mask};
	struct pollfd few[SMALL_FDS];
	nfds_t ours = 0;

	for (nfds_t i = 0; i < n; i++) {
		uintptr_t word = fd_word(fds[i].fd);
		ours += (word & 3) == FD_CONN;
		p.nested |= word_epi(word) != NULL;
	}
	settle(&p, false);
	if (ours == 0 && !p.nested)
		return raw_poll(fds, n, timeout, mask);
	if (!slots_begin(&w, n, ours, few, &p.k))
		return -1;
	for (nfds_t i = 0; i < n && w.n < ours; i++)
		if (!waits_has(uncounted, fds[i].fd))
			slots_join(&w, fds[i].fd, i);
	if (w.n == 0 && !p.nested)
		return raw_poll(fds, n, timeout, mask);
	p.poll = timeout && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
	w.large = w.n > LARGE && !p.poll && ds_one_thread();
	w.handled = ds_handled();
	return poll_mixed(&p);
}

/* dgwait_tell, after a look at the others that has come to rc; -1: nothing is known of them. */
static int tell(struct dgwait *g, struct pollfd *fds, nfds_t n, int rc)
{
	for (nfds_t i = 0; rc < 0 && i < n; i++)
		fds[i].revents = 0;
	return dgwait_tell(g, fds, rc < 0 ? 0 : rc);
}

/* Looks at flows for a while, and at the rest now and then: as ppoll. */
static int spin(struct dgwait *g, struct pollfd *fds, nfds_t n, struct ds_spin *s, const struct waits *uncounted)
{
	enum { STEP_US = 10 };
	static const struct timespec zero;
	uint64_t next;
	int rc = 0;

	ds_spin_begin(s, NULL);
	next = ds_dg_first_ask(s);
	do {
		bool ready = dgwait_ready(g);
		if (!ready && (int64_t)(ds_ticks() - next) < 0)
			continue;
		rc = wait_others(fds, n, &zero, NULL, uncounted);
		if (ready)
			rc = tell(g, fds, n, rc);
		next = ds_ticks() + ds_dg_ticks(STEP_US);
	} while (rc == 0 && ds_spin_more(s));
	if (rc != 0)
		ds_spin_end(s, NULL, true);
	return rc;
}

/* wait_poll, where UDP sockets are in the set. */
static int wait_dgrams(struct dgwait *g, struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, const struct waits *uncounted)
{
	enum { MS = 1000000 };
	static const struct timespec zero;
	bool poll = timeout && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
	enum ds_spun spun = DS_SPUN_NOT;
	struct timespec deadline, left;
	struct ds_spin s;
	unsigned waits = poll ? 0 : __atomic_load_n(&ds_dg_eager, __ATOMIC_RELAXED);

	if (timeout && !poll)
		deadline_set(&deadline, timeout);
	for (;;) {
		if (poll)
			dgwait_look(g, fds);
		if (poll || dgwait_ready(g)) {
			int rc = wait_others(fds, n, &zero, mask, uncounted);
			return rc < 0 && poll ? rc : tell(g, fds, n, rc);
		}
		if (spun == DS_SPUN_NOT && dgwait_awake(g)) {
			int rc = spin(g, fds, n, &s, uncounted);
			if (rc != 0)
				return rc;
			spun = DS_SPUN_OPEN;
		}
		bool time = !timeout || deadline_left(&deadline, &left);
		int rc = 0;
		if (waits && (!timeout || left.tv_sec || left.tv_nsec > MS)) {
			waits--;
			dgwait_tick(g, fds);
			rc = wait_others(fds, n, &(struct timespec){.tv_nsec = MS}, mask, uncounted);
			if (rc != 0)
				return rc;
			continue;
		}
		int how = dgwait_sleep(g, fds);
		if (how != DGWAIT_READY)
			rc = wait_others(fds, n, how == DGWAIT_LOOK ? &zero : timeout ? &left : NULL, mask, uncounted);
		int saved = errno;
		dgwait_awoke(g);
		errno = saved;
		if (how == DGWAIT_SLEEP || rc != 0 || !time) {
			ds_spun_slept(&spun, &s);
			return rc;
		}
	}
}

int wait_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, const struct waits *uncounted)
{
	bool any = false;

	for (nfds_t i = 0; i < n; i++) {
		uintptr_t w = fd_settled(fds[i].fd);
		any |= word_dgram(w) || ((w & 3) == FD_EPOLL && __atomic_load_n(&ds_dg_flows, __ATOMIC_RELAXED));
	}
	if (__builtin_expect(!any, 1))
		return wait_others(fds, n, timeout, mask, uncounted);
	__attribute__((cleanup(dgwait_end))) struct dgwait g;
	dgwait_begin(&g, fds, n);
	if (g.n == 0)
		return wait_others(fds, n, timeout, mask, uncounted);
	return wait_dgrams(&g, fds, n, timeout, mask, uncounted);
}

/* One round of looking at an instance: what is to be told, in the order in which it came.
 *
 * A message says when it was sent (SPEC 2.4); the kernel's own list is in order. What is told of a set of members shall be all
 * that came before the last of it: a program that is told of B, and not of A, takes it that nothing on A came before. One look at
 * each is not enough for that, as A may be written just after it was looked at, and then B, which is not looked at yet. So
 * once something was found all others are looked at again: what came before is seen by then. Of what is found only
 * then that counts which came before what was found first, or this would have no end. The kernel, if it may know of bytes of
 * other connections, is asked between the two looks.
 *
 * Of two that were ready for long the one that was told longer ago comes first: as in the kernel, a member that was told goes behind all
 * others. So a member counts as ready since it was told at the earliest.
 */
#include "fd/epoll_int.h"

#include <errno.h>
#include <sys/syscall.h>

enum {
	ASK_KERNEL = 8, /* of so many rounds that found something in the segments, one asks the kernel too */
	LOOKS = 512,    /* a member that was looked at in vain so often is armed, though nobody sleeps */
};

struct round {
	struct epi *e;
	struct member *list; /* what was found; the last first */
	int found;
	int foreign;	     /* events of the kernel, at the beginning of ev, that are the program's own */
	int sure;	     /* of which the first were told to a sleeper: what is found now came later */
	int strays;	     /* with tags that are nobody's (of a process that shares the instance, or just gone), or for others to read */
	uint64_t begin;	     /* the first look began then, by ds_ticks */
	uint64_t first;	     /* order, at the beginning */
	uint64_t order;	     /* what the kernel tells next came after that */
	uint64_t asked;	     /* the kernel was asked last, in this round; 0: it was not */
	uint64_t answered;   /* and had answered by then */
	uint64_t cut;	     /* what came after that is left for the next round, */
	uint64_t cut_bells;  /* and, of that of whose bells the kernel has told, what came after this */
	bool heard;	     /* the kernel has told of something, */
	bool others;	     /* and not only by bells; */
	bool news;	     /* so it did when it was asked last */
	bool loose;	     /* something was found that the kernel did not tell of */
	bool rung;	     /* of which a peer says that it has rung a bell before: it may be of one that is not looked at */
	bool woken;	     /* it was the wakefd */
	bool slept;	     /* what it tells now, it told a sleeper: bells stand between the rest in order */
};

/* ---- what the kernel says ------------------------------------------------------ */

/* The kernel tells of the wakefd. With e's lock. */
static void take_wake(struct round *r)
{
	r->woken = true;
	if (!r->e->nested) /* else it stands for what holds: epi_news */
		epi_clear_wake(r->e);
}

/* The kernel tells of m's doorbell: all members of its conn are looked at. With e's lock. */
static void take_bell(struct round *r, struct member *m)
{
	if (!m_rung(m)) /* it will be, by a thread that is awake by now, or has to be scheduled first */
		r->strays++;
	for (struct member *t = m->c->twins ? r->e->all : NULL; t; t = t->enext)
		if (t->c == m->c && t->joined && !t->deleted) {
			m_disarm(t);
			m_activate(t);
		}
	uint64_t t = ds_arrival(m->c->s, m->events & EPOLLET ? m->rx : 0);
	if (t > r->order && t <= ds_ticks()) /* an old one if nothing is unread */
		r->order = t;
}

/* Takes the n events that the kernel has told: the program's own stay at ev, from index r->foreign on of the round's. */
static void absorb(struct round *r, struct epoll_event *ev, int n)
{
	struct epi *e = r->e;
	int out = 0;

	r->news = false;
	for (int i = 0; i < n; i++) {
		uint64_t d = ev[i].data.u64;
		if (!tag_is_ours(d)) {
			ev[out++] = ev[i];
			continue;
		}
		if (tag_is_wakefd(d)) {
			take_wake(r);
			continue;
		}
		struct member *m = m_by_tag(d);
		if (!m || __atomic_load_n(&m->e, __ATOMIC_RELAXED) != e || m->tag != (d & ~(uint64_t)1)) {
			r->strays++;
			continue;
		}
		if (m->deleted) {
			m_unlink(m);
			continue;
		}
		if (d & 1) {
			take_bell(r, m);
		} else {
			m->kpend |= ev[i].events;
			m->unsure = !r->slept && (m->unsure || !m->heard);
			m->heard = ++r->order;
			r->others = r->news = true;
		}
		m->before = r->foreign + out;
		r->heard = true;
		m_disarm(m);
		m_activate(m);
	}
	r->foreign += out;
	r->heard |= out > 0;
	r->others |= out > 0;
	r->news |= out > 0;
}

/* ---- looking -------------------------------------------------------------------- */

/* Arms those that had nothing to tell for long: then they need not be looked at. */
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
		if (m_quiet(m) || !m_look(m)) {
			m_passive(m);
			continue;
		}
		m_disarm(m);
		m->vain = 0;
	}
}

/* When what the segment has for m was sent: not in the future. The counter is read only if the peer says that it was
 * after the round began. */
static uint64_t sent_at(const struct round *r, struct member *m)
{
	uint64_t t = ds_arrival(m->c->s, m->events & EPOLLET ? m->rx : 0);

	if (t == 0 || t > r->begin) {
		uint64_t now = ds_ticks();
		t = t == 0 || t > now ? now : t;
	}
	return t < m->since ? m->since : t;
}

/* When what m has ready came, in ticks: its place in the order of a round. With e's lock. */
static uint64_t came(const struct round *r, struct member *m)
{
	if (m->heard)
		return m->heard < m->since ? m->since : m->heard;
	if (m->joined && (m->got & (EPOLLIN | EPOLLRDNORM | EPOLLRDHUP)))
		return sent_at(r, m);
	return m->since; /* room: it is ready all the time */
}

/* Looks at the active members that are not listed yet, or of which the kernel has said more. */
static void scan(struct round *r, bool first)
{
	struct member *m = r->e->active_head, *next;
	bool idle = false;

	for (; m; m = next) {
		next = m->anext;
		if (m->listed && !m->kpend)
			continue;
		if (m_quiet(m) || !m_look(m)) {
			idle |= first && !m->armed && ++m->vain > LOOKS;
			if (!m->listed) {
				m->before = NOWHERE;
				m->heard = 0;
			}
			if (!m->joined)
				m_passive(m);
			continue;
		}
		uint64_t key = came(r, m);
		if (m->listed || key > (m->before == NOWHERE ? r->cut : r->cut_bells))
			continue;
		m->key = key;
		m->listed = true;
		m->rnext = r->list;
		r->list = m;
		r->found++;
		r->loose |= m->before == NOWHERE;
		if (m->before == NOWHERE && r->e->nactive < r->e->joined) /* some are armed, and not looked at */
			r->rung |= m->joined && ds_has_rung(m->c->s);
	}
	if (idle)
		doze(r->e);
}

/* Is the kernel to be asked? told: it was, for this round. ask: if nothing was found. */
static bool worth_asking(struct round *r, bool told, bool ask)
{
	struct epi *e = r->e;

	if (told) /* a moment ago; of descriptors that are no members it would say again what it said */
		return r->foreign == 0 && e->crooked && r->loose;
	if (r->found == 0)
		return ask;
	return ++e->skipped >= ASK_KERNEL || e->crooked || r->rung;
}

/* Asks the kernel for what it knows now: false if there is no room for that. With e's lock. */
static bool ask_now(struct round *r, const struct waiter *w, bool press)
{
	int saved = errno, room = w->max - r->foreign - r->found;

	if (room <= 0 && press)
		room = (w->max - r->foreign) / 4 + 1; /* not to be starved by those that are always ready */
	if (room <= 0 || r->foreign == w->max)
		return false;
	for (struct member *m = r->list; m; m = m->rnext) /* those are known, and would take the place of others */
		if (m->rings && m->joined) {
			m_rung(m);
			m_disarm(m);
		}
	uint64_t now = ds_ticks();
	long n = ds_syscall(SYS_epoll_pwait, w->epfd, w->ev + r->foreign, room, 0, NULL, (size_t)8);
	errno = saved;
	if (n < 0)
		return false;
	r->asked = now;
	r->answered = ds_ticks();
	r->e->skipped = 0;
	if (n < room)
		r->e->asked = now;
	absorb(r, w->ev + r->foreign, (int)n);
	__atomic_store_n(&r->e->others, r->others, __ATOMIC_RELAXED);
	return n == room && r->foreign == 0;
}

/* Asks the kernel, if that is worth it. */
static void harvest(struct round *r, const struct waiter *w, bool told, bool ask)
{
	enum { AGAIN = 4 };

	if (!worth_asking(r, told, ask))
		return;
	for (int i = 0; i < AGAIN; i++) {
		bool press = i == 0 && (r->e->skipped >= ASK_KERNEL || r->rung);
		if (!ask_now(r, w, press))
			break;
		scan(r, false); /* there may be more behind bells that say nothing */
	}
}

/* The latest of the listed members, in ticks; 0: there is none. With e's lock. */
static uint64_t latest(const struct round *r)
{
	uint64_t t = 0;

	for (struct member *m = r->list; m; m = m->rnext)
		t = m->key > t ? m->key : t;
	return t;
}

/* Looks again at those that had nothing, for what came before the latest of what was found. If that is older than the
 * first look by a margin, the first look has seen all: who wrote on A, and then on B, wrote A's status word before B's
 * stamp, and a store is seen by other CPUs within a fraction of a microsecond. With e's lock. */
static void scan_again(struct round *r)
{
	enum { MARGIN = 4096 }; /* ticks: a microsecond at least */
	uint64_t last = latest(r);

	if (!r->heard && last + MARGIN < r->begin)
		return;
	r->cut = r->cut_bells = r->others && r->answered > last ? r->answered : last;
	scan(r, false);
}

/* The same in a set of which some are on TCP. What came after the kernel was asked may have come after something on TCP:
 * it is left for the next round. But if the kernel told of TCP, what came before it answered may have come before that: so it
 * is asked until nothing lies between. With e's lock. */
static void scan_between(struct round *r, const struct waiter *w)
{
	enum { AGAIN = 4 };

	for (int i = 0; i < AGAIN; i++) {
		uint64_t before = r->asked;
		if (before < latest(r) && r->foreign == 0) {
			ask_now(r, w, false);
			if (r->asked == before) { /* there is no room for what it says */
				scan_again(r);
				return;
			}
		}
		r->cut = r->news && r->foreign == 0 ? r->answered : r->asked;
		r->cut_bells = r->news ? r->answered : r->asked;
		scan(r, false);
		if (!r->news || r->foreign > 0 || latest(r) <= r->asked)
			return;
	}
}

/* ---- telling --------------------------------------------------------------------- */

/* Two lists, the latest first, become one; of equals those of a come first, which were found later. */
static struct member *merge(struct member *a, struct member *b)
{
	struct member *head = NULL, **end = &head;

	while (a && b) {
		struct member **from = a->key >= b->key ? &a : &b;
		*end = *from;
		end = &(*from)->rnext;
		*from = *end;
	}
	*end = a ? a : b;
	return head;
}

/* The list, the latest first. */
static struct member *sort(struct member *list)
{
	struct member *bins[32] = {0};
	int top = 0;

	while (list) {
		struct member *one = list;
		list = list->rnext;
		one->rnext = NULL;
		int i = 0;
		for (; i < top && bins[i]; i++) {
			one = merge(bins[i], one);
			bins[i] = NULL;
		}
		bins[i] = one;
		top = i == top ? top + 1 : top;
	}
	for (int i = 0; i < top; i++)
		list = bins[i] ? merge(bins[i], list) : list;
	return list;
}

/* Takes the member at *at off the list, so that the next round looks again. With e's lock. */
static void unlist(struct round *r, struct member **at)
{
	struct member *m = *at;

	*at = m->rnext;
	r->found--;
	m->listed = false;
	m->before = NOWHERE;
	m->heard = 0;
	if (!(m->events & (EPOLLET | EPOLLONESHOT)))
		m->kpend = 0; /* the kernel says it again */
}

/* Puts the members of the list, the latest first, between the r->foreign events at ev: those that the kernel told before
 * one of these come before it, with all that came earlier; so does what came before the kernel was asked the last time
 * but this, `asked`. */
static int tell(struct round *r, struct epoll_event *ev, int max, uint64_t asked)
{
	int n, at, left = r->foreign, place = r->foreign;
	uint64_t now = r->begin;

	if (r->list && r->list->rnext)
		r->list = sort(r->list);
	if (r->list && r->list->key > now)
		now = r->list->key;
	while (r->found > max - r->foreign)
		unlist(r, &r->list);
	n = at = r->foreign + r->found;
	while (r->list) {
		struct member *m = r->list;
		if (m->before != NOWHERE && m->before < place)
			place = m->before;
		if (m->key < asked)
			place = 0;
		while (left > place)
			ev[--at] = ev[--left];
		ev[--at] = (struct epoll_event){.events = m->got, .data.u64 = m->data};
		m_told(m, now + (uint64_t)at);
		unlist(r, &r->list);
		m_passive(m);
		if (m->joined)
			m_activate(m); /* behind all others */
	}
	return n;
}

/* Of those that were found and looked at again, as the kernel had said more, another thread may have taken what there was. */
static void drop_empty(struct round *r)
{
	for (struct member **at = &r->list; *at;)
		if ((*at)->got)
			at = &(*at)->rnext;
		else
			unlist(r, at);
}

/* Were bytes of m found in its segment? And does the kernel not tell of its bell? */
static bool in_segment(const struct member *m)
{
	return m->joined && !m->heard && (m->got & (EPOLLIN | EPOLLRDNORM | EPOLLRDHUP));
}

static bool loose(const struct member *m) { return m->before == NOWHERE && in_segment(m); }

/* When m came, of which the kernel has told and does not say: as its client says on the direct connections of the list. At
 * m->heard, if that says nothing; behind the last of them, if it was sent after all that was sent on those. */
static uint64_t said_of(const struct round *r, const struct member *m)
{
	enum { MANY = 4096 };
	uint64_t first = DS_AFTER, after = m->heard;

	for (struct member *b = r->list; b; b = b->rnext) {
		if (!in_segment(b))
			continue;
		uint64_t t = ds_sent_before(b->c->s, m->c->s);
		if (t == DS_UNSAID)
			return m->key;
		if (t < first)
			first = t;
		if (b->key >= after)
			after = b->key + 1;
	}
	uint64_t rank = m->heard - r->first; /* of several the kernel knows the order */
	uint64_t key = first < DS_AFTER ? first : after + (rank < MANY ? rank : MANY);
	return key < m->since ? m->since : key;
}

/* The connection for which the kernel tells of data as the program gave it; *looks counts down. NULL: there is none (it may be a
 * listener), or it would take too long to find it. With e's lock. */
static const struct ds_sock *untagged(const struct round *r, uint64_t data, int *looks)
{
	struct member *m = r->e->all;

	while (m && *looks > 0 && (m->tagged || m->deleted || m->data != data)) {
		m = m->enext;
		--*looks;
	}
	return m && *looks > 0 && __atomic_load_n(&m->c->state, __ATOMIC_ACQUIRE) == CONN_UP ? m->c->s : NULL;
}

/* The same for events that the kernel tells as the program's own, those of connections without a segment among them: what
 * was found, and sent before, comes before. With e's lock. */
static void place_foreign(struct round *r, const struct epoll_event *ev)
{
	int looks = 256;

	for (int i = r->sure; i < r->foreign; i++) {
		const struct ds_sock *tcp = untagged(r, ev[i].data.u64, &looks);
		for (struct member *b = tcp ? r->list : NULL; b && looks > 0; b = b->rnext, looks--) {
			if (!loose(b))
				continue;
			uint64_t t = ds_sent_before(b->c->s, tcp);
			if (t != DS_UNSAID && t > b->key)
				b->before = i;
		}
	}
}

/* Finds the place of what the kernel has told of between what was found. A place is kept until it is told, or those that
 * are always ready would always be before it. With e's lock. */
static void place_heard(struct round *r)
{
	int looks = 1024;

	for (struct member *m = r->list; m && looks > 0; m = m->rnext) {
		if (!m->heard || !m->unsure)
			continue;
		looks -= r->found;
		uint64_t key = said_of(r, m);
		m->key = m->placed && m->placed < key ? m->placed : key;
		m->placed = m->key;
	}
}

static void place(struct round *r, const struct epoll_event *ev)
{
	place_heard(r);
	place_foreign(r, ev);
}

/* Takes what the kernel has told before the round. With e's lock. */
static void take_answer(struct round *r, const struct waiter *w, struct answer a)
{
	r->slept = a.slept;
	r->asked = a.at;
	r->answered = r->begin;
	absorb(r, w->ev, a.n);
	r->sure = a.slept ? r->foreign : 0;
	r->slept = false;
	__atomic_store_n(&r->e->others, r->others, __ATOMIC_RELAXED);
	if (a.n < w->max)
		r->e->asked = a.at;
	if (r->foreign > 0 && r->e->crooked) { /* it is not asked again: what came meanwhile may have come after what it knows now */
		r->cut = a.at;
		r->cut_bells = a.slept ? r->begin : a.at;
	}
}

int epi_round(const struct waiter *w, struct answer a, bool ask, bool first)
{
	struct epi *e = w->e;
	struct round r = {.e = e, .cut = UINT64_MAX, .cut_bells = UINT64_MAX, .begin = ds_ticks()};

	lk_lock(&e->lock);
	uint64_t asked = e->asked;
	if (__atomic_load_n(&e->epfd, __ATOMIC_RELAXED) < 0)
		__atomic_store_n(&e->epfd, w->epfd, __ATOMIC_RELAXED);
	if (!e->nested)
		epi_clear_wake(e);
	r.first = r.order = asked;
	if (a.n >= 0)
		take_answer(&r, w, a);
	scan(&r, first);
	r.cut = r.cut_bells = UINT64_MAX;
	harvest(&r, w, a.n >= 0, ask);
	if (r.woken && e->nested && r.found + r.foreign == 0) /* it may have taken the place of something else */
		harvest(&r, w, false, true);
	if (r.heard || r.found > 0) {
		if (!e->crooked)
			scan_again(&r);
		else if (a.n < 0 || r.foreign == 0)
			scan_between(&r, w);
	}
	drop_empty(&r);
	if (r.others && r.found > 0)
		place(&r, w->ev);
	int n = tell(&r, w->ev, w->max, asked);
	bool pass = e->reads > 0;
	lk_unlock(&e->lock);
	if (pass)
		epi_pass_on(e);
	if (r.strays > 0 && n == 0)
		ds_syscall(SYS_nanosleep, &(struct timespec){0, 1000000}, NULL);
	return n;
}

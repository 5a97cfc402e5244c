/* One round of looking at an instance: what the kernel reports, what the segments hold, and a
 * second look.
 *
 * One call reports everything that came before the last event that it reports: a program that is
 * told about B and not about A concludes that nothing came on A before. One look at each member is
 * not enough for that: A may be written just after it was looked at, and then B, which is looked at
 * next. So once something was found, all other members are looked at again; what came before is
 * visible by then. This second look takes only what came before the latest find, or it would never
 * end. If the kernel may know of bytes on other connections, it is asked between the two looks.
 * eporder.c puts the result in order. */
#include "fd/epround.h"

#include <errno.h>
#include <sys/syscall.h>

enum {
	ASK_KERNEL = 8, /* one of so many rounds that found something in segments asks the kernel too */
	LOOKS = 512,    /* looks that found nothing, after which a member is armed although nobody sleeps */
};

/* ---- what the kernel reports --------------------------------------------------- */

/* The kernel reports the wakefd. With e's lock. */
static void take_wake(struct round *r)
{
	r->woken = true;
	if (!r->e->nested) /* in a nested one it reports what is ready: epi_news */
		epi_clear_wake(r->e);
}

/* The kernel reports m's doorbell: all members of its conn become active. With e's lock. */
static void take_bell(struct round *r, struct member *m)
{
	if (!m_rung(m)) /* another sleeper will read it */
		r->strays++;
	for (struct member *t = m->c->doubled ? r->e->all : NULL; t; t = t->enext)
		if (t->c == m->c && t->joined && !t->deleted) {
			m_disarm(t);
			m_activate(t);
		}
	uint64_t t = ds_arrival(m->c->life.s, m->events & EPOLLET ? m->rx : 0);
	if (t > r->order && t <= ds_ticks()) /* if nothing is unread, t is old */
		r->order = t;
}

/* Takes the n events at ev that the kernel has reported. The program's own stay there, from
 * r->foreign on. With e's lock. */
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

/* Arms members that have had nothing to report for long, so that they need not be looked at. With
 * e's lock. */
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

/* Looks at the active members that are not listed yet, or of which the kernel has reported more.
 * With e's lock. */
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
		uint64_t key = round_came(r, m);
		if (m->listed || key > (m->before == NOWHERE ? r->cut : r->cut_bells))
			continue;
		m->key = key;
		m->listed = true;
		r->mixed |= r->list && key < r->list->key;
		m->rnext = r->list;
		r->list = m;
		r->found++;
		r->loose |= m->before == NOWHERE;
		if (m->joined && (m->events & EPOLLET) && !m->kseen && ds_left(m->c->life.s)) /* the kernel's edge of the end belongs to this one */
			m->kseen = r->rung = true;
		if (m->before == NOWHERE && r->e->nactive < r->e->joined) /* some are armed and were not looked at */
			r->rung |= m->joined && ds_has_rung(m->c->life.s, &m->rings_seen);
	}
	if (idle)
		doze(r->e);
}

/* Whether to ask the kernel. told: it answered just before this round. ask: do so if nothing was
 * found. */
static bool worth_asking(struct round *r, bool told, bool ask)
{
	struct epi *e = r->e;

	if (told) /* of descriptors that are not members it would report the same again */
		return r->foreign == 0 && e->indirect && r->loose;
	if (r->found == 0)
		return ask;
	return ++e->skipped >= ASK_KERNEL || e->indirect || r->rung;
}

/* Asks the kernel for its events, without waiting. press: even if w->ev has little room left. True
 * if events that are not the program's own filled the room, so that asking again may find more.
 * With e's lock. */
static bool ask_now(struct round *r, const struct waiter *w, bool press)
{
	int saved = errno, room = w->max - r->foreign - r->found;

	if (room <= 0 && press)
		room = (w->max - r->foreign) / 4 + 1; /* members that are always ready must not starve the others */
	if (room <= 0 || r->foreign == w->max)
		return false;
	for (struct member *m = r->list; m; m = m->rnext) /* found already: they would only take room */
		if (m->rings && m->joined) {
			m_rung(m);
			m_disarm(m);
		}
	uint64_t now = ds_ticks();
	long n = ds_syscall(SYS_epoll_pwait, waiter_fd(w), w->ev + r->foreign, room, 0, NULL, (size_t)8);
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

/* Asks the kernel, if it is worth it, and looks at what it reports. With e's lock. */
static void harvest(struct round *r, const struct waiter *w, bool told, bool ask)
{
	enum { AGAIN = 4 };

	if (!worth_asking(r, told, ask))
		return;
	for (int i = 0; i < AGAIN; i++) {
		bool press = i == 0 && (r->e->skipped >= ASK_KERNEL || r->rung);
		if (!ask_now(r, w, press))
			break;
		scan(r, false); /* stale bells may have taken the room of others */
	}
}

/* Looks again at the members that had nothing, for what came before the latest find. If that is
 * older than the first look by a margin, the first look has seen everything: a thread that writes
 * on A and then on B stores A's status word before B's stamp, and other CPUs see a store within a
 * fraction of a microsecond. With e's lock. */
static void scan_again(struct round *r)
{
	enum { MARGIN = 4096 }; /* ticks: a microsecond at least */
	uint64_t last = round_latest(r);

	if (!r->heard && last + MARGIN < r->begin)
		return;
	r->cut = r->cut_bells = r->others && r->answered > last ? r->answered : last;
	scan(r, false);
}

/* As scan_again, in a set with members on TCP. What came after the kernel was asked may have come
 * after something on TCP, and is left to the next round. But what came before the kernel's answer
 * may have come before an event on TCP in that answer: so the kernel is asked until nothing lies
 * between. With e's lock. */
static void scan_between(struct round *r, const struct waiter *w)
{
	enum { AGAIN = 4 };

	for (int i = 0; i < AGAIN; i++) {
		uint64_t before = r->asked;
		if (before < round_latest(r) && r->foreign == 0) {
			ask_now(r, w, false);
			if (r->asked == before) { /* no room for its answer */
				scan_again(r);
				return;
			}
		}
		r->cut = r->news && r->foreign == 0 ? r->answered : r->asked;
		r->cut_bells = r->news ? r->answered : r->asked;
		scan(r, false);
		if (!r->news || r->foreign > 0 || round_latest(r) <= r->asked)
			return;
	}
}

/* Takes what the kernel has reported before the round. With e's lock. */
static void take_answer(struct round *r, const struct waiter *w, struct answer a)
{
	r->asked = a.at;
	r->answered = r->begin;
	absorb(r, w->ev, a.n);
	__atomic_store_n(&r->e->others, r->others, __ATOMIC_RELAXED);
	if (a.n < w->max)
		r->e->asked = a.at;
	if (r->foreign > 0 && r->e->indirect) { /* the kernel is not asked again, and may by now know of something that came before */
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
		__atomic_store_n(&e->epfd, waiter_fd(w), __ATOMIC_RELAXED);
	if (!e->nested)
		epi_clear_wake(e);
	r.order = asked;
	if (a.n >= 0)
		take_answer(&r, w, a);
	scan(&r, first);
	r.cut = r.cut_bells = UINT64_MAX;
	harvest(&r, w, a.n >= 0, ask);
	if (r.woken && e->nested && r.found + r.foreign == 0) /* it may have taken the room of another event */
		harvest(&r, w, false, true);
	if (r.heard || r.found > 0) {
		if (!e->indirect)
			scan_again(&r);
		else if (a.n < 0 || r.foreign == 0)
			scan_between(&r, w);
	}
	round_drop_empty(&r);
	int n = round_tell(&r, w->ev, w->max, asked);
	bool pass = e->reads > 0;
	lk_unlock(&e->lock);
	if (pass)
		epi_pass_on(e);
	if (r.strays > 0 && n == 0)
		ds_syscall(SYS_nanosleep, &(struct timespec){0, 1000000}, NULL);
	return n;
}

/* Is every event of a at ev the program's own, or one of a member that has nothing direct, nor
 * anything left to tell? With e's lock. */
static bool all_plain(struct epi *e, const struct epoll_event *ev, int n)
{
	for (int i = 0; i < n; i++) {
		const struct member *m = m_by_tag(ev[i].data.u64);

		if (m && (__atomic_load_n(&m->e, __ATOMIC_RELAXED) != e || m->tag != ev[i].data.u64 || m->deleted || m->kpend || m->joined))
			return false;
	}
	return true;
}

int epi_plain(const struct waiter *w, struct answer a)
{
	struct epi *e = w->e;
	struct epoll_event *ev = w->ev;
	uint64_t now = ds_ticks();
	int out = 0;

	lk_lock(&e->lock);
	bool plain = !e->joined && !e->nested && !e->active_head && all_plain(e, ev, a.n);
	for (int i = 0; plain && i < a.n; i++) {
		struct member *m = m_by_tag(ev[i].data.u64);

		ev[out] = ev[i];
		if (m) {
			m->kpend = ev[i].events;
			if (!m_look(m))
				continue;
			ev[out].events = m->got;
			ev[out].data.u64 = m->data;
			m_told(m, now + (uint64_t)out);
		}
		out++;
	}
	if (plain) {
		__atomic_store_n(&e->others, true, __ATOMIC_RELAXED);
		if (a.n < w->max)
			e->asked = a.at;
	}
	lk_unlock(&e->lock);
	return plain ? out : -1;
}

/* The order of events: when each came, and what one call of epoll_wait reports first.
 *
 * Events are reported in the order in which they came. A message says when it was sent (SPEC 2.4),
 * and the kernel's ready list is in order. What the kernel has reported has no time: it came when
 * the kernel was asked (SPEC 2.5).
 *
 * Of two members that have long been ready, the one reported longer ago comes first, as in the
 * kernel, which moves a member that it reports to the end of its list. So no member counts as ready
 * from before it was reported last (member.since).
 */
#include "fd/epround.h"

/* ---- when something came --------------------------------------------------------- */

/* When the data that m's segment has was sent, but not in the future. The clock is read only if the
 * peer claims a time after the round began. */
static uint64_t sent_at(const struct round *r, struct member *m)
{
	uint64_t t = ds_arrival(m->c->life.s, m->events & EPOLLET ? m->rx : 0);

	if (t == 0 || t > r->begin) {
		uint64_t now = ds_ticks();
		t = t == 0 || t > now ? now : t;
	}
	return t < m->since ? m->since : t;
}

uint64_t round_came(const struct round *r, struct member *m)
{
	if (m->heard)
		return m->heard < m->since ? m->since : m->heard;
	if (m->joined && (m->got & (EPOLLIN | EPOLLRDNORM | EPOLLRDHUP)))
		return sent_at(r, m);
	return m->since; /* room: it is ready all the time */
}

uint64_t round_latest(const struct round *r)
{
	uint64_t t = r->list ? r->list->key : 0;

	for (struct member *m = r->mixed ? r->list : NULL; m; m = m->rnext)
		t = m->key > t ? m->key : t;
	return t;
}

/* ---- reporting ------------------------------------------------------------------- */

/* Merges two lists, the latest first; of equals those of a, which were found later, come first. */
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

/* Sorts a list, the latest first: a merge sort, whose bins hold 1, 2, 4, ... members. */
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

/* Takes the member at *at off the list, so that the next round looks at it again. */
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

void round_drop_empty(struct round *r)
{
	for (struct member **at = &r->list; *at;)
		if ((*at)->got)
			at = &(*at)->rnext;
		else
			unlist(r, at);
}

/* A member goes before the foreign events that the kernel reported after it, with all that came
 * earlier; and before all of them if it came before `asked`. */
int round_tell(struct round *r, struct epoll_event *ev, int max, uint64_t asked)
{
	int n, at, left = r->foreign, place = r->foreign;
	uint64_t now = r->begin;
	struct member *next = NULL;

	if (r->mixed)
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
		next = m_last(m, next);
	}
	return n;
}

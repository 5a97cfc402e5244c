/* The order of events: when each came, and what one call of epoll_wait reports first.
 *
 * Events are reported in the order in which they came. A message says when it was sent (SPEC 2.4),
 * and the kernel's ready list is in order. Between the two lies what the kernel has reported
 * without a time: the client says on its direct connections what it sent on TCP before (SPEC 2.5),
 * which gives it a place.
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

/* ---- places for what has no time ------------------------------------------------- */

/* m's data was found in its segment, and the kernel has not reported its doorbell. */
static bool in_segment(const struct member *m)
{
	return m->joined && !m->heard && (m->got & (EPOLLIN | EPOLLRDNORM | EPOLLRDHUP));
}

static bool loose(const struct member *m) { return m->before == NOWHERE && in_segment(m); }

/* The connection of m; NULL while it is being made. */
static const struct ds_sock *connection(const struct member *m)
{
	return conn_is(m->c) == CONN_KNOWN ? m->c->life.s : NULL;
}

/* When m came, whose event the kernel reported without a time, by what m's client says on the
 * direct connections of the list: after the last of them, if it was sent after everything there. If
 * the client says nothing, m keeps its key. */
static uint64_t said_of(const struct round *r, const struct member *m)
{
	enum { MANY = 4096 };
	const struct ds_sock *tcp = connection(m);
	uint64_t first = DS_AFTER, after = m->heard;

	for (struct member *b = r->list; b; b = b->rnext) {
		if (!in_segment(b))
			continue;
		uint64_t t = tcp ? ds_sent_before(b->c->life.s, tcp) : DS_UNSAID;
		if (t == DS_UNSAID)
			return m->key;
		if (t < first)
			first = t;
		if (b->key >= after)
			after = b->key + 1;
	}
	uint64_t rank = m->heard - r->first; /* the kernel's order, if it reported several */
	uint64_t key = first < DS_AFTER ? first : after + (rank < MANY ? rank : MANY);
	return key < m->since ? m->since : key;
}

/* The connection on TCP whose event the kernel reports with the program's own data; *looks counts
 * down. NULL: there is none (it may be a listener), or the search would take too long. */
static const struct ds_sock *untagged(const struct round *r, uint64_t data, int *looks)
{
	struct member *m = r->e->all;

	while (m && *looks > 0 && (m->tagged || m->deleted || m->data != data)) {
		m = m->enext;
		--*looks;
	}
	return m && *looks > 0 ? connection(m) : NULL;
}

/* Places what was found in segments before foreign events that were sent later. */
static void place_foreign(struct round *r, const struct epoll_event *ev)
{
	int looks = 256;

	for (int i = r->sure; i < r->foreign; i++) {
		const struct ds_sock *tcp = untagged(r, ev[i].data.u64, &looks);
		for (struct member *b = tcp ? r->list : NULL; b && looks > 0; b = b->rnext, looks--) {
			if (!loose(b))
				continue;
			uint64_t t = ds_sent_before(b->c->life.s, tcp);
			if (t != DS_UNSAID && t > b->key)
				b->before = i;
		}
	}
}

/* Places members that the kernel reported among those found in segments. A place is kept until it
 * is reported: otherwise members that are always ready would always come first. */
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
		r->mixed = true;
	}
}

void round_place(struct round *r, const struct epoll_event *ev)
{
	place_heard(r);
	place_foreign(r, ev);
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

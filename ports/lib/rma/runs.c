// runs.c: runs of free pages, for addresses and for a port's memory.
#include <stdlib.h>
#include <time.h>

#include "pages.h"

bool rma_runs_init(struct runs *r)
{
	r->list = malloc(16 * sizeof(*r->list));
	r->room = 16;
	r->count = 1;
	if (r->list != NULL)
		r->list[0] = (struct run){0, EXN_PAGES};
	return r->list != NULL;
}

int64_t rma_runs_take(struct runs *r, uint32_t n)
{
	for (size_t i = 0; i < r->count; i++) {
		struct run *x = &r->list[i];
		if (x->count < n)
			continue;
		int64_t first = x->first;
		x->first += n;
		x->count -= n;
		if (x->count == 0)
			memmove(x, x + 1, (--r->count - i) * sizeof(*x));
		return first;
	}
	return -1;
}

void rma_runs_give(struct runs *r, uint32_t first, uint32_t n)
{
	size_t i = 0;
	while (i < r->count && r->list[i].first < first)
		i++;
	bool before = i > 0 && r->list[i - 1].first + r->list[i - 1].count == first;
	bool after = i < r->count && first + n == r->list[i].first;
	if (before && after) {
		r->list[i - 1].count += n + r->list[i].count;
		memmove(&r->list[i], &r->list[i + 1], (--r->count - i) * sizeof(*r->list));
	} else if (before) {
		r->list[i - 1].count += n;
	} else if (after) {
		r->list[i].first = first;
		r->list[i].count += n;
	} else {
		if (r->count == r->room) {
			struct run *list = realloc(r->list, 2 * r->room * sizeof(*list));
			if (list == NULL)
				return;
			r->list = list;
			r->room *= 2;
		}
		memmove(&r->list[i + 1], &r->list[i], (r->count++ - i) * sizeof(*r->list));
		r->list[i] = (struct run){first, n};
	}
}

// give returns a run that nobody uses any more.
static void give(RMA2_Port e, struct runs *r, struct run x)
{
	if (r == &e->pages)
		rma_pages_trim(e, x.first, x.count);
	rma_runs_give(r, x.first, x.count);
}

// give_held returns what was held and nobody uses any more. The result is exn_port_idle's.
static uint64_t give_held(RMA2_Port e)
{
	const uint64_t idle = exn_port_idle(&e->port);
	while (e->held != NULL && e->held->round < idle) {
		struct held_run *h = e->held;
		if ((e->held = h->next) == NULL)
			e->held_end = &e->held;
		give(e, h->of, h->run);
		free(h);
	}
	return idle;
}

int64_t rma_take_addresses(RMA2_Port e, uint32_t n)
{
	enum { LOOKS = 1000 };
	int64_t at;
	if (e->held != NULL)
		(void)give_held(e);
	// What is held comes back once each peer, and the node, has used nothing for a moment.
	for (int i = 0; (at = rma_runs_take(&e->addresses, n)) < 0 && e->held != NULL && i < LOOKS; i++) {
		nanosleep(&(struct timespec){0, 100000}, NULL);
		(void)give_held(e);
	}
	return at;
}

void rma_give(RMA2_Port e, struct runs *r, uint32_t first, uint32_t n)
{
	const uint64_t round = e->port.round;
	__atomic_thread_fence(__ATOMIC_SEQ_CST); // the node, or a peer, counts before it reads the table
	if (give_held(e) > round) {
		give(e, r, (struct run){first, n});
		return;
	}
	struct held_run *h = malloc(sizeof(*h));
	if (h == NULL)
		return; // lost until the port is closed
	*h = (struct held_run){NULL, round, r, {first, n}};
	*e->held_end = h;
	e->held_end = &h->next;
}

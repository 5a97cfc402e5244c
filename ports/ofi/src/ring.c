// ring.c: registered memory of an endpoint, in which the peer reads what it is sent. It is taken
// and freed in order.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "exnet.h"

// reclaim closes a ring that nothing is in. Its positions stay: the peer may say them once more.
static void reclaim(struct domain *d, struct ring *r, bool idle)
{
	struct ring was = *r;
	if (r->mem == NULL || !idle || r->head != r->tail)
		return;
	ring_close(d, r);
	r->head = was.head;
	r->tail = was.tail;
}

// drop_oldest closes the oldest ring of an endpoint that is closed; false: there is none.
static bool drop_oldest(struct domain *d)
{
	struct ring *old = (struct ring *)list_pop(&d->rings);
	if (old == NULL)
		return false;
	d->rings_count--;
	ring_close(d, old);
	free(old);
	return true;
}

// fits returns how large a ring becomes that is to have size bytes, or 0: there is no room. The
// more there are, the smaller are the next.
static size_t fits(struct domain *d, size_t size)
{
	for (int again = 0;; again++) {
		size_t share = d->ring_room / SHARES & ~(size_t)0xffff;
		size_t most = share < RING_LEAST ? RING_LEAST : share, n = size < most ? size : most;
		if (n <= d->ring_room)
			return n;
		if (again > 0 && !drop_oldest(d))
			return 0;
		for (uint32_t i = 0; again == 0 && i < d->eps_room; i++)
			if (d->eps[i] != NULL) {
				reclaim(d, &d->eps[i]->ring, d->eps[i]->current == NULL);
				reclaim(d, &d->eps[i]->landing, d->eps[i]->gets_count == 0);
			}
	}
}

bool ring_open(struct domain *d, struct ring *r, size_t size)
{
	if ((size = fits(d, size)) == 0)
		return false;
	void *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		return false;
	RMA2_NLA nla;
	RMA2_Region region;
	if (rma2_register_fresh(d->rma, mem, size, &region) != RMA2_SUCCESS) {
		munmap(mem, size);
		return false;
	}
	rma2_get_nla(&region, 0, &nla);
	d->ring_room -= size;
	*r = (struct ring){.mem = mem, .size = size, .region = region, .nla = nla, .head = r->head, .tail = r->head};
	list_init(&r->link);
	return true;
}

void ring_close(struct domain *d, struct ring *r)
{
	if (r->mem == NULL)
		return;
	rma2_unregister_nofree(d->rma, &r->region);
	munmap(r->mem, r->size);
	d->ring_room += r->size;
	r->mem = NULL;
}

enum { KEPT = 64 };

void ring_keep(struct domain *d, struct ring *r)
{
	struct ring *copy = malloc(sizeof(*copy));
	if (copy == NULL)
		return;
	*copy = *r;
	list_push(&d->rings, &copy->link);
	r->mem = NULL;
	if (++d->rings_count > KEPT)
		drop_oldest(d);
}

void *ring_take(struct ring *r, size_t size)
{
	uint64_t head = r->head;
	size_t at = head % r->size, room = (size + 63) & ~63ull;
	if (at + room > r->size) { // a chunk is contiguous
		head += r->size - at;
		at = 0;
	}
	if (head + room - r->tail > r->size)
		return NULL;
	r->head = head + room;
	return r->mem + at;
}

// ring.c: registered memory of an endpoint, in which the peer reads what it is sent. It is taken
// and freed in order.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "exnet.h"

bool ring_open(struct domain *d, struct ring *r, size_t size)
{
	void *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		return false;
	RMA2_NLA nla;
	RMA2_Region region;
	if (rma2_register_nomalloc(d->rma, mem, size, &region) != RMA2_SUCCESS) {
		munmap(mem, size);
		return false;
	}
	rma2_get_nla(&region, 0, &nla);
	*r = (struct ring){.mem = mem, .size = size, .region = region, .nla = nla};
	list_init(&r->link);
	return true;
}

void ring_close(struct domain *d, struct ring *r)
{
	if (r->mem == NULL)
		return;
	rma2_unregister_nofree(d->rma, &r->region);
	munmap(r->mem, r->size);
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
	if (++d->rings_count > KEPT) {
		struct ring *old = (struct ring *)list_pop(&d->rings);
		d->rings_count--;
		ring_close(d, old);
		free(old);
	}
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

// memory.c: registered memory. The table maps a page of addresses to a page of the port's memory,
// or to one of the program's own (pages.c).
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "pages.h"

// How many pages at the start of the port's memory are mapped beforehand. They are taken first,
// and registering memory in them saves a system call.
enum { WARM_PAGES = 16 };

struct cached {
	struct cached *next;
	RMA2_Region region; // must not move: the program has its address
	unsigned uses;
};

bool rma_memory_init(RMA2_Port e)
{
	e->where = calloc(EXN_PAGES, sizeof(*e->where));
	e->held_end = &e->held;
	rma_pages_open(e);
	// It begins anywhere: an address of an earlier port with this VPID means nothing here.
	if (getrandom(&e->generation, sizeof(e->generation), GRND_NONBLOCK) != sizeof(e->generation))
		e->generation = 0;
	// Linux before 5.14 does not know this advice.
	if (madvise(e->port.memory + EXN_ARENA_OFF, WARM_PAGES * EXN_PAGE, MADV_POPULATE_WRITE) == 0)
		e->warm = WARM_PAGES * EXN_PAGE;
	return e->where != NULL && rma_runs_init(&e->addresses) && rma_runs_init(&e->pages);
}

void rma_memory_free(RMA2_Port e)
{
	rma_pages_close(e);
	free(e->where);
	free(e->addresses.list);
	free(e->pages.list);
	free(e->shared);
	while (e->held != NULL) {
		struct held_run *h = e->held;
		e->held = h->next;
		free(h);
	}
	while (e->cache != NULL) {
		struct cached *c = e->cache;
		e->cache = c->next;
		free(c);
	}
}

// page_of returns which page of a port's addresses an address is in: EXN_PAGES or more if in none.
static uint64_t page_of(const struct rma2_endpoint *e, RMA2_NLA nla)
{
	return ((nla & ((1ull << EXN_GENERATION) - 1)) - e->port.base) / EXN_PAGE;
}

// enter makes an address refer to a page that peers can reach.
static void enter(RMA2_Port e, uint32_t at, uintptr_t page, uint64_t generation)
{
	e->where[at] = (void *)(page * EXN_PAGE);
	__atomic_store_n(&e->port.table[at], rma_pages_entry(e, page) | generation << EXN_GENERATION, __ATOMIC_RELEASE);
}

// next_generation returns one that no region of the port had, until all have been used.
static uint32_t next_generation(RMA2_Port e)
{
	enum { GENERATIONS = 1 << (64 - EXN_GENERATION) };
	return e->generation = e->generation % (GENERATIONS - 1) + 1;
}

// moved returns whether all pages are in the port's memory: the entry of one that stayed in its
// place has no room for a generation.
static bool moved(RMA2_Port e, uintptr_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if ((rma_pages_entry(e, first + i) & EXN_ENTRY_PAGE) == 0)
			return false;
	return true;
}

// register_pages registers memory, at addresses of a generation or, with 0, of none.
static RMA2_ERROR register_pages(RMA2_Port e, void *address, size_t size, uint64_t generation, RMA2_Region *r)
{
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	uintptr_t first = (uintptr_t)address / EXN_PAGE, last = ((uintptr_t)address + size - 1) / EXN_PAGE;
	if (first == 0 || size < 1 || size > EXN_PAGES * EXN_PAGE || last < first || last - first >= EXN_PAGES)
		return RMA2_ERR_INV_VALUE;
	uint32_t n = (uint32_t)(last - first + 1);
	int64_t at = rma_take_addresses(e, n);
	if (at < 0)
		return RMA2_ERR_ATU;
	bool acquired = rma_pages_acquire(e, first, n);
	if (!acquired || (generation != 0 && !moved(e, first, n))) {
		if (acquired)
			rma_pages_release(e, first, n);
		rma_runs_give(&e->addresses, (uint32_t)at, n);
		return RMA2_ERR_NO_MEM;
	}
	for (uint32_t i = 0; i < n; i++)
		enter(e, (uint32_t)at + i, first + i, generation);
	*r = (RMA2_Region){
		.start = (void *)(first * EXN_PAGE), .end = (void *)((last + 1) * EXN_PAGE), .size = n * EXN_PAGE, .count = n,
		.length = size, .nla = generation << EXN_GENERATION | (e->port.base + (uint64_t)at * EXN_PAGE),
		.offset = (uint32_t)((uintptr_t)address % EXN_PAGE),
	};
	exn_count(&e->port, EXN_REGISTERED, (int64_t)r->size);
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_register_nomalloc(RMA2_Port e, void *address, size_t size, RMA2_Region *r)
{
	return register_pages(e, address, size, 0, r);
}

API RMA2_ERROR rma2_register_fresh(RMA2_Port e, void *address, size_t size, RMA2_Region *r)
{
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	return register_pages(e, address, size, next_generation(e), r);
}

// listed returns the i-th address of a list whose entries are stride bytes apart.
static uintptr_t listed(void *const *pages, unsigned stride, uint32_t i)
{
	uintptr_t at;
	memcpy(&at, (const char *)pages + (size_t)i * stride, sizeof(at));
	return at;
}

// acquire_list acquires the pages of a list, in runs of consecutive pages.
static bool acquire_list(RMA2_Port e, void *const *pages, unsigned stride, uint32_t n)
{
	uint32_t done = 0, run = 0;
	for (; done < n; done += run) {
		uintptr_t first = listed(pages, stride, done);
		for (run = 1; done + run < n && listed(pages, stride, done + run) == first + run * EXN_PAGE; run++)
			;
		if (!rma_pages_acquire(e, first / EXN_PAGE, run))
			break;
	}
	for (uint32_t i = 0; done < n && i < done; i++)
		rma_pages_release(e, listed(pages, stride, i) / EXN_PAGE, 1);
	return done == n;
}

API RMA2_ERROR rma2_register_pagelist(RMA2_Port e, void *const *pages, size_t count, unsigned stride, uint32_t offset, size_t length,
				      RMA2_Region **out)
{
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	// The data begins in the first page, ends in the last, and fills all pages between.
	if (count < 1 || count > EXN_PAGES || offset >= EXN_PAGE || length < 1 ||
	    length > count * EXN_PAGE - offset || length <= (count - 1) * EXN_PAGE - (count > 1 ? offset : 0))
		return RMA2_ERR_INV_VALUE;
	uint32_t n = (uint32_t)count;
	for (uint32_t i = 0; i < n; i++)
		if (listed(pages, stride, i) % EXN_PAGE != 0 || listed(pages, stride, i) == 0)
			return RMA2_ERR_INV_VALUE;
	RMA2_Region *r = malloc(sizeof(*r));
	int64_t at = r == NULL ? -1 : rma_take_addresses(e, n);
	if (at < 0) {
		free(r);
		return r == NULL ? RMA2_ERR_MAP : RMA2_ERR_ATU;
	}
	if (!acquire_list(e, pages, stride, n)) {
		rma_runs_give(&e->addresses, (uint32_t)at, n);
		free(r);
		return RMA2_ERR_NO_MEM;
	}
	for (uint32_t i = 0; i < n; i++)
		enter(e, (uint32_t)at + i, listed(pages, stride, i) / EXN_PAGE, 0);
	*r = (RMA2_Region){
		.start = e->where[at], .size = n * EXN_PAGE, .count = n, .length = length,
		.nla = e->port.base + (uint64_t)at * EXN_PAGE, .offset = offset,
	};
	exn_count(&e->port, EXN_REGISTERED, (int64_t)r->size);
	*out = r;
	return RMA2_SUCCESS;
}

// is_there returns whether the pages of a region are at its address: in a row or, if the region
// has no end, from a list.
static bool is_there(RMA2_Port e, uint32_t at, const RMA2_Region *r)
{
	for (uint32_t i = 0; i < r->count; i++) {
		char *want = r->end != NULL || i == 0 ? (char *)r->start + i * EXN_PAGE : e->where[at + i];
		if (want == NULL || e->where[at + i] != want)
			return false;
	}
	return true;
}

API RMA2_ERROR rma2_unregister_nofree(RMA2_Port e, RMA2_Region *r)
{
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	// The program may have changed its region.
	uint64_t at = page_of(e, r->nla);
	if (r->count < 1 || at >= EXN_PAGES || r->count > EXN_PAGES - at || !is_there(e, (uint32_t)at, r))
		return RMA2_ERR_NO_TABLE;
	for (uint64_t i = 0; i < r->count; i++)
		__atomic_store_n(&e->port.table[at + i], 0, __ATOMIC_RELEASE);
	for (uint64_t i = 0, n; i < r->count; i += n) {
		char *start = e->where[at + i];
		for (n = 0; i + n < r->count && e->where[at + i + n] == start + n * EXN_PAGE; n++)
			e->where[at + i + n] = NULL;
		rma_pages_release(e, (uintptr_t)start / EXN_PAGE, (uint32_t)n);
	}
	rma_give(e, &e->addresses, (uint32_t)at, (uint32_t)r->count);
	exn_count(&e->port, EXN_REGISTERED, -(int64_t)(r->count * EXN_PAGE));
	*r = (RMA2_Region){0};
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_register(RMA2_Port e, void *address, size_t size, RMA2_Region **out)
{
	RMA2_Region *r = malloc(sizeof(*r));
	if (r == NULL)
		return RMA2_ERR_MAP;
	RMA2_ERROR err = rma2_register_nomalloc(e, address, size, r);
	if (err != RMA2_SUCCESS) {
		free(r);
		return err;
	}
	*out = r;
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_unregister(RMA2_Port e, RMA2_Region *r)
{
	// Unregister a region whose address the program has changed, too.
	RMA2_ERROR err = rma2_unregister_nofree(e, r);
	if (err != RMA2_ERR_INV_PORT)
		free(r);
	return err;
}

// Registrations of the same memory share one entry while one of them lasts. It is not kept
// longer: the program may free the memory without the library's knowledge.
API RMA2_ERROR rma2_register_cached(RMA2_Port e, void *address, size_t size, RMA2_Region **out)
{
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	for (struct cached *c = e->cache; c != NULL; c = c->next)
		if (rma2_get_region_equal(&c->region, address, size)) {
			c->uses++;
			*out = &c->region;
			return RMA2_SUCCESS;
		}
	struct cached *c = calloc(1, sizeof(*c));
	if (c == NULL)
		return RMA2_ERR_MAP;
	RMA2_ERROR err = rma2_register_nomalloc(e, address, size, &c->region);
	if (err != RMA2_SUCCESS) {
		free(c);
		return err;
	}
	c->uses = 1;
	c->next = e->cache;
	e->cache = c;
	*out = &c->region;
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_unregister_cached(RMA2_Port e, RMA2_Region *r)
{
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	for (struct cached **at = &e->cache; *at != NULL; at = &(*at)->next) {
		struct cached *c = *at;
		if (&c->region != r)
			continue;
		if (--c->uses > 0)
			return RMA2_SUCCESS;
		*at = c->next;
		RMA2_ERROR err = rma2_unregister_nofree(e, r);
		free(c);
		return err;
	}
	return RMA2_ERR_NO_TABLE;
}

API RMA2_ERROR rma2_register_adhoc(RMA2_Port e, void *address, RMA2_Region **out)
{
	return rma2_register(e, (void *)((uintptr_t)address & ~(EXN_PAGE - 1)), EXN_PAGE, out);
}

API RMA2_ERROR rma2_unregister_adhoc(RMA2_Port e, RMA2_Region *r)
{
	return rma2_unregister(e, r);
}

void *rma_local(RMA2_Port e, RMA2_NLA nla, uint32_t size, uint32_t *run)
{
	uint64_t page = page_of(e, nla), off = nla % EXN_PAGE;
	if (page >= EXN_PAGES || size > EXN_PAGES * EXN_PAGE - page * EXN_PAGE - off)
		return NULL;
	char *start = e->where[page];
	uint64_t entry = e->port.table[page];
	if (start == NULL || (entry & EXN_ENTRY_PAGE ? entry >> EXN_GENERATION : 0) != nla >> EXN_GENERATION)
		return NULL;
	uint64_t n = EXN_PAGE - off;
	for (uint64_t i = 1; n < size && e->where[page + i] == start + i * EXN_PAGE; i++)
		n += EXN_PAGE;
	*run = n < size ? (uint32_t)n : size;
	return start + off;
}

// refused returns whether the owner of a page denies this access to this node, or has registered
// the page anew since (another generation).
static bool refused(const struct exn_grant *g, uint64_t entry, RMA2_NLA nla, bool put)
{
	if (entry >> EXN_GENERATION != nla >> EXN_GENERATION || (entry & (put ? EXN_NO_WRITE : EXN_NO_READ)) != 0)
		return true;
	return (entry & EXN_ONE_NODE) != 0 && (uint16_t)(entry >> EXN_NODE) != g->self;
}

uint8_t *rma_remote(const struct exn_grant *g, RMA2_NLA nla, uint32_t size, bool put, uint32_t *run)
{
	uint64_t off = (nla & ((1ull << EXN_GENERATION) - 1)) - g->base;
	if (off >= EXN_PAGES * EXN_PAGE || size > EXN_PAGES * EXN_PAGE - off)
		return NULL;
	const uint64_t *t = g->table;
	uint64_t page = off / EXN_PAGE;
	// The peer can write the table: read each entry once, then check it.
	uint64_t entry = __atomic_load_n(&t[page], __ATOMIC_ACQUIRE), file = (entry & EXN_ENTRY_PAGE) - 1;
	if (file >= EXN_PAGES || refused(g, entry, nla, put))
		return NULL;
	uint64_t n = EXN_PAGE - off % EXN_PAGE;
	while (n < size && file + (++page - off / EXN_PAGE) < EXN_PAGES &&
	       __atomic_load_n(&t[page], __ATOMIC_ACQUIRE) == entry + (page - off / EXN_PAGE))
		n += EXN_PAGE;
	*run = n < size ? (uint32_t)n : size;
	return g->memory + EXN_ARENA_OFF + file * EXN_PAGE + off % EXN_PAGE;
}

bool rma_in_place(const struct exn_grant *g, RMA2_NLA nla, uint32_t size, uint32_t *run)
{
	uint64_t off = nla - g->base, page = off / EXN_PAGE, n = EXN_PAGE - off % EXN_PAGE;
	if (off >= EXN_PAGES * EXN_PAGE || size > EXN_PAGES * EXN_PAGE - off)
		return false;
	const uint64_t what = EXN_IN_PLACE | EXN_ENTRY_PAGE;
	if ((__atomic_load_n(&g->table[page], __ATOMIC_ACQUIRE) & what) != EXN_IN_PLACE)
		return false;
	while (n < size && (__atomic_load_n(&g->table[++page], __ATOMIC_ACQUIRE) & what) == EXN_IN_PLACE)
		n += EXN_PAGE;
	*run = n < size ? (uint32_t)n : size;
	return true;
}

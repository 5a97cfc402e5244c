// memory.c: registered memory. A page that is registered moves into the port's memory, which
// peers can reach, and is mapped where it was. The table says which page of that memory is
// behind a page of addresses; a page that several regions have in common is there once.
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <fcntl.h>

#include "rma.h"

// How many pages that nobody needs stay in the port's memory, for the next registration; more are
// given back to the system.
enum { KEPT_PAGES = 4096 };

// How many pages of the port's memory are there from the start. What is registered in them, which
// are the first that are taken, costs a system call less.
enum { WARM_PAGES = 16 };

struct cached {
	struct cached *next;
	RMA2_Region region; // must stay where it is: the program has its address
	unsigned uses;
};

static bool runs_init(struct runs *r)
{
	r->list = malloc(16 * sizeof(*r->list));
	r->room = 16;
	r->count = 1;
	if (r->list != NULL)
		r->list[0] = (struct run){0, EXN_PAGES};
	return r->list != NULL;
}

// runs_take takes n pages in a row, the first that there are. -1: there are none.
static int64_t runs_take(struct runs *r, uint32_t n)
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

// runs_give gives n pages back. Without memory for one more run they are lost until the port is
// closed.
static void runs_give(struct runs *r, uint32_t first, uint32_t n)
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

static size_t slot_of(const struct rma2_endpoint *e, uintptr_t page)
{
	return (page * 0x9e3779b97f4a7c15ull >> 32) & (e->shared_room - 1);
}

// find returns the entry of a page, or NULL.
static struct shared_page *find(struct rma2_endpoint *e, uintptr_t page)
{
	if (e->shared_count == 0)
		return NULL;
	for (size_t i = slot_of(e, page);; i = (i + 1) & (e->shared_room - 1)) {
		if (e->shared[i].page == page)
			return &e->shared[i];
		if (e->shared[i].page == 0)
			return NULL;
	}
}

static void put_page(struct rma2_endpoint *e, struct shared_page p)
{
	size_t i = slot_of(e, p.page);
	while (e->shared[i].page != 0)
		i = (i + 1) & (e->shared_room - 1);
	e->shared[i] = p;
}

// reserve makes room for n more entries.
static bool reserve(struct rma2_endpoint *e, size_t n)
{
	size_t room = e->shared_room;
	while (room < 2 * (e->shared_count + n))
		room = room ? 2 * room : 64;
	if (room == e->shared_room)
		return true;
	struct shared_page *now = calloc(room, sizeof(*now)), *old = e->shared;
	size_t had = e->shared_room;
	if (now == NULL)
		return false;
	e->shared = now;
	e->shared_room = room;
	for (size_t i = 0; i < had; i++)
		if (old[i].page != 0)
			put_page(e, old[i]);
	free(old);
	return true;
}

// drop_page takes an entry out, and closes the gap.
static void drop_page(struct rma2_endpoint *e, struct shared_page *p)
{
	size_t mask = e->shared_room - 1, hole = (size_t)(p - e->shared);
	e->shared_count--;
	for (size_t i = (hole + 1) & mask; e->shared[i].page != 0; i = (i + 1) & mask) {
		size_t home = slot_of(e, e->shared[i].page);
		if (((i - home) & mask) >= ((i - hole) & mask)) {
			e->shared[hole] = e->shared[i];
			hole = i;
		}
	}
	e->shared[hole].page = 0;
}

bool rma_memory_init(RMA2_Port e)
{
	e->where = calloc(EXN_PAGES, sizeof(*e->where));
	// Not before Linux 5.14.
	if (madvise(e->port.memory + EXN_ARENA_OFF, WARM_PAGES * EXN_PAGE, MADV_POPULATE_WRITE) == 0)
		e->warm = WARM_PAGES * EXN_PAGE;
	return e->where != NULL && runs_init(&e->addresses) && runs_init(&e->pages);
}

void rma_memory_free(RMA2_Port e)
{
	free(e->where);
	free(e->addresses.list);
	free(e->pages.list);
	free(e->shared);
	while (e->cache != NULL) {
		struct cached *c = e->cache;
		e->cache = c->next;
		free(c);
	}
}

static off_t offset_of(uint32_t file)
{
	return (off_t)(EXN_ARENA_OFF + (uint64_t)file * EXN_PAGE);
}

// fetch copies from pages of the program. Whole pages have more in them than the caller's object,
// which the address sanitizer's memcpy and pwrite would refuse.
__attribute__((no_sanitize("address"))) static void fetch(uint64_t *to, const volatile uint64_t *from, size_t size)
{
	for (size_t i = 0; i < size / sizeof(*to); i++)
		to[i] = from[i];
}

// readable asks the system: a set of signals is read from there before it is refused.
static bool readable(const char *at, size_t size)
{
	for (size_t i = 0; i < size; i += EXN_PAGE)
		if (syscall(SYS_rt_sigprocmask, -1, at + i, NULL, 8) == 0 || errno != EINVAL)
			return false;
	return true;
}

// swap_in copies pages to the port's memory and maps that over them.
__attribute__((noinline)) static bool swap_in(RMA2_Port e, void *at, size_t size, off_t off)
{
	int fd = e->port.memory_fd;
	bool warm = (size_t)off + size <= EXN_ARENA_OFF + e->warm;
	if (warm && !readable(at, size))
		return false;
	if (warm)
		fetch((uint64_t *)(e->port.memory + off), at, size);
	for (size_t done = 0; !warm && done < size;) {
		long n = syscall(SYS_pwrite64, fd, (char *)at + done, size - done, off + (off_t)done);
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, off) != MAP_FAILED;
}

// swap_out makes pages private again, with what is in them.
__attribute__((noinline)) static bool swap_out(RMA2_Port e, void *at, size_t size, off_t off)
{
	int fd = e->port.memory_fd;
	char *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (mem == MAP_FAILED)
		return false;
	for (size_t done = 0; done < size;) {
		ssize_t n = pread(fd, mem + done, size - done, off + (off_t)done);
		if (n <= 0) {
			munmap(mem, size);
			return false;
		}
		done += (size_t)n;
	}
	return mremap(mem, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED;
}

// below runs a swap two pages further down the stack: the memory may be the caller's own stack, and
// what changes there between the copy and the mapping is lost.
__attribute__((noinline)) static bool below(bool (*swap)(RMA2_Port, void *, size_t, off_t), RMA2_Port e, void *at, size_t size, off_t off)
{
	volatile char gap[2 * EXN_PAGE];
	gap[0] = gap[sizeof(gap) - 1] = 0;
	bool ok = swap(e, at, size, off);
	gap[0] = ok;
	return gap[0];
}

// share moves n pages, none of which is there yet, into the port's memory.
static bool share(RMA2_Port e, uintptr_t page, uint32_t n)
{
	int64_t file = runs_take(&e->pages, n);
	if (file < 0)
		return false;
	if (!below(swap_in, e, (void *)(page * EXN_PAGE), n * EXN_PAGE, offset_of((uint32_t)file))) {
		runs_give(&e->pages, (uint32_t)file, n);
		return false;
	}
	for (uint32_t i = 0; i < n; i++)
		put_page(e, (struct shared_page){page + i, (uint32_t)file + i, 0});
	e->shared_count += n;
	return true;
}

// unshare takes n pages back that nobody has registered any more and that follow one another.
static void unshare(RMA2_Port e, uintptr_t page, uint32_t file, uint32_t n)
{
	// When that fails the program keeps the pages that peers could see, and they are not used
	// again.
	if (!below(swap_out, e, (void *)(page * EXN_PAGE), n * EXN_PAGE, offset_of(file)))
		return;
	// Those far up are not taken soon again.
	if (file + n > e->shared_count + KEPT_PAGES)
		(void)fallocate(e->port.memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset_of(file), (off_t)(n * EXN_PAGE));
	runs_give(&e->pages, file, n);
}

// release ends one use of each of n pages.
static void release(RMA2_Port e, uintptr_t page, uint32_t n)
{
	uint32_t run = 0, file = 0;
	for (uint32_t i = 0; i <= n; i++) {
		struct shared_page *p = i < n ? find(e, page + i) : NULL;
		bool last = p != NULL && --p->uses == 0;
		if (run > 0 && (!last || p->file != file + run)) {
			unshare(e, page + i - run, file, run);
			run = 0;
		}
		if (!last)
			continue;
		if (run++ == 0)
			file = p->file;
		drop_page(e, p);
	}
}

// acquire has n pages in the port's memory, and counts a use of each.
static bool acquire(RMA2_Port e, uintptr_t page, uint32_t n)
{
	if (!reserve(e, n))
		return false;
	uint32_t done = 0;
	while (done < n) {
		uint32_t run = 0;
		while (done + run < n && find(e, page + done + run) == NULL)
			run++;
		if (run > 0 && !share(e, page + done, run))
			break;
		uint32_t stop = run > 0 ? done + run : done + 1;
		for (; done < stop; done++)
			find(e, page + done)->uses++;
	}
	if (done == n)
		return true;
	release(e, page, done);
	return false;
}

// enter has an address lead to a page that is in the port's memory.
static void enter(RMA2_Port e, uint32_t at, uintptr_t page)
{
	e->where[at] = (void *)(page * EXN_PAGE);
	__atomic_store_n(&e->port.table[at], (uint64_t)find(e, page)->file + 1, __ATOMIC_RELEASE);
}

API RMA2_ERROR rma2_register_nomalloc(RMA2_Port e, void *address, size_t size, RMA2_Region *r)
{
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	uintptr_t first = (uintptr_t)address / EXN_PAGE, last = ((uintptr_t)address + size - 1) / EXN_PAGE;
	if (first == 0 || size < 1 || size > EXN_PAGES * EXN_PAGE || last < first || last - first >= EXN_PAGES)
		return RMA2_ERR_INV_VALUE;
	uint32_t n = (uint32_t)(last - first + 1);
	int64_t at = runs_take(&e->addresses, n);
	if (at < 0)
		return RMA2_ERR_ATU;
	if (!acquire(e, first, n)) {
		runs_give(&e->addresses, (uint32_t)at, n);
		return RMA2_ERR_NO_MEM;
	}
	for (uint32_t i = 0; i < n; i++)
		enter(e, (uint32_t)at + i, first + i);
	*r = (RMA2_Region){
		.start = (void *)(first * EXN_PAGE), .end = (void *)((last + 1) * EXN_PAGE), .size = n * EXN_PAGE, .count = n,
		.length = size, .nla = e->port.base + (uint64_t)at * EXN_PAGE, .offset = (uint32_t)((uintptr_t)address % EXN_PAGE),
	};
	exn_count(&e->port, EXN_REGISTERED, (int64_t)r->size);
	return RMA2_SUCCESS;
}

// listed returns the address of an entry of a list, which has stride bytes from one to the next.
static uintptr_t listed(void *const *pages, unsigned stride, uint32_t i)
{
	uintptr_t at;
	memcpy(&at, (const char *)pages + (size_t)i * stride, sizeof(at));
	return at;
}

// acquire_list has the pages of a list in the port's memory, by runs of those that follow one
// another.
static bool acquire_list(RMA2_Port e, void *const *pages, unsigned stride, uint32_t n)
{
	uint32_t done = 0, run = 0;
	for (; done < n; done += run) {
		uintptr_t first = listed(pages, stride, done);
		for (run = 1; done + run < n && listed(pages, stride, done + run) == first + run * EXN_PAGE; run++)
			;
		if (!acquire(e, first / EXN_PAGE, run))
			break;
	}
	for (uint32_t i = 0; done < n && i < done; i++)
		release(e, listed(pages, stride, i) / EXN_PAGE, 1);
	return done == n;
}

API RMA2_ERROR rma2_register_pagelist(RMA2_Port e, void *const *pages, size_t count, unsigned stride, uint32_t offset, size_t length,
				      RMA2_Region **out)
{
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	// All pages are full, except that the data begins in the first one and ends in the last
	// one.
	if (count < 1 || count > EXN_PAGES || offset >= EXN_PAGE || length < 1 ||
	    length > count * EXN_PAGE - offset || length <= (count - 1) * EXN_PAGE - (count > 1 ? offset : 0))
		return RMA2_ERR_INV_VALUE;
	uint32_t n = (uint32_t)count;
	for (uint32_t i = 0; i < n; i++)
		if (listed(pages, stride, i) % EXN_PAGE != 0 || listed(pages, stride, i) == 0)
			return RMA2_ERR_INV_VALUE;
	RMA2_Region *r = malloc(sizeof(*r));
	int64_t at = r == NULL ? -1 : runs_take(&e->addresses, n);
	if (at < 0) {
		free(r);
		return r == NULL ? RMA2_ERR_MAP : RMA2_ERR_ATU;
	}
	if (!acquire_list(e, pages, stride, n)) {
		runs_give(&e->addresses, (uint32_t)at, n);
		free(r);
		return RMA2_ERR_NO_MEM;
	}
	for (uint32_t i = 0; i < n; i++)
		enter(e, (uint32_t)at + i, listed(pages, stride, i) / EXN_PAGE);
	*r = (RMA2_Region){
		.start = e->where[at], .size = n * EXN_PAGE, .count = n, .length = length,
		.nla = e->port.base + (uint64_t)at * EXN_PAGE, .offset = offset,
	};
	exn_count(&e->port, EXN_REGISTERED, (int64_t)r->size);
	*out = r;
	return RMA2_SUCCESS;
}

// is_there says whether the pages of a region are at its address: in a row, or of a list, which has
// no end.
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
	// The program may have changed what it has.
	uint64_t at = (r->nla - e->port.base) / EXN_PAGE;
	if (r->count < 1 || at >= EXN_PAGES || r->count > EXN_PAGES - at || !is_there(e, (uint32_t)at, r))
		return RMA2_ERR_NO_TABLE;
	for (uint64_t i = 0; i < r->count; i++)
		__atomic_store_n(&e->port.table[at + i], 0, __ATOMIC_RELEASE);
	for (uint64_t i = 0, n; i < r->count; i += n) {
		char *start = e->where[at + i];
		for (n = 0; i + n < r->count && e->where[at + i + n] == start + n * EXN_PAGE; n++)
			e->where[at + i + n] = NULL;
		release(e, (uintptr_t)start / EXN_PAGE, (uint32_t)n);
	}
	runs_give(&e->addresses, (uint32_t)at, (uint32_t)r->count);
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
	// A program that has changed the address of its region gets rid of it all the same.
	RMA2_ERROR err = rma2_unregister_nofree(e, r);
	if (err != RMA2_ERR_INV_PORT)
		free(r);
	return err;
}

// Registrations of the same memory share one as long as one of them lasts. None is kept beyond
// that: the program may free the memory, and the library would not know.
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
	uint64_t off = nla - e->port.base;
	if (off >= EXN_PAGES * EXN_PAGE || size > EXN_PAGES * EXN_PAGE - off)
		return NULL;
	uint64_t page = off / EXN_PAGE;
	char *start = e->where[page];
	if (start == NULL)
		return NULL;
	uint64_t n = EXN_PAGE - off % EXN_PAGE;
	for (uint64_t i = 1; n < size && e->where[page + i] == start + i * EXN_PAGE; i++)
		n += EXN_PAGE;
	*run = n < size ? (uint32_t)n : size;
	return start + off % EXN_PAGE;
}

// refused says whether the owner of a page has not lent it for this, to this node, under the
// generation of the address.
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
	// The peer writes the table: each entry is read once, and checked.
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

// place.c: writes and reads that need nothing of the target: the initiator copies to or from the
// target's program itself (process_vm_writev, process_vm_readv), where the target has granted it.
//
//	initiator                                target
//	  a write or read, as a message   ──▶
//	                                  ◀──    OP_GRANT: where the region is, and a gate
//	  writes = 1
//	  the gate's word, then the bytes ────▶  in this order, by one call
//	  writes = 0
//
// The gate is a page of the target's that it unmaps to end its grants: from then on the kernel
// refuses a call that begins with it, and no byte arrives. Of a call that had passed the gate
// before, the target reads in the initiator's program: its word writes was 1 before the call. So
// once the gate is gone, and the word is 0 or the initiator has ended, nothing more comes, and the
// memory is the program's again. A gate is at a random address, and a child does not have it:
// should the target's process number be another process's already, the call ends there, too.
//
// What was sent before has to be worked off before the initiator copies: it waits for the answers
// to its earlier writes and reads, and does not copy while a message is on its way. While it waits
// it has not begun, and this end answers the peer, which may wait in the same way.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "exnet.h"

enum {
	PAGE = 4096,
	SETTLE_MS = 1000, // so long a region's owner waits for who writes to it
};

// A target's grants to one peer.
struct gate {
	struct list link; // in domain->gates, once it is shut
	uint64_t *page;   // its first word says to readers that this is the process; or NULL
	struct source source; // the peer
	int peer;         // descriptor of its process
	const struct mr *granted[GRANTS];
	unsigned count;
};

// private maps a page at a random address where nothing is, so never where an older gate was: an
// initiator that still has that one's grants must not pass this one. It returns NULL if it finds
// no such place: a sanitizer reserves a quarter of the address space, and mmap would take the wish
// for another address.
static void *private(void)
{
	for (int tries = 0; tries < 32; tries++) {
		uintptr_t at;
		if (getrandom(&at, sizeof(at), GRND_NONBLOCK) != sizeof(at))
			return NULL;
		at = (at & (((uintptr_t)1 << 46) - 1)) / PAGE * PAGE;
		void *p = mmap((void *)at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (p == MAP_FAILED)
			continue;
		if ((uintptr_t)p == at && madvise(p, PAGE, MADV_DONTFORK) == 0)
			return p;
		munmap(p, PAGE);
	}
	return NULL;
}

static void release(struct gate *g)
{
	list_remove(&g->link);
	if (g->page != NULL)
		munmap(g->page, PAGE);
	if (g->peer >= 0)
		close(g->peer);
	free(g);
}

static struct gate *gate_open(const struct ep *ep)
{
	struct gate *g = calloc(1, sizeof(*g));
	if (g == NULL)
		return NULL;
	list_init(&g->link);
	g->page = private();
	g->source = ep->source;
	g->peer = direct_process(&ep->source);
	if (g->page == NULL || g->peer < 0) {
		release(g);
		return NULL;
	}
	g->page[0] = ep->word;
	return g;
}

static void shut(struct ep *ep)
{
	struct gate *g = ep->gate;
	if (g == NULL)
		return;
	ep->gate = NULL;
	munmap(g->page, PAGE);
	g->page = NULL;
	list_push(&ep->domain->gates, &g->link);
}

static bool grants(const struct gate *g, const struct mr *mr)
{
	for (unsigned i = 0; i < g->count; i++)
		if (g->granted[i] == mr)
			return true;
	return false;
}

// settle frees the gates that are shut and through which nothing comes. It returns whether one is
// left that has granted mr, or any if that is NULL.
static bool settle(struct domain *d, const struct mr *mr)
{
	bool left = false;
	for (struct list *l = d->gates.next, *next; l != &d->gates; l = next) {
		struct gate *g = of(l, struct gate, link);
		next = l->next;
		if (direct_writes(&g->source, g->peer))
			left = left || mr == NULL || grants(g, mr);
		else
			release(g);
	}
	return left;
}

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static bool wait_for(struct domain *d, const struct mr *mr)
{
	uint64_t end = now_ms() + SETTLE_MS;
	while (settle(d, mr)) {
		if (now_ms() > end)
			return false;
		(void)poll(NULL, 0, 1);
	}
	return true;
}

bool place_revoke(struct domain *d, const struct mr *mr)
{
	if (d->fabric->child) // nobody writes to its memory, and the gates are not there
		return true;
	for (uint32_t i = 0; i < d->eps_room; i++)
		if (d->eps[i] != NULL && d->eps[i]->gate != NULL && grants(d->eps[i]->gate, mr))
			shut(d->eps[i]);
	return wait_for(d, mr);
}

void place_down(struct ep *ep)
{
	if (ep->gate == NULL)
		return;
	shut(ep);
	(void)wait_for(ep->domain, NULL); // otherwise the region's end waits for it
}

void place_drop(struct ep *ep)
{
	release(ep->gate);
	ep->gate = NULL;
}

void place_close(struct domain *d)
{
	while (!list_empty(&d->gates))
		release(of(d->gates.next, struct gate, link));
}

void place_offer(struct ep *ep, const struct mr *mr)
{
	struct gate *g = ep->gate;
	if (!ep->places || !ep->direct || !ep->source.reads || ep->word == 0 || !sends(ep->state) || (g != NULL && grants(g, mr)))
		return;
	if (g != NULL && g->count == GRANTS) {
		shut(ep);
		(void)settle(ep->domain, NULL);
	}
	if (ep->gate == NULL && (ep->gate = gate_open(ep)) == NULL) {
		ep->places = false;
		return;
	}
	g = ep->gate;
	struct grant m = {.key = mr->fid.key, .base = mr->base, .size = mr->size, .at = (uintptr_t)mr->at, .gate = (uintptr_t)g->page};
	m.rights = (mr->access & FI_REMOTE_WRITE ? GRANT_WRITE : 0) | (mr->access & FI_REMOTE_READ ? GRANT_READ : 0) |
		   (mr->cntr != NULL ? GRANT_TELL : 0);
	if (out_post(ep, OP_GRANT, 0, &m, sizeof(m), NULL, 0, false))
		g->granted[g->count++] = mr;
}

bool place_granted(struct ep *ep, const uint8_t *body, uint32_t n)
{
	struct grant m;
	struct way *w = &ep->way;
	if (n < sizeof(m) || ep->far)
		return false;
	memcpy(&m, body, sizeof(m));
	if (m.gate != w->gate) { // those of another gate are void
		w->gate = m.gate;
		w->count = 0;
	}
	if (w->count == GRANTS)
		return false;
	w->grants[w->count++] = m;
	return true;
}

// granted returns the grant by which an operation may be done, or NULL.
static const struct grant *granted(const struct ep *ep, const struct tx *tx)
{
	uint32_t right = tx->kind == K_WRITE ? GRANT_WRITE : GRANT_READ;
	if (!ep->source.reads || tx->stage == TX_REFUSED || tx->size < PLACE_MIN || (tx->kind != K_WRITE && tx->kind != K_READ))
		return NULL;
	for (unsigned i = 0; i < ep->way.count; i++) {
		const struct grant *g = &ep->way.grants[i];
		uint64_t off = tx->addr - g->base;
		if (g->key == tx->key && (g->rights & right) && tx->addr >= g->base && off <= g->size && tx->size <= g->size - off)
			return g;
	}
	return NULL;
}

// mine lists where the next n bytes of an operation are in this program.
static unsigned mine(const struct tx *tx, size_t n, struct iovec *iov)
{
	unsigned count = 0;
	size_t off = tx->iov_off;
	for (unsigned i = tx->iov_at; n > 0; i++, off = 0) {
		size_t part = tx->iov[i].iov_len - off < n ? tx->iov[i].iov_len - off : n;
		if (part > 0)
			iov[count++] = (struct iovec){(uint8_t *)tx->iov[i].iov_base + off, part};
		n -= part;
	}
	return count;
}

static struct iovec there(uint64_t at, size_t n) { return (struct iovec){(void *)(uintptr_t)at, n}; }

static bool put(struct ep *ep, const struct tx *tx, uint64_t to, size_t n)
{
	uint64_t word = 1;
	struct iovec from[IOVS + 1] = {{&word, sizeof(word)}}, into[2] = {there(ep->way.gate + sizeof(word), sizeof(word)), there(to, n)};
	unsigned count = 1 + mine(tx, n, from + 1);
	__atomic_store_n(&ep->writes, 1, __ATOMIC_SEQ_CST); // before the call
	ssize_t put = process_vm_writev(ep->source.pid, from, count, into, 2, 0);
	__atomic_store_n(&ep->writes, 0, __ATOMIC_SEQ_CST);
	return put == (ssize_t)(n + sizeof(word));
}

static bool get(const struct ep *ep, const struct tx *tx, uint64_t from, size_t n)
{
	uint64_t before = 0, after = 0;
	struct iovec word = there(ep->way.gate, sizeof(before));
	struct iovec theirs[3] = {word, there(from, n), word}, into[IOVS + 2] = {{&before, sizeof(before)}};
	unsigned count = 1 + mine(tx, n, into + 1);
	into[count++] = (struct iovec){&after, sizeof(after)};
	ssize_t got = process_vm_readv(ep->source.pid, into, count, theirs, 3, 0);
	return got == (ssize_t)(n + 2 * sizeof(before)) && before == ep->source.word && after == ep->source.word;
}

static bool answers_come(const struct ep *ep) { return !list_empty(&ep->waiting) || ep->in.read != NULL; }

bool place_waits(const struct ep *ep, const struct tx *tx)
{
	const struct tx *last = of(ep->waiting.prev, struct tx, link);
	return granted(ep, tx) != NULL && answers_come(ep) &&
	       (ep->acked == ep->sent || (!list_empty(&ep->waiting) && last->seq == ep->sent));
}

bool place(struct ep *ep, struct tx *tx)
{
	const struct grant *g = granted(ep, tx);
	if (g != NULL && tx->stage == TX_QUEUED) {
		if (answers_come(ep) || ep->acked != ep->sent)
			return true;
		tx_step(&tx->stage, TX_GRANT);
	}
	size_t n = tx->size - tx->sent < PLACE_MAX ? tx->size - tx->sent : PLACE_MAX;
	uint64_t at = g != NULL ? g->at + (tx->addr - g->base) + tx->sent : 0;
	if (g != NULL && (tx->kind == K_WRITE ? put(ep, tx, at, n) : get(ep, tx, at, n))) {
		tx_skip(tx, n);
		if (tx->sent < tx->size) {
			ep->waits = OUT_SELF;
			return false;
		}
		return tx_step(&tx->stage, tx->has_data || (tx->kind == K_WRITE && (g->rights & GRANT_TELL)) ? TX_TELLS : TX_COPIED);
	}
	if (tx_step(&tx->stage, TX_REFUSE)) { // the target says why
		ep->way.count = 0;
		tx->sent = tx->iov_off = 0;
		tx->iov_at = 0;
	}
	return true;
}

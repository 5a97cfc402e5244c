/* The inbound direction of a segment (SPEC 2.3, 5.3 to 5.5). */
#include "segment/segment_inner.h"

#include <string.h>

/* Makes p the position, by one store for observers. The caller is the only receiver. */
static inline void commit(struct ds_seg *g, struct ds_rx *r, const struct ds_pos *p)
{
	uint32_t next = !(r->cur & 1);

	SET(&r->pos[next].count, p->count);
	r->pos[next].freed = p->freed;
	r->pos[next].off = p->off;
	RELEASE(&r->cur, next);
	SET(&g->own->taken, p->count);
}

/* Stores that everything up to p is given back. */
static void given(struct ds_seg *g, struct ds_rx *r, const struct ds_pos *p)
{
	r->consumed = p->count;
	r->freed = p->freed;
	RELEASE(&g->own->freed, p->freed);
	RELEASE(&g->own->consumed, p->count);
}

/* Gives everything up to p back to the sender, unless it has it already. */
static void give_back(struct ds_seg *g, struct ds_rx *r, struct ds_attention *a, const struct ds_pos *p)
{
	if (p->count == r->consumed && p->freed == r->freed)
		return;
	if (p->freed != r->freed)
		ds_count(g, DS_C_TX_AVAIL, 1);
	given(g, r, p);
	ds_ring(g, a, DS_ARM_TX);
}

/* As scatter. */
static __attribute__((noinline)) void scatter_all(struct ds_cursor *c, const volatile uint8_t *from, size_t n, bool discard)
{
	size_t done = 0;

	c->left -= n;
	while (done < n) {
		size_t k = c->v->iov_len - c->off;

		if (k > n - done)
			k = n - done;
		if (k && !discard)
			ds_copy_in((uint8_t *)c->v->iov_base + c->off, from + done, k);
		done += k;
		c->off += k;
		if (c->off == c->v->iov_len && (done < n || c->left)) {
			c->v++;
			c->n--;
			c->off = 0;
		}
	}
}

/* Copies n bytes into c, which has room for them; discard: skips them. */
static inline void scatter(struct ds_cursor *c, const volatile uint8_t *from, size_t n, bool discard)
{
	if (__builtin_expect(discard || n >= c->v->iov_len - c->off, 0)) {
		scatter_all(c, from, n, discard);
		return;
	}
	ds_copy_in((uint8_t *)c->v->iov_base + c->off, from, n);
	c->left -= n;
	c->off += n;
}

/* A message of the inbound queue, read once and checked. */
struct message {
	unsigned tag;
	const volatile uint8_t *data;
	uint64_t len, advance;
};

/* Reads what PROMOTE says: how many bytes the shadow has had. False: it cannot be. */
static inline bool promote_of(struct ds_seg *g, const struct ds_rx *r, uint64_t *carried)
{
	*carried = GET64(rx_slot(g, r->start), 0);
	return *carried <= INT64_MAX; /* with the bytes of a queue it does not wrap */
}

/* As look, for a message without data of its own. */
static __attribute__((noinline)) int look_other(struct ds_seg *g, const struct ds_rx *r, const struct ds_pos *p, struct message *m, unsigned len)
{
	const volatile struct ds_slot *s = rx_slot(g, p->count);

	switch (m->tag) {
	case DS_INFO: {
		uint32_t mode = GET32(s, 0) & 0xff, n = GET32(s, 4);
		uint64_t at = GET64(s, 8), advance = GET64(s, 16);

		if (len != DS_RMA_INFO || mode != 1 || n < 1 || n > DS_MAX_RMA || n > g->ring || at > g->ring - n ||
		    advance < n || advance > g->ring || p->off >= n)
			return DS_BREACH;
		m->data = g->rxring + at;
		m->len = n;
		m->advance = advance;
		return 1;
	}
	case DS_SHUTDOWN:
	case DS_DEMOTE:
	case DS_PAUSE:
		return len == 0 ? 1 : DS_BREACH;
	case DS_PROMOTE:
		return len == 8 && p->count == r->start ? 1 : DS_BREACH;
	}
	return DS_BREACH;
}

/* Does a message with that tag say that the direction goes on on the shadow? */
static inline bool leads_back(unsigned tag) { return tag == DS_DEMOTE || tag == DS_PAUSE; }

/* 1: here is message p->count; DS_AGAIN; DS_BREACH. */
static inline int look(struct ds_seg *g, const struct ds_rx *r, const struct ds_pos *p, struct message *m)
{
	const volatile struct ds_slot *s = rx_slot(g, p->count);
	uint64_t status = ACQUIRE(&s->status);
	unsigned len = status >> 40 & 0xff;

	if ((uint32_t)status != lap(g, p->count))
		return DS_AGAIN;
	*m = (struct message){.tag = status >> 32 & 0xff, .data = s->payload, .len = len, .advance = 0}; /* as in ds_cursor */
	if (__builtin_expect(m->tag != DS_VELO && m->tag != DS_VELO_LAST, 0))
		return look_other(g, r, p, m, len);
	return len >= 1 && len <= DS_VELO_MAX && p->off < len ? 1 : DS_BREACH;
}

int ds_rx_promoted(struct ds_seg *g, struct ds_rx *r, uint64_t *carried)
{
	struct ds_pos p = r->pos[r->cur & 1];
	struct message m;

	if (p.count != r->start)
		return DS_BREACH;
	int got = look(g, r, &p, &m);
	if (got == DS_AGAIN)
		return 0;
	if (got != 1 || m.tag != DS_PROMOTE)
		return DS_BREACH;
	if (!promote_of(g, r, carried))
		return DS_BREACH;
	p.count++;
	commit(g, r, &p);
	return 1;
}

ssize_t ds_rx_recv(struct ds_seg *g, struct ds_rx *r, struct ds_attention *a, struct ds_cursor *c, bool peek, bool discard)
{
	struct ds_pos p = r->pos[r->cur & 1];
	struct message m;
	size_t got = 0;
	int why = DS_AGAIN;

	while (c->left) {
		why = look(g, r, &p, &m);
		if (why != 1)
			break;
		if (m.tag >= DS_SHUTDOWN) {
			why = m.tag == DS_SHUTDOWN ? DS_END : leads_back(m.tag) ? DS_DEMOTED : DS_BREACH;
			break;
		}
		size_t n = m.len - p.off < c->left ? m.len - p.off : c->left;
		if (!discard && !reachable(c, n, true)) { /* as in the kernel: all of a message that there is room for, or nothing */
			why = DS_FAULT;
			break;
		}
		scatter(c, m.data + p.off, n, discard);
		got += n;
		if (n < m.len - p.off) {
			p.off += (uint32_t)n;
			break;
		}
		p.off = 0;
		p.count++;
		p.freed += m.advance;
		if (!peek) {
			ds_count(g, m.tag - DS_VELO + DS_C_RX_VELO, 1);
			if (m.advance) { /* the sender fills it while the next one is copied */
				commit(g, r, &p);
				give_back(g, r, a, &p);
			}
		}
	}
	r->next = why;
	if (!got) {
		if (why == DS_AGAIN && !peek)
			give_back(g, r, a, &p);
		return why;
	}
	if (!peek) {
		commit(g, r, &p);
		ds_count(g, DS_C_RECEIVED, got);
		if (p.count - r->consumed >= g->slots / 4 || (GET(&g->peer->attention) & DS_ARM_TX))
			give_back(g, r, a, &p);
	}
	return why == DS_BREACH ? DS_BREACH : (ssize_t)got;
}

int ds_rx_look(struct ds_seg *g, struct ds_rx *r)
{
	struct ds_pos p = r->pos[ACQUIRE(&r->cur) & 1];
	struct message m;
	int got = look(g, r, &p, &m);

	if (got != 1 || m.tag <= DS_INFO)
		return got;
	return m.tag == DS_SHUTDOWN ? DS_END : m.tag == DS_DEMOTE ? DS_DEMOTED : m.tag == DS_PAUSE ? DS_PAUSED : m.tag == DS_PROMOTE ? DS_AGAIN : DS_BREACH;
}

int ds_rx_vectors(struct ds_seg *g, struct ds_rx *r, struct iovec *v, int max, size_t limit)
{
	struct ds_pos p = r->pos[r->cur & 1];
	struct message m;
	int k = 0;

	while (k < max && limit && look(g, r, &p, &m) == 1 && m.tag <= DS_INFO) {
		size_t n = m.len - p.off < limit ? m.len - p.off : limit;
		v[k++] = (struct iovec){(void *)(uintptr_t)(m.data + p.off), n};
		limit -= n;
		p.off = 0;
		p.count++;
	}
	return k;
}

uint64_t ds_rx_readable(struct ds_seg *g, struct ds_rx *r)
{
	struct ds_pos p = r->pos[r->cur & 1];
	struct message m = {0};
	uint64_t sum = 0;

	for (uint32_t i = 0; i < g->slots && look(g, r, &p, &m) == 1 && m.tag <= DS_INFO; i++) {
		sum += m.len - p.off;
		p.off = 0;
		p.count++;
	}
	return sum;
}

/* The message in the queue by which the direction ends, or goes on on the shadow: its tag, or 0. */
static unsigned end_of(struct ds_seg *g, const struct ds_rx *r, struct ds_pos p)
{
	struct message m;

	for (uint32_t i = 0; i < g->slots && look(g, r, &p, &m) == 1; i++, p.count++, p.off = 0)
		if (m.tag == DS_SHUTDOWN || leads_back(m.tag))
			return m.tag;
	return 0;
}

bool ds_rx_bare(const struct ds_rx *r) { return r->pos[r->cur & 1].count == r->start + 1; }

bool ds_rx_over(struct ds_seg *g, struct ds_rx *r) { return end_of(g, r, r->pos[r->cur & 1]); }

int ds_seg_fall_back(struct ds_seg *g, struct ds_rx *r, struct ds_attention *a)
{
	struct ds_pos p = r->pos[r->cur & 1];
	unsigned end = end_of(g, r, p);

	/* After a PAUSE the peer would promote again, if nothing told it not to. */
	if ((end && end != DS_PAUSE) || (GET(&g->peer->attention) & (DS_CLOSED | DS_RESET)))
		return DS_AGAIN;
	give_back(g, r, a, &p);
	SET(&g->own->fallback_slot, p.count);
	SET(&g->own->fallback_off, p.off);
	ds_attend(g, a, DS_FALLEN_BACK, 0);
	ds_fence(g);
	return !end_of(g, r, p);
}

int ds_rx_left(struct ds_seg *g, struct ds_rx *r, uint64_t *carried, uint64_t *n)
{
	struct ds_pos p = r->pos[r->cur & 1];
	struct message m;
	bool promoted = p.count > r->start;

	r->left = p;
	*n = 0;
	for (uint32_t i = 0; i < g->slots; i++, p.count++, p.off = 0) {
		int got = look(g, r, &p, &m);

		if (got == DS_BREACH)
			return DS_BREACH;
		if (got != 1 || m.tag == DS_SHUTDOWN || leads_back(m.tag))
			break;
		if (m.tag == DS_PROMOTE) {
			if (!promote_of(g, r, carried))
				return DS_BREACH;
			promoted = true;
		} else if (!promoted) {
			return DS_BREACH;
		} else {
			*n += m.len - p.off;
		}
	}
	return promoted;
}

int ds_rx_forward(struct ds_seg *g, struct ds_rx *r, uint64_t n)
{
	struct ds_pos p = r->left;
	struct message m;

	for (uint32_t i = 0; i < g->slots && look(g, r, &p, &m) == 1 && (m.tag <= DS_INFO || m.tag == DS_PROMOTE); i++) {
		uint64_t len = m.tag == DS_PROMOTE ? 0 : m.len - p.off;

		if (m.tag != DS_PROMOTE && n < len) {
			p.off += (uint32_t)n;
			n = 0;
			break;
		}
		n -= len;
		p.off = 0;
		p.count++;
		p.freed += m.advance;
	}
	commit(g, r, &p);
	return n ? DS_BREACH : 0;
}

bool ds_rx_there(struct ds_seg *g, struct ds_rx *r)
{
	uint64_t count = GET(&r->pos[ACQUIRE(&r->cur) & 1].count);

	return (uint32_t)GET(&rx_slot(g, count)->status) == lap(g, count);
}

bool ds_rx_bytes(struct ds_seg *g, struct ds_rx *r)
{
	uint64_t count = GET(&r->pos[ACQUIRE(&r->cur) & 1].count), status = GET(&rx_slot(g, count)->status);

	return (uint32_t)status == lap(g, count) && (status >> 32 & 0xff) <= DS_INFO;
}

bool ds_rx_hint(struct ds_seg *g, struct ds_rx *r)
{
	uint64_t count = GET(&r->pos[ACQUIRE(&r->cur) & 1].count);

	/* The rest of the message comes together with its status, on which the caller waits. */
	__builtin_prefetch((const void *)(uintptr_t)&rx_slot(g, count)->payload[56]);
	return ds_rx_there(g, r) || (GET(&g->peer->attention) & (DS_CLOSED | DS_RESET));
}

/* The tag of the message with that number. The caller receives alone. */
static inline unsigned tag_of(struct ds_seg *g, uint64_t count) { return GET(&rx_slot(g, count)->status) >> 32 & 0xff; }

/* Moves *seen past the messages that have arrived. count: messages consumed. */
static void arrivals(struct ds_seg *g, uint64_t count, uint64_t *seen)
{
	if (*seen < count)
		*seen = count;
	while (*seen - count < g->slots && (uint32_t)ACQUIRE(&rx_slot(g, *seen)->status) == lap(g, *seen))
		++*seen;
}

uint64_t ds_rx_arrived(struct ds_seg *g, struct ds_rx *r, uint64_t *seen)
{
	arrivals(g, GET(&r->pos[ACQUIRE(&r->cur) & 1].count), seen);
	/* PROMOTE is the first, and what brings no data the last. */
	unsigned last = *seen > r->start + 1 ? tag_of(g, *seen - 1) : 0;
	uint64_t n = *seen - GET(&r->bare) - (*seen > r->start) - (leads_back(last) || last == DS_SHUTDOWN);

	return n & ((1ull << 56) - 1);
}

void ds_rx_leaves(struct ds_seg *g, struct ds_rx *r)
{
	uint64_t seen = 0, left = GET(&g->own->left);

	arrivals(g, GET(&r->pos[ACQUIRE(&r->cur) & 1].count), &seen);
	/* Of several that end, the one that has found most counts. */
	while (left < seen && !__atomic_compare_exchange_n(&g->own->left, &left, seen, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

uint64_t ds_rx_stamp(struct ds_seg *g, struct ds_rx *r, uint64_t told)
{
	uint64_t count = GET(&r->pos[ACQUIRE(&r->cur) & 1].count);

	uint64_t first = told + GET(&r->bare) + 1 > count ? told + GET(&r->bare) + 1 : count;
	const volatile struct ds_slot *s = rx_slot(g, first);
	unsigned len = GET(&s->status) >> 40 & 0xff;

	return len <= DS_STAMPED ? GET64(s, stamp_at(len)) : GET(&g->rxstamps[first % DS_STAMP_RING]);
}

bool ds_rx_ends(struct ds_seg *g, struct ds_rx *r, uint64_t *seen)
{
	uint64_t count = GET(&r->pos[ACQUIRE(&r->cur) & 1].count);

	arrivals(g, count, seen);
	return *seen > count && tag_of(g, *seen - 1) == DS_SHUTDOWN;
}

void ds_rx_finish(struct ds_seg *g, struct ds_rx *r, struct ds_attention *a, bool pause)
{
	struct ds_pos p = r->pos[r->cur & 1];

	p.count++;
	p.off = 0;
	if (pause) {
		SET(&r->start, p.count);
		SET(&r->bare, r->bare + 2); /* with the PROMOTE before it */
	}
	commit(g, r, &p);
	give_back(g, r, a, &p);
}

/* As ds_rx_recover, on the shadow. */
static void recover_shadow(struct ds_seg *g, struct ds_rx *r, struct ds_attention *a)
{
	struct ds_pos p = r->pos[r->cur & 1];

	if (p.count == r->start)
		return;
	if (ds_rx_look(g, r) == DS_PAUSED) {
		ds_rx_finish(g, r, a, true);
	} else if (p.count == r->start + 1) {
		p.count--;
		commit(g, r, &p);
	}
}

void ds_rx_recover(struct ds_seg *g, struct ds_rx *r, struct ds_attention *a, bool shadow)
{
	if (shadow)
		recover_shadow(g, r, a);
	struct ds_pos p = r->pos[r->cur & 1];
	commit(g, r, &p);
	given(g, r, &p);
	ds_attend_again(g, a);
}

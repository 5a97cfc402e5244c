/* The receiving side of a flow (SPEC 10.3). */
#include "segment/dgram.h"
#include "segment/segment_inner.h"

/* The status word of the record that is next, read once. */
static uint32_t status(const struct ds_dgseg *g)
{
	return ACQUIRE((const volatile uint32_t *)(const volatile void *)(g->ring + (g->at & (g->bytes - 1))));
}

/* What a record of this status takes of the ring. */
static inline uint64_t record(uint32_t s)
{
	return (DS_DG_HEAD + (s & DS_DG_AFTER ? DS_DG_AFTER_LEN : 0) + (s & 0x1ffff) + DS_DG_UNIT - 1) & ~(uint64_t)(DS_DG_UNIT - 1);
}

/* How many by the kernel are missing before the record that says AFTER so may be taken. */
static int32_t missing(const struct ds_dgseg *g, uint64_t says)
{
	return (int32_t)((uint32_t)says - (uint32_t)(says >> 32) - (uint32_t)(g->taken + g->lost));
}

enum { NONE, EARLY, DUE };

/* What is next; *says: of AFTER. */
static int look(const struct ds_dgseg *g, uint64_t *says)
{
	uint64_t off = g->at & (g->bytes - 1);
	uint32_t s = g->broken || g->at >= g->stop ? 0 : status(g);

	if (__builtin_expect(s >> 24 == DS_DG_WRAP, 0)) {
		off = 0;
		s = ACQUIRE((const volatile uint32_t *)(const volatile void *)g->ring);
	}
	if (__builtin_expect(!(s & DS_DG_AFTER), 1))
		return s ? DUE : NONE;
	*says = GET((const volatile uint64_t *)(const volatile void *)(g->ring + off + DS_DG_HEAD));
	return missing(g, *says) > 0 ? EARLY : DUE;
}

bool ds_dg_there(const struct ds_dgseg *g)
{
	uint64_t says;

	return look(g, &says) == DUE;
}

bool ds_dg_early(const struct ds_dgseg *g)
{
	uint64_t says;

	return look(g, &says) == EARLY;
}

uint32_t ds_dg_missing(const struct ds_dgseg *g)
{
	uint64_t says;

	return look(g, &says) == EARLY ? (uint32_t)missing(g, says) : 0;
}

uint32_t ds_dg_give_up(struct ds_dgseg *g)
{
	uint64_t says;

	if (look(g, &says) != EARLY)
		return 0;
	g->base = says >> 32;
	uint32_t n = (uint32_t)missing(g, says);
	g->lost += n;
	g->given_up++;
	return n;
}

void ds_dg_count(struct ds_dgseg *g)
{
	g->taken++;
	RELEASE(&g->in->taken, g->taken);
}

void ds_dg_was_dry(struct ds_dgseg *g, uint64_t by_kernel)
{
	int32_t most = (int32_t)((uint32_t)by_kernel - (uint32_t)g->base - (uint32_t)g->taken);

	if (g->lost && (int64_t)g->lost > most)
		g->lost = most > 0 ? (uint32_t)most : 0;
	RELEASE(&g->in->dry, by_kernel);
}

/* Gives back what is consumed. */
static void give(struct ds_dgseg *g)
{
	if (g->known >= g->at) /* a flow that is closed has given back what it still takes */
		return;
	g->known = g->at;
	RELEASE(&g->in->consumed, g->at);
}

/* Is done with n bytes. Gives back what was consumed when that is much, or nothing else is there:
 * so the line of consumed does not go to and fro with each datagram of a sender that waits for
 * room. */
static void consume(struct ds_dgseg *g, uint64_t n)
{
	uint64_t before = g->at;

	g->at += n;
	if ((before ^ g->at) & g->bytes) {
		g->lap[1] = g->lap[0];
		g->lap[0] = ds_ticks();
	}
	if (g->at - g->known >= g->lag || !status(g))
		give(g);
}

void ds_dg_bound(struct ds_dgseg *g, uint32_t bound)
{
	g->lag = bound ? 0 : DS_DG_LAG;
	__atomic_store_n(&g->in->bound, bound, __ATOMIC_RELAXED);
}

void ds_dg_take_after(struct ds_dgseg *g, bool takes)
{
	if (g->stop == UINT64_MAX) /* else its flags say CLOSED */
		__atomic_store_n(&g->in->flags, takes ? DS_DG_TAKES_AFTER : 0, __ATOMIC_SEQ_CST);
}

void ds_dg_copy(void *to, const volatile uint8_t *from, size_t n) { ds_copy_in(to, from, n); }

bool ds_dg_next(struct ds_dgseg *g, struct ds_dg_meta *m, const volatile uint8_t **bytes)
{
	uint8_t h[DS_DG_HEAD];

	*m = (struct ds_dg_meta){0};
	for (int wraps = 0; !g->broken; wraps++) {
		uint64_t off = g->at & (g->bytes - 1);
		uint32_t s = status(g), tag = s >> 24, len = s & 0x1ffff, head = DS_DG_HEAD + (s & DS_DG_AFTER ? DS_DG_AFTER_LEN : 0);

		if (s == 0 || g->at >= g->stop)
			return false;
		if (s == (uint32_t)DS_DG_WRAP << 24 && off && !wraps) {
			consume(g, g->bytes - off);
			continue;
		}
		if ((tag != DS_DG_DATAGRAM && (tag != DS_DG_TRAIN || !g->takes_trains)) || len > DS_DG_MAX || s & (0xfe0000 & ~DS_DG_AFTER) || off + record(s) > g->bytes)
			break;
		ds_copy_in(h, g->ring + off, sizeof h);
		*m = (struct ds_dg_meta){.len = len, .tos = h[6], .ttl = h[7], .takes = (uint32_t)record(s)};
		memcpy(&m->train, h + 4, 2);
		memcpy(&m->stamp, h + 8, 8);
		if (tag == DS_DG_DATAGRAM)
			m->train = 0;
		else if (!m->train || m->train > len)
			break;
		*bytes = g->ring + off + head;
		return true;
	}
	g->broken = true;
	return false;
}

void ds_dg_take(struct ds_dgseg *g, const struct ds_dg_meta *m) { consume(g, m->takes); }

/* What the records after g->seen look like is the sender's claim: it changes no more than when a
 * program is told that there is something. */
uint64_t ds_dg_arrived(struct ds_dgseg *g)
{
	if (g->seen < g->at)
		g->seen = g->at;
	for (uint64_t end = g->at + g->bytes; g->seen < end;) {
		uint64_t off = g->seen & (g->bytes - 1), n;
		uint32_t s = ACQUIRE((const volatile uint32_t *)(const volatile void *)(g->ring + off));

		if (s == 0)
			break;
		n = s >> 24 == DS_DG_WRAP ? g->bytes - off : record(s);
		if (off + n > g->bytes)
			break;
		g->seen += n;
	}
	return g->seen;
}

void ds_dg_close(struct ds_dgseg *g)
{
	/* In this order: a sender that finds no CLOSED after it has published has published before
	 * the look at what has arrived; one that does waits for what that look has found. */
	__atomic_store_n(&g->in->flags, DS_DG_CLOSED, __ATOMIC_SEQ_CST);
	g->stop = ds_dg_arrived(g);
	g->known = g->stop;
	RELEASE(&g->in->consumed, g->stop);
	RELEASE(&g->in->flags, DS_DG_CLOSED | DS_DG_FINAL);
}

uint64_t ds_dg_stamp(const struct ds_dgseg *g)
{
	uint64_t off = g->at & (g->bytes - 1);

	/* What is here now was written after the receiver had been here one lap before, and so
	 * after that lap began. */
	uint64_t t = GET((const volatile uint64_t *)(const volatile void *)(g->ring + off + 8));

	return (int64_t)(t - g->lap[1]) < 0 ? g->lap[1] : t;
}

void ds_dg_arm(struct ds_dgseg *g, uint32_t how)
{
	if (how)
		give(g);
	__atomic_store_n(&g->in->armed, how, __ATOMIC_SEQ_CST);
}

/* What this side has stored. */
bool ds_dg_rung(const struct ds_dgseg *g) { return GET(&g->in->armed) == DS_DG_BELL; }

bool ds_dg_busy(const struct ds_dgseg *g) { return ACQUIRE(&g->from->busy) != 0; }
bool ds_dg_left(const struct ds_dgseg *g) { return ACQUIRE(&g->from->flags) & DS_DG_LEFT; }
uint64_t ds_dg_by_kernel(const struct ds_dgseg *g) { return ACQUIRE(&g->from->by_kernel); }

/* The sending side of a flow (SPEC 10.3). */
#include "segment/dgram.h"
#include "segment/segment_inner.h"

#include <errno.h>
#include <sys/syscall.h>
#include <time.h>

enum {
	LOOKS = 100, /* at a receiver that may lose its processor while it closes, */
	LOOK_NS = 100000,
};

/* The status word at offset off of the ring. */
static uint32_t *status_at(struct ds_dgseg *g, uint64_t off) { return (uint32_t *)(void *)(g->ring + (off & (g->bytes - 1))); }

/* What a record of this status takes of the ring. */
static inline uint64_t record(uint32_t s)
{
	return (DS_DG_HEAD + (s & DS_DG_AFTER ? DS_DG_AFTER_LEN : 0) + (s & 0x1ffff) + DS_DG_UNIT - 1) & ~(uint64_t)(DS_DG_UNIT - 1);
}

/* Reads how much the receiver has consumed. False: it says what cannot be. */
static bool consumed(struct ds_dgseg *g)
{
	uint64_t c = ACQUIRE(&g->to->consumed);

	if (c < g->known || c > g->at || c % DS_DG_UNIT)
		return false;
	if (c != g->known)
		g->moved = ds_ticks();
	g->known = c;
	return true;
}

uint64_t ds_dg_queued(struct ds_dgseg *g)
{
	if (!consumed(g))
		g->broken = true;
	return g->at - g->known;
}

/* What a record of this status costs of the bound. */
static uint64_t cost_of(uint32_t status)
{
	return status >> 24 == DS_DG_WRAP ? 0 : ((status & 0x1ffff) + DS_DG_OVERHEAD) & ~(uint64_t)(DS_DG_UNIT - 1);
}

/* Takes what was consumed off the cost. The receiver may have written to the ring: then nothing is
 * under way. */
static void pay(struct ds_dgseg *g)
{
	while (g->paid < g->known) {
		uint64_t off = g->paid & (g->bytes - 1);
		uint32_t s = GET((const volatile uint32_t *)status_at(g, off));
		uint64_t cost = cost_of(s);

		if (cost > g->cost || s == 0) {
			g->cost = 0;
			g->paid = g->known;
			return;
		}
		g->cost -= cost;
		g->paid += s >> 24 == DS_DG_WRAP ? g->bytes - off : record(s);
	}
}

/* Is there room for l bytes of the ring, which cost so much? */
static bool room(struct ds_dgseg *g, uint64_t l, uint64_t cost)
{
	uint64_t bound = GET(&g->to->bound);

	for (int fresh = 0;; fresh++) {
		if (bound)
			pay(g);
		else
			g->cost = 0;
		if (g->at - g->known + l + DS_DG_UNIT <= g->bytes && (!bound || !g->cost || g->cost + cost <= bound))
			return true;
		if (fresh)
			return false;
		if (!consumed(g)) {
			g->broken = true;
			return false;
		}
	}
}

/* Publishes the record of n bytes that lies wrap bytes further on, and is written but for its
 * status, or is one line. The WRAP before it comes last: a receiver that sees it sees what it leads
 * to. */
static void publish(struct ds_dgseg *g, uint32_t status, uint64_t wrap, uint64_t n, const uint8_t *line)
{
	uint64_t at = g->at + wrap;
	uint32_t *first = status_at(g, at);

	SET(status_at(g, at + n), 0);
	if (line) {
		__atomic_signal_fence(__ATOMIC_SEQ_CST); /* not before that one, which may have to come */
		memcpy(first + 1, line + sizeof *first, DS_DG_UNIT - sizeof *first);
	}
	RELEASE(first, status);
	if (wrap)
		RELEASE(status_at(g, g->at), (uint32_t)DS_DG_WRAP << 24);
	if (!g->cost)
		g->paid = at;
	if (GET(&g->to->bound))
		g->cost += cost_of(status);
	g->at = at + n;
}

/* How far to skip to the beginning of the ring before a record of l bytes. */
static uint64_t skip(struct ds_dgseg *g, uint64_t l)
{
	uint64_t off = g->at & (g->bytes - 1);

	if (off + l > g->bytes)
		return g->bytes - off;
	/* If nothing is under way, a quiet flow stays in few pages. */
	if (off < DS_DG_NEAR || l + DS_DG_UNIT > off || g->at - g->looked < DS_DG_NEAR)
		return 0;
	g->looked = g->at;
	return consumed(g) && g->known == g->at ? g->bytes - off : 0;
}

/* Has the receiver closed the flow while this side published, and not taken the last record? It
 * closes one that is busy for long, as a sender is that loses its processor. */
static bool missed(struct ds_dgseg *g)
{
	if (__builtin_expect(!(ACQUIRE(&g->to->flags) & DS_DG_CLOSED), 1))
		return false;
	int saved = errno;
	for (int i = 0; i < LOOKS && !(ACQUIRE(&g->to->flags) & DS_DG_FINAL); i++)
		ds_syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = LOOK_NS}, NULL);
	errno = saved;
	return !consumed(g) || g->known != g->at;
}

enum { AHEAD = 1024, SHORT = 256 };

/* Has the lines come that records after the one at at, of l bytes, will be written to: the fence
 * of each record would wait for them. */
static void fetch(const struct ds_dgseg *g, uint64_t at, uint64_t l)
{
	for (uint64_t i = 0; i < l && l <= SHORT; i += DS_DG_UNIT) {
		const uint8_t *p = g->ring + ((at + AHEAD + i) & (g->bytes - 1));
#if defined(__x86_64__)
		__asm__ volatile("prefetchw %0" : : "m"(*p)); /* the builtin reads it */
#else
		__builtin_prefetch(p, 1);
#endif
	}
}

bool ds_dg_unsettled_too(const struct ds_dgseg *g)
{
	return ACQUIRE(&g->to->flags) & DS_DG_TAKES_AFTER && GET(&g->to->armed) != DS_DG_ALL;
}

/* Is a receiver that is armed for a bell to have it now? Nothing of this sender is on its way by
 * the kernel, and the ring holds nothing that the receiver may not take yet: it would take the bell
 * for what that waits for. */
static bool rings(struct ds_dgseg *g, const struct ds_dg_meta *m)
{
	uint64_t taken = ACQUIRE(&g->to->taken), before = g->known;

	if (taken + m->lost < m->kernel && ACQUIRE(&g->to->dry) != m->kernel && !m->there)
		return false;
	if (!consumed(g)) {
		g->broken = true;
		return true;
	}
	return g->known == g->at || (int64_t)(taken + g->base - g->told) >= 0 || (m->stale && g->known == before);
}

/* Is the next datagram the kernel's? */
static inline bool by_kernel(struct ds_dgseg *g, const struct ds_dg_meta *m, bool after)
{
	uint32_t armed = ACQUIRE(&g->to->armed);

	return __builtin_expect(armed != DS_DG_AWAKE, 0) && (!after || armed != DS_DG_BELL || rings(g, m));
}

int ds_dg_send(struct ds_dgseg *g, const struct ds_dg_meta *m, struct ds_cursor *c)
{
	bool fits, after = m->after && ACQUIRE(&g->to->flags) & DS_DG_TAKES_AFTER, says = after && g->told != m->kernel + m->under;
	uint32_t status = (uint32_t)(m->train ? DS_DG_TRAIN : DS_DG_DATAGRAM) << 24 | m->len | (says ? DS_DG_AFTER : 0);
	uint64_t l = record(status), wrap = skip(g, l);

	if (by_kernel(g, m, after))
		return g->broken ? DS_DG_OVER : DS_DG_ARMED;
	fits = room(g, l + wrap, cost_of(status));
	if (g->broken || ACQUIRE(&g->to->flags) & DS_DG_CLOSED)
		return DS_DG_OVER;
	if (!fits)
		return DS_DG_FULL;
	if (m->len && !reachable(c, m->len, false))
		return DS_DG_FAULT;
	/* The place is this side's until its status is stored. The receiver looks at its first
	 * line meanwhile, and takes it away from this CPU: what fits in there is written at once,
	 * last. */
	uint8_t line[DS_DG_UNIT], *p = g->ring + ((g->at + wrap) & (g->bytes - 1)), *to = l == DS_DG_UNIT ? line : p;
	memcpy(to + 4, &m->train, 2);
	to[6] = m->tos;
	to[7] = m->ttl;
	memcpy(to + 8, &m->stamp, 8);
	struct ds_cursor before = *c;
	fetch(g, g->at + wrap, l);
	if (says) {
		uint64_t word = (uint32_t)(m->kernel + m->under) | g->base << 32;
		memcpy(to + DS_DG_HEAD, &word, sizeof word);
	}
	if (m->len)
		ds_gather(c, to + DS_DG_HEAD + (says ? DS_DG_AFTER_LEN : 0), m->len);
	__atomic_exchange_n(&g->out->busy, 1, __ATOMIC_SEQ_CST);
	bool armed = by_kernel(g, m, after);
	bool closed = ACQUIRE(&g->to->flags) & DS_DG_CLOSED;
	if (!armed && !closed) {
		publish(g, status, wrap, l, to == line ? line : NULL);
		g->told = says ? m->kernel + m->under : g->told;
	}
	RELEASE(&g->out->busy, 0);
	if (!armed && !closed)
		closed = missed(g);
	if (armed || closed)
		*c = before;
	return closed ? DS_DG_OVER : armed ? DS_DG_ARMED : DS_DG_SENT;
}

void ds_dg_drop(struct ds_dgseg *g) { RELEASE(&g->out->dropped, g->out->dropped + 1); }

bool ds_dg_settled(const struct ds_dgseg *g, uint64_t n, uint64_t lost) { return ACQUIRE(&g->to->taken) + lost >= n; }

bool ds_dg_dry(const struct ds_dgseg *g, uint64_t n, uint64_t *taken)
{
	bool dry = ACQUIRE(&g->to->dry) == n;

	*taken = ACQUIRE(&g->to->taken);
	return dry;
}

uint32_t ds_dg_state(const struct ds_dgseg *g) { return ACQUIRE(&g->to->state); }
bool ds_dg_closed(const struct ds_dgseg *g) { return g->broken || ACQUIRE(&g->to->flags) & DS_DG_CLOSED; }
bool ds_dg_armed(const struct ds_dgseg *g) { return GET(&g->to->armed) != 0; }

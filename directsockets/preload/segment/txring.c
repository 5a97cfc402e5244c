#include "segment/txring.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif
#include <sched.h>

enum {
	FILL_LEAST = 16384, /* bytes of the least copy that is timed */
	SLOW_MOST = 8,	    /* slow copies in a row */
	PAST = 64 << 20,    /* bytes past the caches before copies go through them again */
	LONG = 8 << 20,	    /* bytes by which a stream has become one that gets the whole ring */
	REWIND = 16384,	    /* an empty ring starts over at 0 from here on (SPEC 4.2) */
};

/* The peer is on the caller's CPU. */
static bool together(const struct ds_seg *g) { return ds_seg_peer_cpu(g) == (uint32_t)sched_getcpu() + 1; }

/* Where the active part of the ring ends, or has too little room: makes more of it active. Up to
 * DS_NARROW that takes only memory (segment/cgroup.h). The whole ring is active under load, that is
 * if the peer is behind by half of the active part, or a stream has become long. If a node carries
 * the connection the whole ring is active from the beginning, as the node expects (SPEC 5.8). So a
 * connection that moves little touches little memory, and a stream between near CPUs finds the
 * ring's lines in the cache that they share. On one CPU the active part stays small, to fit that
 * CPU's cache. The caller is the only sender. */
bool ds_ring_widen(struct ds_seg *g, struct ds_tx *t)
{
	uint64_t span = ds_ring_span(g, t), next = span < DS_NARROW ? span * 4 : g->ring;

	if (span == g->ring || !ds_tx_refresh(g, t))
		return false;
	uint64_t used = t->put - t->freed;
	/* more than off: data at the end of the part would be left behind */
	if (used > t->off)
		return false;
	if (ds_seg_peer_relayed(g))
		t->span = g->ring;
	else if ((span < DS_NARROW || ((used >= DS_NARROW / 2 || t->put >= LONG) && !together(g))) && ds_memory_room(next - span))
		t->span = next < g->ring ? next : g->ring;
	return ds_ring_span(g, t) > span;
}

uint64_t ds_ring_place(struct ds_seg *g, struct ds_tx *t, uint64_t want, uint64_t *at, uint64_t *advance)
{
	uint64_t least = want < DS_CHUNK_LEAST ? want : DS_CHUNK_LEAST;

	if (t->span != g->ring && (ds_ring_span(g, t) - t->off < least || ds_seg_peer_relayed(g)))
		ds_ring_widen(g, t);
	uint64_t used = t->put - t->freed, window = ds_ring_window(g, t), room = used < window ? window - used : 0;
	uint64_t off = used == 0 && t->off >= REWIND ? 0 : t->off, skip = 0, end = ds_ring_span(g, t) - off;

	if (end < least) { /* too little before the end of the ring */
		skip = end;
		off = 0;
		if (room < skip)
			return 0;
		room -= skip;
		end = ds_ring_span(g, t);
	}
	if (room < least)
		return 0;
	if (want > room)
		want = room;
	if (want > end)
		want = end;
	*at = off;
	*advance = want + skip;
	return want;
}

#if defined(__SSE2__)
/* Copies past the caches. */
static void fill_past(struct ds_cursor *c, uint8_t *to, size_t n)
{
	const uint8_t *from = (const uint8_t *)c->v->iov_base + c->off;
	size_t i = 0;

	for (; i + 64 <= n; i += 16)
		_mm_stream_si128((__m128i *)(to + i), _mm_loadu_si128((const __m128i *)(from + i)));
	_mm_sfence(); /* before the status */
	c->off += i;
	c->left -= i;
	ds_gather(c, to + i, n - i);
}

/* Copies through the caches, and times that. */
static void fill_timed(struct ds_tx *t, struct ds_cursor *c, uint8_t *to, size_t n)
{
	uint64_t begun = ds_ticks();

	ds_gather(c, to, n);
	if ((ds_ticks() - begun) * 2 <= n) {
		t->slow /= 2;
	} else if (++t->slow >= SLOW_MOST) {
		t->way = RING_PAST;
		t->left = PAST;
	}
}
#endif

/* Past the caches, if copies through them are slow, since the peer's CPU is far: more than 0.5
 * ticks a byte (docs/results/performance.md). The first lap of the ring is not timed, as its pages
 * are new, nor is the first one after copies past the caches, as its lines are in none. */
void ds_ring_fill(struct ds_seg *g, struct ds_tx *t, struct ds_cursor *c, uint8_t *to, size_t n)
{
#if defined(__SSE2__)
	uint64_t span = ds_ring_span(g, t), lap = span < DS_NARROW ? DS_NARROW : span;

	if (n >= FILL_LEAST && c->v->iov_len - c->off >= n && t->put >= lap && !together(g)) {
		if (t->way == RING_THROUGH) {
			fill_timed(t, c, to, n);
			return;
		}
		bool past = t->way == RING_PAST && !((uintptr_t)to % 16);

		if (past)
			fill_past(c, to, n);
		else
			ds_gather(c, to, n);
		t->left -= (int64_t)n;
		if (t->left > 0)
			return;
		if (t->way == RING_PAST) {
			t->way = RING_AGAIN;
			t->left = (int64_t)lap;
		} else {
			t->way = RING_THROUGH;
			t->slow = SLOW_MOST - 1; /* one more slow copy, and they go past them again */
		}
		return;
	}
#else
	(void)g, (void)t; /* all copies go through the caches */
#endif
	ds_gather(c, to, n);
}

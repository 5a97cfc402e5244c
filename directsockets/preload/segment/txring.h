/* The ring of the outbound direction: which part of it is in use, where in it a copy lies, and
 * which way the copy goes there (SPEC 4.2). Whoever calls is the only sender. */
#ifndef DS_TXRING_H
#define DS_TXRING_H

#include "segment/segment_inner.h"

enum {
	DS_CHUNK = 32 << 10,   /* bytes of a PUT at most */
	DS_CHUNK_LEAST = 4096, /* no chunk is cut smaller than this by the end of the ring */
	DS_FIRST = 64 << 10,   /* bytes of the ring that are used at first, */
	DS_NARROW = 1 << 20,   /* and by any stream, if there is memory */
};

/* Reads the peer's consumed and freed again. False: a breach. */
static inline bool ds_tx_refresh(struct ds_seg *g, struct ds_tx *t)
{
	uint64_t consumed = ACQUIRE(&g->peer->consumed), freed = ACQUIRE(&g->peer->freed);

	if (t->count - consumed > g->slots || t->put - freed > g->ring)
		return false;
	SET(&t->consumed, consumed);
	SET(&t->freed, freed);
	return true;
}

/* How many bytes of the ring are in use, from its beginning. */
static inline uint64_t ds_ring_span(const struct ds_seg *g, const struct ds_tx *t)
{
	return t->span ? t->span : g->ring < DS_FIRST ? g->ring : DS_FIRST;
}

/* How many bytes may be under way. A node learns what the far program has consumed late, and not
 * before half of the ring is in use: whoever waits for room earlier waits for ever (SPEC 5.8). */
static inline uint64_t ds_ring_window(const struct ds_seg *g, const struct ds_tx *t)
{
	uint64_t window = __atomic_load_n(&g->window, __ATOMIC_RELAXED), span = ds_ring_span(g, t); /* another thread may set SO_SNDBUF */

	if (window < span - span / 4 && ds_seg_peer_relayed(g))
		window = span - span / 4;
	return window < span ? window : span;
}

/* Makes more of the ring active, if that is possible and worth it. True: it has. */
bool ds_ring_widen(struct ds_seg *g, struct ds_tx *t) DS_HIDDEN;

/* Where up to want bytes can lie in the ring: how many, and the advance; 0: no room. */
uint64_t ds_ring_place(struct ds_seg *g, struct ds_tx *t, uint64_t want, uint64_t *at, uint64_t *advance) DS_HIDDEN;

/* Copies the next n bytes of the cursor, which has them, to a place in the ring, and moves it. */
void ds_ring_fill(struct ds_seg *g, struct ds_tx *t, struct ds_cursor *c, uint8_t *to, size_t n) DS_HIDDEN;

#endif

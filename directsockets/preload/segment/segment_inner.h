/* What segment.c, tx.c and rx.c share. */
#ifndef DS_SEGMENT_INNER_H
#define DS_SEGMENT_INNER_H

#include "segment/memory.h"
#include "segment/segment.h"

#define GET(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define ACQUIRE(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define SET(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define RELEASE(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)

static inline struct ds_slot *tx_slot(struct ds_seg *g, uint64_t count) { return &g->txq[count & (g->slots - 1)]; }
static inline struct ds_slot *rx_slot(struct ds_seg *g, uint64_t count) { return &g->rxq[count & (g->slots - 1)]; }
static inline uint32_t lap(const struct ds_seg *g, uint64_t count) { return (uint32_t)((count >> g->shift) + 1); }

/* May the next n bytes of c be read, or written? n is not more than c->left. */
static inline bool reachable(const struct ds_cursor *c, size_t n, bool write)
{
	const struct iovec *v = c->v;

	for (size_t off = c->off; n; off = 0, v++) {
		size_t k = v->iov_len - off < n ? v->iov_len - off : n;

		if (!ds_touchable((const uint8_t *)v->iov_base + off, k, write))
			return false;
		n -= k;
	}
	return true;
}

#endif

/* What segment.c, tx.c and rx.c share. */
#ifndef DS_SEGMENT_INNER_H
#define DS_SEGMENT_INNER_H

#include "segment/segment.h"

#define GET(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define ACQUIRE(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define SET(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define RELEASE(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)

static inline struct ds_slot *tx_slot(struct ds_seg *g, uint64_t count) { return &g->txq[count & (g->slots - 1)]; }
static inline struct ds_slot *rx_slot(struct ds_seg *g, uint64_t count) { return &g->rxq[count & (g->slots - 1)]; }
static inline uint32_t lap(const struct ds_seg *g, uint64_t count) { return (uint32_t)((count >> g->shift) + 1); }


#endif

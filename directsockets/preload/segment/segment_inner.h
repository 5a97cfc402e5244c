/* What segment.c, tx.c, txring.c and rx.c share. */
#ifndef DS_SEGMENT_INNER_H
#define DS_SEGMENT_INNER_H

#include "segment/memory.h"
#include "segment/segment.h"

#include <string.h>

/* A test builds this layer with DS_READ_HOOK, and is told about every read of memory that others
 * write. */
#ifdef DS_READ_HOOK
void ds_read_hook(const volatile void *p, size_t n);
#define DS_LOAD(p, order) ({ __typeof__(*(p)) loaded_ = __atomic_load_n(p, order); ds_read_hook(p, sizeof *(p)); loaded_; })
#else
#define ds_read_hook(p, n) ((void)0)
#define DS_LOAD(p, order) __atomic_load_n(p, order)
#endif

#define GET(p) DS_LOAD(p, __ATOMIC_RELAXED)
#define ACQUIRE(p) DS_LOAD(p, __ATOMIC_ACQUIRE)
#define SET(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define RELEASE(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)

/* The word of slot s at off in its payload. */
#define GET32(s, off) GET((const volatile uint32_t *)(const volatile void *)((s)->payload + (off)))
#define GET64(s, off) GET((const volatile uint64_t *)(const volatile void *)((s)->payload + (off)))

/* Copies, as memcpy, which is slow for some distances of more bytes than DS_FEW. */
enum { DS_FEW = 1024 };
void ds_copy_many(void *to, const void *from, size_t n) DS_HIDDEN;
static inline void ds_copy(void *to, const void *from, size_t n)
{
	if (n > DS_FEW)
		ds_copy_many(to, from, n);
	else
		memcpy(to, from, n);
}

/* Copies n bytes that the peer can write to private memory. Each is read once: the compiler cannot
 * see that to is the same as from, and so does not read from again. Any caller. */
static inline void ds_copy_in(void *to, const volatile uint8_t *from, size_t n)
{
	ds_copy(to, (const uint8_t *)from, n);
	__asm__ volatile("" : : "r"(to) : "memory");
	ds_read_hook(from, n);
}

/* The slot of message count of this end's queue, to be written. */
static inline struct ds_slot *tx_slot(struct ds_seg *g, uint64_t count) { return &g->txq[count & (g->slots - 1)]; }
/* The same to be read: the peer may have written to it, too. */
static inline const volatile struct ds_slot *sent_slot(struct ds_seg *g, uint64_t count) { return tx_slot(g, count); }
/* The slot of message count of the peer's queue. */
static inline const volatile struct ds_slot *rx_slot(struct ds_seg *g, uint64_t count) { return &g->rxq[count & (g->slots - 1)]; }
static inline uint32_t lap(const struct ds_seg *g, uint64_t count) { return (uint32_t)((count >> g->shift) + 1); }

/* Where in a payload of len bytes, or after it, its stamp lies (SPEC 2.4); beyond DS_STAMPED it
 * lies in the ring of stamps. */
enum { DS_STAMPED = DS_VELO_MAX - 8 };
static inline unsigned stamp_at(unsigned len) { return (len + 7) & ~7u; }

/* May the next n bytes of c be read, or written? n is not more than c->left. */
bool ds_reachable(const struct ds_cursor *c, size_t n, bool write) DS_HIDDEN;
static inline bool reachable(const struct ds_cursor *c, size_t n, bool write)
{
	if (__builtin_expect(n <= c->v->iov_len - c->off, 1))
		return ds_touchable((const uint8_t *)c->v->iov_base + c->off, n, write);
	return ds_reachable(c, n, write);
}

/* Copies the next n bytes of the cursor, which has them, and moves it. No lock. */
void ds_gather_all(struct ds_cursor *c, uint8_t *to, size_t n) DS_HIDDEN;
static inline void ds_gather(struct ds_cursor *c, uint8_t *to, size_t n)
{
	if (__builtin_expect(n > c->v->iov_len - c->off, 0)) {
		ds_gather_all(c, to, n);
		return;
	}
	ds_copy(to, (const uint8_t *)c->v->iov_base + c->off, n);
	c->left -= n;
	c->off += n;
}

#endif

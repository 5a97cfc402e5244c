// flow.h: a ring of slots in memory that one writer and one reader share. Each side keeps its own
// position and does not trust the other's.
//
//	    0  unused
//	  128  tail: slots written so far (the writer's; for the status only)
//	  256  head: slots consumed so far (the reader's)
//	  384  armed: the reader sleeps, wake it (32 bits; both write it)
//	  512  RMA operations of the writer that run on memory that has a generation
//	 4096  the slots; each begins with a status word, whose bit 63 flips with every lap
#ifndef EXN_FLOW_H
#define EXN_FLOW_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define EXN_FLOW_HEADER 4096u
#define EXN_PHASE (1ull << 63)
#define EXN_SLOT_MAX 120u // payload of the largest slot

struct exn_flow {
	uint8_t *mem;
	uint32_t slots, size; // powers of two
	uint64_t pos;         // slots written or read by this side
	uint64_t seen;        // the writer's: the reader's position when last read
	uint64_t idle;        // the reader's: the last round in which it saw no work of the writer
};

static inline uint64_t *exn_flow_word(const struct exn_flow *f, unsigned off)
{
	return (uint64_t *)(f->mem + off);
}

static inline uint8_t *exn_flow_slot(const struct exn_flow *f)
{
	return f->mem + EXN_FLOW_HEADER + (f->pos & (f->slots - 1)) * f->size;
}

static inline uint64_t exn_flow_phase(const struct exn_flow *f)
{
	return f->pos & f->slots ? 0 : EXN_PHASE;
}

// exn_flow_room returns whether the writer has a free slot.
static inline bool exn_flow_room(struct exn_flow *f)
{
	if (f->pos - f->seen < f->slots)
		return true;
	uint64_t head = __atomic_load_n(exn_flow_word(f, 256), __ATOMIC_ACQUIRE);
	if (f->pos - head > f->slots) // impossible: the reader lies
		return false;
	f->seen = head;
	return f->pos - head < f->slots;
}

// exn_flow_commit publishes the slot. The writer has filled all of it but the status word.
static inline void exn_flow_commit(struct exn_flow *f, uint64_t word)
{
	uint64_t *status = (uint64_t *)exn_flow_slot(f);
	__atomic_store_n(status, (word & ~EXN_PHASE) | exn_flow_phase(f), __ATOMIC_RELEASE);
	f->pos++;
	__atomic_store_n(exn_flow_word(f, 128), f->pos, __ATOMIC_RELAXED);
}

// exn_flow_ready returns whether the reader has a message.
static inline bool exn_flow_ready(const struct exn_flow *f)
{
	uint64_t w = __atomic_load_n((uint64_t *)exn_flow_slot(f), __ATOMIC_ACQUIRE);
	return (w & EXN_PHASE) == exn_flow_phase(f);
}

// exn_flow_take copies the next message: its status word, read once, and the whole payload. It
// returns false if there is none.
static inline bool exn_flow_take(struct exn_flow *f, void *data, uint64_t *word)
{
	const uint8_t *slot = exn_flow_slot(f);
	uint64_t w = __atomic_load_n((const uint64_t *)slot, __ATOMIC_ACQUIRE);
	if ((w & EXN_PHASE) != exn_flow_phase(f))
		return false;
	memcpy(data, slot + 8, f->size - 8);
	*word = w & ~EXN_PHASE;
	f->pos++;
	__atomic_store_n(exn_flow_word(f, 256), f->pos, __ATOMIC_RELEASE);
	return true;
}

static inline void exn_flow_arm(struct exn_flow *f, uint32_t on)
{
	__atomic_store_n((uint32_t *)(f->mem + 384), on, __ATOMIC_SEQ_CST);
}

// exn_flow_must_wake returns whether the reader sleeps. A writer calls it after a commit; of
// several writers only one gets true.
static inline bool exn_flow_must_wake(struct exn_flow *f)
{
	uint32_t *armed = (uint32_t *)(f->mem + 384);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(armed, __ATOMIC_RELAXED) != 0 && __atomic_exchange_n(armed, 0, __ATOMIC_SEQ_CST) != 0;
}

#endif

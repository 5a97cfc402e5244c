/* The library's one kind of lock.
 *
 * It is a word that names the thread that holds it, also across processes that share it after fork. To hold it is a critical
 * section (thread.h): signals wait, so no handler of the program runs in between, and no jump leaves it. For all that
 * cannot wait there is an answer:
 *
 *   the holder died                  the next one finds out after 100 ms, takes it, and is told: DS_INHERITED
 *   a jump left the holder           (out of the handler of a fault) the jump gives it up; the next one is told, too
 *   this thread itself holds it      (a handler of a fault, or one that the library does not know of): DS_NESTED, not
 *                                    taken, at once
 *   another one has it, and this     as it may wait for what this thread holds: DS_NESTED
 *   thread is in a handler that
 *   interrupted a critical section
 *
 * Nobody sleeps with a lock held but for a moment, in calls that do not block. To hold several: the order is in
 * conn/inner.h and fd/epoll.h.
 */
#ifndef DS_LOCK_H
#define DS_LOCK_H

#include "segment/thread.h"

struct ds_lock {
	uint32_t word;  /* thread | DS_WAITERS; DS_GIVEN_UP; 0: free */
	uint8_t level;  /* of the holder */
	int8_t slot;    /* ds_own_lock: what ds_cleanup_push returned to the holder */
	uint16_t depth; /* times that the holder took it again */
};

enum { DS_GIVEN_UP = 1 << 30 };
#define DS_WAITERS (1u << 31)

enum { DS_TAKEN, DS_INHERITED, DS_NESTED };

/* ---- of what processes share ----------------------------------------------------------- */

/* The rest of ds_lock: begins as there, in the critical section. */
int ds_lock_slow(struct ds_lock *l) DS_HIDDEN;
/* Wakes one who waits for l. */
void ds_lock_wake(struct ds_lock *l) DS_HIDDEN;

/* Takes l. alone: nobody else can want it (one thread, one process). DS_TAKEN; DS_INHERITED: taken, but who held it
 * may have left something half done; DS_NESTED: not taken. */
static inline int ds_lock(struct ds_lock *l, bool alone)
{
	uint32_t me = ds_tid(), none = 0;

	ds_critical_begin();
	if (alone) {
		if (__builtin_expect(__atomic_load_n(&l->word, __ATOMIC_RELAXED) != 0, 0))
			return ds_lock_slow(l);
		__atomic_store_n(&l->word, me, __ATOMIC_RELAXED);
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
	} else if (!__atomic_compare_exchange_n(&l->word, &none, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		return ds_lock_slow(l);
	}
	l->level = (uint8_t)ds_self.level;
	return DS_TAKEN;
}

/* Gives l back, which this thread has taken, alone as it said then. */
static inline void ds_unlock(struct ds_lock *l, bool alone)
{
	if (alone)
		__atomic_store_n(&l->word, 0, __ATOMIC_RELEASE);
	else if (__atomic_exchange_n(&l->word, 0, __ATOMIC_RELEASE) & DS_WAITERS)
		ds_lock_wake(l);
	ds_critical_end();
}

/* A jump has left a call of this thread that may have held l: if it did, the next one takes it. */
void ds_lock_jumped(struct ds_lock *l) DS_HIDDEN;

/* ---- of what is the process's own ------------------------------------------------------ */

/* As ds_lock; a jump gives it up by itself. */
int ds_own_lock(struct ds_lock *l) DS_HIDDEN;
/* As ds_own_lock, but DS_NESTED also if another thread has it. */
int ds_own_try(struct ds_lock *l) DS_HIDDEN;
/* As ds_own_lock, or takes it once more: the caller may be called by who holds it. A fault's handler is let in rather
 * than refused, and waits for other threads: DS_TAKEN or DS_INHERITED. */
static inline int ds_own_again(struct ds_lock *l);
static inline void ds_own_unlock(struct ds_lock *l);

/* The rest of ds_own_again and ds_own_unlock. */
int ds_own_again_slow(struct ds_lock *l) DS_HIDDEN;
/* What a jump does that leaves who holds an own lock: struct ds_lock *. */
void ds_own_jumped(void *lock) DS_HIDDEN;

static inline int ds_own_again(struct ds_lock *l)
{
	uint32_t none = 0;

	ds_critical_begin();
	if (__builtin_expect(!__atomic_compare_exchange_n(&l->word, &none, ds_tid(), false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED), 0))
		return ds_own_again_slow(l);
	l->level = (uint8_t)ds_self.level;
	l->depth = 0;
	l->slot = (int8_t)ds_cleanup_push(ds_own_jumped, l);
	return DS_TAKEN;
}

static inline void ds_own_unlock(struct ds_lock *l)
{
	if (__builtin_expect(l->depth, 0)) {
		l->depth--;
		ds_critical_end();
		return;
	}
	ds_cleanup_pop(l->slot);
	ds_unlock(l, false);
}

/* As futex(2), of words that processes share: 0, or -1 and errno. Wakes n; errno stays. */
long ds_futex_wait(uint32_t *p, uint32_t value, const struct timespec *timeout) DS_HIDDEN;
void ds_futex_wake(uint32_t *p, int n) DS_HIDDEN;

#endif

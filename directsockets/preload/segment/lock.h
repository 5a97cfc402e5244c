/* The library's one kind of lock.
 *
 * A word that names the thread that holds it, also across processes that share it after fork.
 * Holding it is a critical section (thread.h): signals are deferred, so no handler of the program
 * runs meanwhile and no jump leaves it. What cannot be deferred:
 *
 *   the holder died                 the next thread finds out after 100 ms and gets DS_INHERITED
 *   a jump left the holder          (out of a fault's handler) the jump releases it; the next thread
 *                                   gets DS_INHERITED
 *   this thread holds it already    (in a fault's handler, or one unknown to the library) DS_NESTED,
 *                                   at once: not taken
 *   another thread holds it, and    DS_NESTED: the other may wait for what this thread holds
 *   this one is in a handler that
 *   interrupted a critical section
 *
 * A thread that holds a lock makes no call that sleeps until something happens. It may make one
 * that sleeps for a moment at most: ds_kernel_ended asks for 2 ms whether a peer that was killed
 * has ended on TCP, too, with the lock of a direction. Locks nest in the order that conn/inner.h
 * and fd/epoll.h give.
 */
#ifndef DS_LOCK_H
#define DS_LOCK_H

#include "segment/thread.h"

struct ds_lock {
	uint32_t word;  /* the thread's name | DS_WAITERS; DS_GIVEN_UP; 0: free */
	uint8_t level;  /* of the holder */
	int8_t slot;    /* ds_own_lock: what ds_cleanup_push returned to the holder */
	uint16_t depth; /* times that the holder took it again */
};

enum { DS_GIVEN_UP = 1 << 30 };
#define DS_WAITERS (1u << 31)

enum { DS_TAKEN, DS_INHERITED, DS_NESTED };

/* ---- locks in memory that processes share ------------------------------------------------ */

/* The slow half of ds_lock, inside its critical section. */
int ds_lock_slow(struct ds_lock *l) DS_HIDDEN;
/* Wakes one thread that waits for l. */
void ds_lock_wake(struct ds_lock *l) DS_HIDDEN;

/* Takes l. alone: no other thread or process can want it. DS_TAKEN; DS_INHERITED: taken, but its
 * last holder may have left something half done; DS_NESTED: not taken. */
static inline int ds_lock(struct ds_lock *l, bool alone)
{
	uint32_t me = ds_me(), none = 0;

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

/* As ds_lock, but DS_NESTED also if another thread, which lives, still has l after so many sleeps
 * of 100 ms at most: it may be stopped. */
int ds_lock_for(struct ds_lock *l, int sleeps) DS_HIDDEN;
enum { DS_SECOND = 10 }; /* sleeps */

/* Has this thread l? */
static inline bool ds_lock_mine(const struct ds_lock *l) { return (__atomic_load_n(&l->word, __ATOMIC_RELAXED) & ~DS_WAITERS) == ds_me(); }

/* Releases l; alone as when it was taken. */
static inline void ds_unlock(struct ds_lock *l, bool alone)
{
	if (alone)
		__atomic_store_n(&l->word, 0, __ATOMIC_RELEASE);
	else if (__atomic_exchange_n(&l->word, 0, __ATOMIC_RELEASE) & DS_WAITERS)
		ds_lock_wake(l);
	ds_critical_end();
}

/* A jump has left a call of this thread that may have held l: releases it if so. */
void ds_lock_jumped(struct ds_lock *l) DS_HIDDEN;

/* ---- locks of one process ---------------------------------------------------------------- */

/* As ds_lock; a jump releases it by itself. In a process of one thread nobody else can want it. */
int ds_own_lock(struct ds_lock *l) DS_HIDDEN;
/* As ds_own_lock, but DS_NESTED also if another thread has it. */
int ds_own_try(struct ds_lock *l) DS_HIDDEN;
/* As ds_own_lock, but may be taken again by the thread that holds it. A fault's handler is let in,
 * and waits for other threads: DS_TAKEN or DS_INHERITED. */
static inline int ds_own_again(struct ds_lock *l);
static inline void ds_own_unlock(struct ds_lock *l);

/* The slow half of ds_own_again. */
int ds_own_again_slow(struct ds_lock *l) DS_HIDDEN;
/* What a jump calls when it leaves the holder of such a lock, a struct ds_lock *. */
void ds_own_jumped(void *lock) DS_HIDDEN;

static inline int ds_own_again(struct ds_lock *l)
{
	uint32_t none = 0, me = ds_me();

	ds_critical_begin();
	if (ds_one_thread()) {
		if (__builtin_expect(__atomic_load_n(&l->word, __ATOMIC_RELAXED) != 0, 0))
			return ds_own_again_slow(l);
		__atomic_store_n(&l->word, me, __ATOMIC_RELAXED);
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
	} else if (__builtin_expect(!__atomic_compare_exchange_n(&l->word, &none, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED), 0)) {
		return ds_own_again_slow(l);
	}
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
	ds_unlock(l, ds_one_thread());
}

/* As futex(2), on words that processes share: 0, or -1 and errno. ds_futex_wake wakes n and keeps
 * errno. */
long ds_futex_wait(uint32_t *p, uint32_t value, const struct timespec *timeout) DS_HIDDEN;
void ds_futex_wake(uint32_t *p, int n) DS_HIDDEN;

#endif

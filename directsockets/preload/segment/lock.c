#include "segment/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>

enum { LOOKS = 50, WAIT_NS = 100000000 /* ns, until it asks whether the holder lives */ };

long ds_futex_wait(uint32_t *p, uint32_t value, const struct timespec *timeout)
{
	return ds_syscall(SYS_futex, p, FUTEX_WAIT, value, timeout, NULL, 0);
}

void ds_futex_wake(uint32_t *p, int n)
{
	int saved = errno;

	ds_syscall(SYS_futex, p, FUTEX_WAKE, n, NULL, NULL, 0);
	errno = saved;
}

void ds_lock_wake(struct ds_lock *l) { ds_futex_wake(&l->word, 1); }

/* Releases l in the middle of what it guards: the next holder gets DS_INHERITED. */
static void give_up(struct ds_lock *l)
{
	if (__atomic_exchange_n(&l->word, DS_GIVEN_UP, __ATOMIC_RELEASE) & DS_WAITERS)
		ds_lock_wake(l);
}

void ds_lock_jumped(struct ds_lock *l)
{
	if ((__atomic_load_n(&l->word, __ATOMIC_RELAXED) & ~DS_WAITERS) == ds_me() && l->level >= ds_self.level)
		give_up(l);
}

/* Takes l if its word is still the one seen. waited: other threads may sleep on it. False: the word
 * has changed. */
static bool claim(struct ds_lock *l, uint32_t seen, bool waited)
{
	uint32_t me = ds_me() | (waited ? DS_WAITERS : 0);

	if (!__atomic_compare_exchange_n(&l->word, &seen, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return false;
	l->level = (uint8_t)ds_self.level;
	return true;
}

/* Leaves the critical section and sleeps until l may be free. True: it is not, and its holder is
 * dead. */
static bool sleep_for(struct ds_lock *l, uint32_t w)
{
	static const struct timespec limit = {0, WAIT_NS};
	bool dead;

	ds_critical_end(); /* signals that came are handled now */
	dead = ds_futex_wait(&l->word, w, &limit) < 0 && errno == ETIMEDOUT && ds_name_dead(w & ~DS_WAITERS);
	ds_critical_begin();
	return dead;
}

/* As ds_lock_slow. wait: waits for another thread even in a handler that interrupted a critical
 * section. sleeps: so often for one that lives, each WAIT_NS at most; 0: as often as it takes. */
static int take(struct ds_lock *l, bool wait, int sleeps)
{
	uint32_t me = ds_me(), w;
	int saved = errno, how = DS_NESTED, slept = 0;

	for (int tries = 0;; tries++) {
		w = __atomic_load_n(&l->word, __ATOMIC_RELAXED);
		if ((w & ~DS_WAITERS) == me)
			break;
		if (w == 0 || w == DS_GIVEN_UP) {
			if (!claim(l, w, tries > LOOKS || w))
				continue;
			how = w ? DS_INHERITED : DS_TAKEN;
			break;
		}
		if (!wait && ds_self.level && ds_interrupted())
			break;
		if (tries < LOOKS) {
			ds_pause();
			continue;
		}
		if (!(w & DS_WAITERS) &&
		    !__atomic_compare_exchange_n(&l->word, &w, w | DS_WAITERS, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			continue;
		if (sleep_for(l, w | DS_WAITERS) && claim(l, w | DS_WAITERS, true)) {
			how = DS_INHERITED;
			break;
		}
		if (++slept == sleeps)
			break;
	}
	errno = saved;
	if (how == DS_NESTED)
		ds_critical_end();
	return how;
}

int ds_lock_slow(struct ds_lock *l) { return take(l, false, 0); }

int ds_lock_for(struct ds_lock *l, int sleeps)
{
	ds_critical_begin();
	return take(l, false, sleeps);
}

/* ---- the process's own ----------------------------------------------------------------- */

void ds_own_jumped(void *lock) { give_up(lock); }

/* If how says that l was taken, has a jump out of the call release it. Returns how. */
static int record(struct ds_lock *l, int how)
{
	if (how == DS_NESTED)
		return how;
	l->depth = 0;
	l->slot = (int8_t)ds_cleanup_push(ds_own_jumped, l);
	return how;
}

int ds_own_lock(struct ds_lock *l) { return record(l, ds_lock(l, ds_one_thread())); }

int ds_own_try(struct ds_lock *l)
{
	uint32_t w = __atomic_load_n(&l->word, __ATOMIC_RELAXED);

	ds_critical_begin();
	if ((w == 0 || w == DS_GIVEN_UP) && claim(l, w, w != 0))
		return record(l, w ? DS_INHERITED : DS_TAKEN);
	ds_critical_end();
	return DS_NESTED;
}

int ds_own_again_slow(struct ds_lock *l)
{
	if ((__atomic_load_n(&l->word, __ATOMIC_RELAXED) & ~DS_WAITERS) != ds_me())
		return record(l, take(l, true, 0));
	l->depth++;
	return DS_TAKEN;
}

#include "segment/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { PLACES = 128, WAITERS = 1u << 31 };

/* Of this process alone. */
struct arena {
	struct arena *next;
	struct ds_shared *places;
	unsigned lost; /* places closed here that others still refer to */
	unsigned free;
	uint8_t state[PLACES];
};
enum { FREE, USED, LOST };

static struct arena *arenas;
static uint32_t arenas_lock; /* spins: nothing sleeps with it held */

static void spin_lock(void)
{
	while (__atomic_exchange_n(&arenas_lock, 1, __ATOMIC_ACQUIRE))
		ds_syscall(SYS_sched_yield);
}

static void spin_unlock(void) { __atomic_store_n(&arenas_lock, 0, __ATOMIC_RELEASE); }

/* Looks for places that the others have let go of, and for arenas of which nothing
 * but what was lost is left. */
static void sweep(void)
{
	for (struct arena **at = &arenas, *a; (a = *at);) {
		for (int i = 0; a->lost && i < PLACES; i++)
			if (a->state[i] == LOST && !__atomic_load_n(&a->places[i].refs, __ATOMIC_ACQUIRE)) {
				a->state[i] = FREE;
				a->free++;
				a->lost--;
			}
		if (a->lost < PLACES) {
			at = &a->next;
			continue;
		}
		*at = a->next;
		munmap(a->places, PLACES * sizeof *a->places);
		munmap(a, sizeof *a);
	}
}

static struct arena *add(void)
{
	struct arena *a = mmap(NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *p;

	if (a == MAP_FAILED)
		return NULL;
	p = mmap(NULL, PLACES * sizeof *a->places, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		munmap(a, sizeof *a);
		return NULL;
	}
	a->places = p;
	a->free = PLACES;
	a->next = arenas;
	arenas = a;
	return a;
}

struct ds_shared *ds_arena_get(void)
{
	struct ds_shared *s = NULL;
	struct arena *a;

	spin_lock();
	for (a = arenas; a && !a->free; a = a->next)
		;
	if (!a) {
		sweep();
		for (a = arenas; a && !a->free; a = a->next)
			;
	}
	if (!a)
		a = add();
	for (int i = 0; a && i < PLACES; i++)
		if (a->state[i] == FREE) {
			a->state[i] = USED;
			a->free--;
			s = &a->places[i];
			memset(s, 0, sizeof *s);
			__atomic_store_n(&s->refs, 1, __ATOMIC_RELEASE);
			break;
		}
	spin_unlock();
	return s;
}

void ds_arena_ref(struct ds_shared *s)
{
	__atomic_fetch_add(&s->refs, 1, __ATOMIC_ACQ_REL);
}

bool ds_arena_unref(struct ds_shared *s)
{
	bool last;
	uint32_t refs;

	spin_lock();
	refs = __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL);
	last = refs == 0;
	for (struct arena *a = arenas; a; a = a->next) {
		if (s < a->places || s >= a->places + PLACES)
			continue;
		a->state[s - a->places] = last ? FREE : LOST;
		if (last)
			a->free++;
		else
			a->lost++;
		break;
	}
	spin_unlock();
	return last;
}

void ds_arena_child(void)
{
	/* What the parent knows of its arenas is in private memory: forget the list; the
	 * places stay mapped. Another thread may have held the lock. */
	arenas = NULL;
	spin_unlock();
}

/* ---- locks ------------------------------------------------------------------- */

static __thread uint32_t tid __attribute__((tls_model("initial-exec")));

uint32_t ds_tid(void)
{
	if (__builtin_expect(!tid, 0))
		tid = (uint32_t)ds_syscall(SYS_gettid);
	return tid;
}

void ds_tid_child(void) { tid = 0; }

/* A process whose threads have all gone stays as a zombie until its parent asks. */
bool ds_tid_dead(uint32_t t)
{
	char path[32] = "/proc/", text[512], digits[12], *end;
	int n = 0, len = 6, fd;
	ssize_t got;

	if (ds_syscall(SYS_kill, (pid_t)t, 0) < 0 && errno == ESRCH)
		return true;
	do
		digits[n++] = (char)('0' + t % 10);
	while (t /= 10);
	while (n)
		path[len++] = digits[--n];
	memcpy(path + len, "/stat", 6);
	fd = (int)ds_syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	got = ds_syscall(SYS_read, fd, text, sizeof text - 1);
	ds_syscall(SYS_close, fd);
	if (got <= 0)
		return false;
	text[got] = 0;
	end = strrchr(text, ')');
	return end && end[1] == ' ' && (end[2] == 'Z' || end[2] == 'X');
}

extern char __libc_single_threaded __attribute__((weak));

bool ds_one_thread(void) { return &__libc_single_threaded && __libc_single_threaded; }

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

int ds_lock_slow(struct ds_lock *l, uint64_t sp)
{
	uint32_t me = ds_tid(), w;
	int saved = errno;

	for (int tries = 0;; tries++) {
		w = __atomic_load_n(&l->word, __ATOMIC_RELAXED);
		if ((w & ~WAITERS) == me) {
			/* Either a signal handler came in between, which runs deeper on the stack, or one
			 * has jumped out of the call that held it. */
			if (sp < l->sp)
				return DS_NESTED;
			l->sp = sp;
			l->broken++;
			return DS_INHERITED;
		}
		if (!w) {
			uint32_t none = 0;
			/* Others may sleep: whoever unlocks shall look. */
			if (__atomic_compare_exchange_n(&l->word, &none, tries ? me | WAITERS : me, false, __ATOMIC_ACQUIRE,
							__ATOMIC_RELAXED)) {
				l->sp = sp;
				errno = saved;
				return DS_TAKEN;
			}
			continue;
		}
		if (tries < 50) {
			ds_pause();
			continue;
		}
		if (!(w & WAITERS) &&
		    !__atomic_compare_exchange_n(&l->word, &w, w | WAITERS, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			continue;
		struct timespec patience = {0, 100000000};
		if (ds_futex_wait(&l->word, w | WAITERS, &patience) == 0 || errno != ETIMEDOUT || !ds_tid_dead(w & ~WAITERS))
			continue;
		w |= WAITERS;
		if (__atomic_compare_exchange_n(&l->word, &w, me | WAITERS, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			l->sp = sp;
			l->broken++;
			errno = saved;
			return DS_INHERITED;
		}
	}
}

void ds_unlock_slow(struct ds_lock *l) { ds_futex_wake(&l->word, 1); }

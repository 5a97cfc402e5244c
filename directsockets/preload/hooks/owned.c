#if defined(__x86_64__) || defined(DS_FREE)
#include "hooks/owned.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { GUARD = 4096 };

char *owned_map(size_t n)
{
	const size_t all = (GUARD + OWNED_STACK + n + GUARD - 1) & ~(size_t)(GUARD - 1);
	long p = owned_mmap(0, all, PROT_READ | PROT_WRITE, MAP_NORESERVE);

	if (p < 0 && p > -4096)
		return NULL;
	owned_call(SYS_mprotect, p, GUARD, PROT_NONE);
	return (char *)p + GUARD + OWNED_STACK;
}

/* Takes o, which has this owner, for the thread tid. */
static bool take(struct owned *o, int owner, int tid) { return __atomic_compare_exchange_n(&o->tid, &owner, tid, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED); }

/* A piece that nobody has, for the thread tid; NULL: there is none. If dead, the kernel is asked
 * for the threads of the others: a piece of the same number as tid is an earlier thread's. */
static struct owned *reuse(struct owned_list *l, int tid, bool dead)
{
	for (struct owned *o = __atomic_load_n(&l->first, __ATOMIC_ACQUIRE); o; o = o->next) {
		int owner = owned_tid(o);

		if ((!owner || (dead && (owner == tid || owned_call(SYS_tkill, owner, 0, 0) == -ESRCH))) && take(o, owner, tid))
			return o;
	}
	return NULL;
}

/* The threads that have ended are looked for when there are twice as many pieces as after the last
 * time. */
struct owned *owned_get(struct owned_list *l, int tid, struct owned *(*make)(void), bool *fresh)
{
	const pid_t process = (pid_t)owned_call(SYS_getpid, 0, 0, 0);
	int n = __atomic_load_n(&l->made, __ATOMIC_RELAXED), at = __atomic_load_n(&l->look_at, __ATOMIC_RELAXED);

	if (!l->process)
		l->process = process;
	*fresh = false;
	struct owned *o = reuse(l, tid, false);
	if (!o && n >= (at ? at : OWNED_LEAST) && process == l->process) {
		o = reuse(l, tid, true);
		/* It found one at once, or there are many threads: then not again soon. */
		if (!o)
			__atomic_store_n(&l->look_at, 2 * n, __ATOMIC_RELAXED);
	}
	if (o || !(o = make()))
		return o;
	*fresh = true;
	o->tid = tid;
	struct owned *first = __atomic_load_n(&l->first, __ATOMIC_RELAXED);
	do
		o->next = first;
	while (!__atomic_compare_exchange_n(&l->first, &first, o, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	__atomic_fetch_add(&l->made, 1, __ATOMIC_RELAXED);
	return o;
}
#endif

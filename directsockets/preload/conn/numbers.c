#include "conn/inner.h"
#include "conn/numbers.h"

#include <sys/syscall.h>

enum {
	EAGER = 32,	   /* yields, before a thread that waits sleeps between its looks */
	CALL_US = 1000000, /* in which a thread that has begun a call has come to the kernel */
};

void ds_by_number_left(void *count) { __atomic_fetch_sub((int *)count, 1, __ATOMIC_RELEASE); }

/* How many of them are those of this thread, which a handler has interrupted? */
static int own(const int *count) { return ds_cleanups(ds_by_number_left, count); }

/* Waits until *count has no call of another thread, a second at most. */
static void await(const int *count)
{
	static const struct timespec moment = {0, 50000};
	uint64_t begin = ds_ticks();

	for (unsigned i = 0; __atomic_load_n(count, __ATOMIC_SEQ_CST) > own(count) && ds_ticks() - begin < CALL_US * ds_ticks_us(); i++) {
		if (i < EAGER)
			ds_syscall(SYS_sched_yield);
		else
			ds_syscall(SYS_nanosleep, &moment, NULL);
	}
}

void ds_by_number_await(struct ds_numbered *n)
{
	const int *count = &n->calls[n->changes & 1];

	/* What begins now, by another number, is counted apart: it is not waited for. */
	__atomic_store_n(&n->changes, n->changes + 1, __ATOMIC_SEQ_CST);
	await(count);
	await(&n->brief);
}

void ds_by_number_await_brief(const struct ds_numbered *n) { await(&n->brief); }

void ds_by_number_child(struct ds_numbered *n)
{
	for (int i = 0; i < 2; i++)
		n->calls[i] = own(&n->calls[i]);
	n->brief = own(&n->brief);
}

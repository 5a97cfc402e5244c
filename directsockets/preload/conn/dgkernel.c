/* Sends by the kernel on UDP sockets. */
#include "conn/dgram.h"
#include "conn/inner.h"

enum {
	EAGER = 32,	   /* yields, before a thread that waits sleeps between its looks */
	SEND_US = 1000000, /* in which a thread that has begun a send has come to the kernel */
};

void ds_dg_kernel_left(void *count) { __atomic_fetch_sub((int *)count, 1, __ATOMIC_RELEASE); }

/* How many of them are those of this thread, which a handler has interrupted? */
static int own(const int *count) { return ds_cleanups(ds_dg_kernel_left, count); }

void ds_dg_kernel_await(struct ds_dgram *d)
{
	int *count = &d->sends[d->changes & 1];
	uint64_t begin = ds_ticks();

	/* What begins now, by another number of d, is counted apart: it is not waited for. */
	__atomic_store_n(&d->changes, d->changes + 1, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; __atomic_load_n(count, __ATOMIC_SEQ_CST) > own(count) && ds_ticks() - begin < SEND_US * ds_ticks_us(); i++) {
		if (i < EAGER)
			ds_syscall(SYS_sched_yield);
		else
			ds_dg_moment();
	}
}

void ds_dg_kernel_child(struct ds_dgram *d)
{
	for (int i = 0; i < 2; i++)
		d->sends[i] = own(&d->sends[i]);
}

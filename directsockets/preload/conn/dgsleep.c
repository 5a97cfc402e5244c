/* Threads that wait in the kernel for UDP sockets: they are counted, and flows armed for them. */
#include "conn/dgram.h"
#include "conn/inner.h"

/* Finds out whether the kernel has nothing for a flow that waits for that. */
static void look_dry(struct ds_dgram *d, int fd)
{
	bool wanted = false;

	for (unsigned i = 0; i < d->nlisted; i++) {
		struct ds_dg_in *f = d->list[i];
		uint64_t n = ds_dg_by_kernel(&f->seg);

		/* Before the first record the sender does not know that none was lost. */
		wanted |= f->state == DG_IN_MEMORY && (n != f->seg.taken || f->seg.at == 0) && n != DS_GET(f->seg.in->dry);
	}
	if (!wanted)
		return;
	ds_dg_before(d);
	if (ds_dg_is_empty(fd))
		ds_dg_found_nothing(d);
}

int ds_dg_rest(struct ds_dgram *d, int fd)
{
	/* Whoever lists a flow lists it first, and then looks who is counted. */
	if ((!__atomic_load_n(&d->nlisted, __ATOMIC_SEQ_CST) && (DS_GET(d->no_bells) || !ds_dg_inward(d) || ds_dg_waiting(d) <= 1)) || ds_own_lock(&d->in) == DS_NESTED)
		return DG_RESTS;
	look_dry(d, fd);
	ds_dg_arm_waiting(d);
	int how = ds_dg_await_kernel(d, fd);
	ds_own_unlock(&d->in);
	return how;
}

bool ds_dg_sleep(struct ds_dgram *d, int fd)
{
	int how;

	while ((how = ds_dg_rest(d, fd)) == DG_NAPS)
		ds_dg_moment();
	return how == DG_RESTS;
}

/* A jump leaves a call that is counted. */
static void jumped(void *socket)
{
	ds_dg_sleeper(socket, -1);
	ds_dg_put(socket);
}

int ds_dg_asleep(struct ds_dgram *d)
{
	ds_critical_begin();
	ds_dg_sleeper(d, 1);
	int slot = ds_cleanup_push(jumped, d);
	ds_critical_end();
	return slot;
}

void ds_dg_awoke(struct ds_dgram *d, int slot)
{
	ds_critical_begin();
	ds_cleanup_pop(slot);
	ds_dg_sleeper(d, -1);
	ds_critical_end();
}

/* The UDP sockets of the process: where they are. */
#include "conn/dgram.h"
#include "conn/inner.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { SOCKETS = 1 << 16 };

static struct ds_lock lock;
static struct ds_dgram *pool;
static uint32_t used, unused; /* unused: of the first free place, + 1 */

/* A place; NULL: there is none. With the lock of the pool. */
static struct ds_dgram *take(void)
{
	struct ds_dgram *d;

	if (!pool) {
		void *p = REAL(mmap)(NULL, SOCKETS * sizeof *pool, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			return NULL;
		pool = p;
	}
	if (unused) {
		d = &pool[unused - 1];
		unused = d->next;
		return d;
	}
	if (used == SOCKETS)
		return NULL;
	d = &pool[used];
	__atomic_store_n(&used, used + 1, __ATOMIC_RELEASE);
	return d;
}

struct ds_dgram *ds_dg_new(int family, int nonblock)
{
	struct ds_dgram *d;
	int saved = errno;

	if (ds_own_lock(&lock) == DS_NESTED)
		return NULL;
	d = take();
	if (d) {
		uint32_t serial = d->serial + 1;
		bool dests = d->peer.sent || d->dests[0].since; /* as ds_dg_dest leaves it */

		memset(d, 0, dests ? sizeof *d : offsetof(struct ds_dgram, dests));
		d->serial = serial;
		d->id = 0xc0000000u | (serial & 0x1fff) << 16 | (uint32_t)(d - pool);
		d->family = (uint8_t)family;
		d->nonblock = (uint8_t)nonblock;
		d->users = d->nfds = 1;
		d->open = true;
	}
	ds_own_unlock(&lock);
	errno = saved;
	return d;
}

struct ds_dgram *ds_dg_by_id(uint32_t id)
{
	uint32_t i = id & 0xffff;

	return i < __atomic_load_n(&used, __ATOMIC_ACQUIRE) && pool[i].open && pool[i].id == id ? &pool[i] : NULL;
}


void ds_dg_free(struct ds_dgram *d)
{
	if (ds_own_lock(&lock) == DS_NESTED)
		return;
	d->open = false;
	d->next = unused;
	unused = (uint32_t)(d - pool) + 1;
	ds_own_unlock(&lock);
}

void ds_dg_each(void (*fn)(struct ds_dgram *d, void *arg), void *arg)
{
	for (uint32_t i = 0, n = __atomic_load_n(&used, __ATOMIC_ACQUIRE); i < n; i++)
		if (pool[i].open)
			fn(&pool[i], arg);
}

void ds_dg_pool_child(void) { lock = (struct ds_lock){0}; }

void ds_dg_entry_put(struct ds_entry *e, int why)
{
	if (!e)
		return;
	if (why)
		ds_stats_say(e, DS_MODE_DEMOTED, why);
	if (ds_setup_try()) { /* never waits: this may be a holder of a lock that comes after that */
		ds_stats_put(e, true);
		ds_setup_unlock();
	} else {
		__atomic_store_n(&e->mode, DS_MODE_CLOSED, __ATOMIC_RELEASE);
	}
}

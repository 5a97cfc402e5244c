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
		void *p = REAL(mmap, NULL, SOCKETS * sizeof *pool, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

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
	d->users = DS_DG_FREE;
	__atomic_store_n(&used, used + 1, __ATOMIC_RELEASE);
	return d;
}

struct ds_dgram *ds_dg_new(int family, int nonblock)
{
	struct ds_dgram *d;
	int saved = errno;

	ds_dg_settings();
	if (ds_own_lock(&lock) == DS_NESTED)
		return NULL;
	d = take();
	if (d) {
		uint32_t serial = d->serial + 1;
		bool dests = d->peer.sent || d->dests[0].since; /* as ds_dg_dest leaves it */

		/* Not the references: a call that comes late may hold it for a moment. */
		memset((char *)d + offsetof(struct ds_dgram, nfds), 0, (dests ? sizeof *d : offsetof(struct ds_dgram, dests)) -
			offsetof(struct ds_dgram, nfds));
		d->serial = serial;
		d->id = ds_dg_id((uint32_t)(d - pool), serial);
		d->family = (uint8_t)family;
		d->nonblock = (uint8_t)nonblock;
		d->nfds = 1;
		d->open = true;
		__atomic_add_fetch(&d->users, 1 - DS_DG_FREE, __ATOMIC_ACQ_REL);
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

bool ds_dg_address(const struct ds_dgram *d, const void *a, socklen_t len, uint8_t addr[16], uint16_t *port)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	const struct sockaddr *s = a;

	if (len >= sizeof(struct sockaddr_in) && s->sa_family == AF_INET && d->family == AF_INET) {
		const struct sockaddr_in *in = a;
		uint32_t ip = ntohl(in->sin_addr.s_addr);

		memcpy(addr, v4, 12);
		memcpy(addr + 12, &in->sin_addr, 4);
		*port = ntohs(in->sin_port);
		return *port && ip && ip < 0xe0000000;
	}
	if (len >= sizeof(struct sockaddr_in6) && s->sa_family == AF_INET6 && d->family == AF_INET6) {
		const struct sockaddr_in6 *in = a;
		static const uint8_t none[16];

		memcpy(addr, &in->sin6_addr, 16);
		*port = ntohs(in->sin6_port);
		if (in->sin6_flowinfo || in->sin6_scope_id || addr[0] >= 0xfe) /* link-local, multicast */
			return false;
		if (!memcmp(addr, v4, 12) && addr[12] >= 0xe0)
			return false;
		return *port && memcmp(addr, none, 16) != 0;
	}
	return false;
}

static bool held;

bool ds_dg_pool_hold(void)
{
	held = ds_own_lock(&lock) != DS_NESTED;
	for (uint32_t i = 0; i < used; i++)
		if (pool[i].open)
			return true;
	return false;
}

void ds_dg_pool_let_go(bool child)
{
	if (held)
		ds_own_unlock(&lock);
	if (child)
		lock = (struct ds_lock){0};
}

void ds_dg_entry_put(struct ds_entry *e, int why)
{
	if (!e)
		return;
	if (why)
		ds_stats_say(e, DS_MODE_DEMOTED, why);
	if (ds_setup_try()) { /* never waits: this may be a holder of a lock that comes after that */
		ds_stats_put(e, ds_config.explain);
		ds_setup_unlock();
	} else {
		__atomic_store_n(&e->mode, DS_MODE_CLOSED, __ATOMIC_RELEASE);
	}
}

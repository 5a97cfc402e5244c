/* Listeners, as they are announced to the broker: those of the program, and closed ones whose
 * accepted connections may still become direct. All functions want the lock of setup. */
#include "conn/broker.h"
#include "conn/inner.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_LISTENERS = 4096 };

static struct listener {
	int fd; /* -1: closed, or another program's */
	uint32_t id;
	bool announced;
	uint16_t port;
	uint8_t addr[16];
	unsigned waiting; /* accepted connections that may still become direct */
} *listeners; /* MAX_LISTENERS */
static int nlisteners; /* written with the lock, and looked at without */
static int unannounced; /* of them, with a descriptor, */
static int orphans;     /* and without: a connection announces them */
static uint32_t told;   /* the connection to the broker on which they were announced */
static uint32_t next_id = 1u << 31; /* listeners have the upper half of the numbers */

/* The counter of l while it is not announced. */
static int *counter(const struct listener *l) { return l->fd >= 0 ? &unannounced : &orphans; }

/* Adds by to the counter of l, which others read without the lock. */
static void count(const struct listener *l, int by)
{
	__atomic_store_n(counter(l), *counter(l) + by, __ATOMIC_RELAXED);
}

/* True if the broker has gone that was told about the listeners. */
static bool forgotten(void) { return DS_GET(nlisteners) > 0 && __atomic_load_n(&told, __ATOMIC_RELAXED) != ds_broker_connection(); }

/* If the broker that knew the listeners has gone, marks all of them to be announced again. */
static void forget(void)
{
	for (int i = 0; forgotten() && i < nlisteners; i++)
		if (listeners[i].announced) {
			listeners[i].announced = false;
			count(&listeners[i], 1);
		}
	__atomic_store_n(&told, ds_broker_connection(), __ATOMIC_RELAXED);
}

bool ds_broker_orphans(void) { return __atomic_load_n(&orphans, __ATOMIC_RELAXED) > 0 || forgotten(); }

void ds_decided(struct ds_sock *s)
{
	if (DS_GET(s->waits))
		ds_broker_decided(&s->info);
	DS_SET(s->waits, false);
}

/* Adds a listener, not announced yet; NULL: there is no room. */
static struct listener *add(int fd, const uint8_t *addr, uint16_t port)
{
	if (!listeners) {
		void *p = REAL(mmap, NULL, MAX_LISTENERS * sizeof *listeners, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			return NULL;
		listeners = p;
	}
	if (nlisteners == MAX_LISTENERS)
		return NULL;
	struct listener *l = &listeners[nlisteners];
	DS_SET(nlisteners, nlisteners + 1);
	*l = (struct listener){.fd = fd, .id = next_id++ | 1u << 31, .port = port};
	memcpy(l->addr, addr, sizeof l->addr);
	count(l, 1);
	return l;
}

/* Tells the broker that l ends, if it knows l. */
static void withdraw(struct listener *l)
{
	struct ds_message m = {.type = DS_UNLISTEN, .id = l->id};

	if (l->announced)
		ds_broker_send(&m);
	else
		count(l, -1);
}

/* Withdraws l and frees its place, which the last listener takes. */
static void end(struct listener *l)
{
	withdraw(l);
	DS_SET(nlisteners, nlisteners - 1);
	*l = listeners[nlisteners];
}

/* Does l take, or did it take, connections to side 1 of i? */
static bool takes(const struct listener *l, const struct ds_info *i)
{
	static const uint8_t any[16], any4[16] = {[10] = 0xff, [11] = 0xff};

	return l->port == i->port[1] && (!memcmp(l->addr, i->addr[1], 16) || !memcmp(l->addr, any, 16) || !memcmp(l->addr, any4, 16));
}

void ds_broker_announce(void)
{
	forget();
	for (int i = 0; i < nlisteners && unannounced > 0; i++) {
		struct listener *l = &listeners[i];
		struct ds_message m = {.type = DS_LISTEN, .id = l->id};

		if (l->announced || l->fd < 0)
			continue;
		memcpy(m.info.addr[1], l->addr, 16);
		m.info.port[1] = l->port;
		if (!ds_broker_show(&m, l->fd, NULL, 0) && errno != ENOENT && errno != EBADF)
			return;
		count(l, -1);
		l->announced = true;
	}
}

void ds_broker_announce_by(const struct ds_info *info, int fd)
{
	forget();
	for (int i = 0; i < nlisteners && orphans > 0; i++) {
		struct listener *l = &listeners[i];
		struct ds_message m = {.type = DS_LISTEN, .id = l->id, .info = *info};

		if (l->announced || l->fd >= 0 || !takes(l, info))
			continue;
		if (!ds_broker_show(&m, fd, NULL, 0))
			return;
		count(l, -1);
		l->announced = true;
	}
}

bool ds_broker_listen(int fd, const uint8_t *addr, uint16_t port)
{
	forget();
	for (int i = 0; i < nlisteners; i++)
		if (listeners[i].fd == fd)
			return true;
	if (!add(fd, addr, port))
		return false;
	if (ds_broker_up(true))
		ds_broker_announce();
	return true;
}

void ds_broker_unlisten(int fd)
{
	forget();
	for (int i = 0; i < nlisteners; i++) {
		struct listener *l = &listeners[i], at = *l;

		if (l->fd != fd)
			continue;
		if (!l->waiting) {
			end(l);
			return;
		}
		/* The broker may have read LISTEN only now, and found no such socket. */
		withdraw(l);
		at.fd = -1;
		at.id = next_id++ | 1u << 31;
		at.announced = false;
		*l = at;
		count(l, 1);
		return;
	}
}

void ds_broker_wait(const struct ds_info *info)
{
	struct listener *l = NULL;

	forget();
	for (int i = 0; i < nlisteners && !l; i++)
		if (takes(&listeners[i], info))
			l = &listeners[i];
	if (!l)
		l = add(-1, info->addr[1], info->port[1]);
	if (l)
		l->waiting++;
}

void ds_broker_decided(const struct ds_info *info)
{
	forget();
	for (int i = 0; i < nlisteners; i++) {
		struct listener *l = &listeners[i];

		if (!l->waiting || !takes(l, info))
			continue;
		if (!--l->waiting && l->fd < 0)
			end(l);
		return;
	}
}

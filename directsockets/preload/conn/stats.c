#include "conn/stats.h"

#include "conn/fds.h"
#include "conn/sock.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ENTRIES = 16384, HEAD = 256, SUMS = 256 };

static int stats_fd = -1;
static uint8_t *table;
static uint64_t taken[ENTRIES / 64]; /* a bit each: open connections, sums, and closed connections to be shown */
static uint32_t next_entry;	       /* where to look for a closed one, once all are taken */
static uint64_t nowhere[DS_COUNTERS];
static struct ds_entry *sums[SUMS]; /* of closed connections, by the other end's address */

/* System calls that no jump can replace: of each kind of miss, how many, and the first. */
static struct {
	uint32_t n, unused;
	uint64_t at;
	char file[64];
} missed[DS_MISSES];
enum { MISSED = 32 }; /* where the table has them */
_Static_assert(MISSED + sizeof missed <= HEAD, "the head of the table");

/* The i-th entry of the table. */
static struct ds_entry *entry(uint32_t i) { return (struct ds_entry *)(void *)(table + HEAD + (size_t)i * sizeof(struct ds_entry)); }

int ds_stats_fd(void)
{
	const size_t size = HEAD + (size_t)ENTRIES * sizeof(struct ds_entry);
	uint32_t version = 1, entries = ENTRIES, pid;
	uint8_t *m;
	int fd;

	if (stats_fd >= 0)
		return stats_fd;
	fd = kernel_memfd("exnet-ds-stats", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	m = NULL;
	if (ds_truncate(fd, size) == 0 && REAL(fcntl, fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		m = ds_map_new(fd, size);
	if (!m) {
		REAL(close, fd);
		return -1;
	}
	pid = (uint32_t)kernel_getpid();
	memcpy(m + 8, &version, 4);
	memcpy(m + 12, &entries, 4);
	memcpy(m + 16, &pid, 4);
	memcpy(m + MISSED, missed, sizeof missed);
	memcpy(m, "EXTDSST\x01", 8);
	table = m;
	next_entry = 0;
	memset(taken, 0, sizeof taken);
	stats_fd = ds_fd_keep(fd, &stats_fd);
	return stats_fd;
}

bool ds_stats_made(void) { return table; }

void ds_missed(enum ds_miss miss, const char *file, uint64_t at)
{
	const char *slash = strrchr(file, '/');

	if (__atomic_fetch_add(&missed[miss].n, 1, __ATOMIC_RELAXED) == 0) {
		missed[miss].at = at;
		strncpy(missed[miss].file, slash ? slash + 1 : file, sizeof missed[miss].file - 1);
	}
	if (table) /* the program has inherited a socket */
		memcpy(table + MISSED, missed, sizeof missed);
}

/* Opens an entry for a change: its sequence is odd until close_entry. */
static void open_entry(struct ds_entry *e)
{
	__atomic_store_n(&e->sequence, e->sequence + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

/* Ends the change: the sequence is even again, and not 0. */
static void close_entry(struct ds_entry *e)
{
	uint32_t s = e->sequence + 1;

	__atomic_store_n(&e->sequence, s ? s : 2, __ATOMIC_RELEASE);
}

/* An entry that no open connection uses; NULL: there is none. The lowest first: a reader reads the
 * table as far as it has ever been used. */
static struct ds_entry *unused(void)
{
	for (uint32_t i = 0; i < ENTRIES / 64; i++)
		if (~taken[i]) {
			const uint32_t bit = (uint32_t)__builtin_ctzll(~taken[i]);

			taken[i] |= 1ull << bit;
			return entry(i * 64 + bit);
		}
	for (uint32_t tries = 0; tries < ENTRIES; tries++) {
		struct ds_entry *e = entry(next_entry++ % ENTRIES);

		if (e->mode == DS_MODE_CLOSED)
			return e;
	}
	return NULL;
}

/* The time of day in ns. */
static uint64_t time_of_day(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct ds_entry *ds_stats_get(int fd, int side, const struct ds_info *info)
{
	struct ds_entry *e;

	if (ds_stats_fd() < 0)
		return NULL;
	e = unused();
	if (!e)
		return NULL;
	open_entry(e);
	e->mode = DS_MODE_TCP;
	e->side = (uint8_t)side;
	e->reason = DS_WHY_NOT_YET;
	e->device = info->port[1] & 0xf;
	e->fd = (uint32_t)fd;
	e->path = e->summed = e->udp = e->off = 0;
	e->heeds = 1;
	memset(e->draw, 0, sizeof e->draw);
	memcpy(e->addr, info->addr, sizeof e->addr);
	memcpy(e->port, info->port, sizeof e->port);
	e->time = time_of_day();
	memset(e->counters, 0, sizeof e->counters);
	close_entry(e);
	return e;
}

/* The sum of what connections to remote have moved through shared memory; NULL: there is no room
 * for one. */
static struct ds_entry *sum_of(const uint8_t *local, const uint8_t *remote)
{
	struct ds_entry *e;
	int i;

	for (i = 0; i < SUMS && sums[i]; i++)
		if (memcmp(sums[i]->addr[1], remote, sizeof sums[i]->addr[1]) == 0)
			return sums[i];
	e = i < SUMS ? unused() : NULL;
	if (!e)
		return NULL;
	open_entry(e);
	memset(&e->mode, 0, sizeof *e - offsetof(struct ds_entry, mode));
	e->mode = DS_MODE_SUM;
	e->path = DS_PATH_MEMORY;
	memcpy(e->addr[0], local, sizeof e->addr[0]);
	memcpy(e->addr[1], remote, sizeof e->addr[1]);
	close_entry(e);
	sums[i] = e;
	return e;
}

/* Adds what a connection has moved to the sum of its other end's address. false: it has none. */
static bool add_up(struct ds_entry *e)
{
	struct ds_entry *sum;

	if (e->path != DS_PATH_MEMORY || e->counters[DS_C_SENT] + e->counters[DS_C_RECEIVED] == 0)
		return true;
	sum = sum_of(e->addr[e->side & 1], e->addr[!(e->side & 1)]);
	if (!sum)
		return false;
	__atomic_store_n(&e->summed, 1, __ATOMIC_RELEASE); /* first, so that nobody counts it twice */
	for (int i = 0; i < DS_COUNTERS; i++)
		if (i != DS_C_RING_USED && i != DS_C_RING)
			__atomic_fetch_add(&sum->counters[i], e->counters[i], __ATOMIC_RELEASE);
	return true;
}

void ds_stats_put(struct ds_entry *e, bool keep)
{
	if (!e)
		return;
	const uint32_t i = (uint32_t)(e - entry(0));
	const bool summed = add_up(e);

	__atomic_store_n(&e->mode, DS_MODE_CLOSED, __ATOMIC_RELEASE);
	if (summed && !keep)
		taken[i / 64] &= ~(1ull << i % 64);
}

void ds_stats_child(void)
{
	if (stats_fd >= 0) {
		ds_unmap(table, HEAD + (size_t)ENTRIES * sizeof(struct ds_entry));
		ds_fd_close(stats_fd);
	}
	stats_fd = -1;
	table = NULL;
	memset(sums, 0, sizeof sums);
}

void ds_stats_say(struct ds_entry *e, int mode, int reason)
{
	if (!e)
		return;
	__atomic_store_n(&e->reason, (uint8_t)reason, __ATOMIC_RELAXED);
	__atomic_store_n(&e->mode, (uint8_t)mode, __ATOMIC_RELEASE);
}

/* The connection becomes direct: the upper half of its ring's size says when. */
static void direct_now(struct ds_entry *e)
{
	enum { UNIT = 10000000 }; /* ns */
	const uint64_t now = time_of_day();
	uint64_t *ring = &e->counters[DS_C_RING], units = now > e->time ? (now - e->time) / UNIT + 1 : 1;

	if (units > UINT32_MAX)
		units = UINT32_MAX;
	__atomic_store_n(ring, (__atomic_load_n(ring, __ATOMIC_RELAXED) & UINT32_MAX) | units << 32, __ATOMIC_RELAXED);
}

void ds_stats_direct(struct ds_entry *e, int path)
{
	if (e && __atomic_load_n(&e->mode, __ATOMIC_RELAXED) != DS_MODE_DIRECT)
		direct_now(e);
	if (e)
		__atomic_store_n(&e->path, (uint8_t)path, __ATOMIC_RELAXED);
	ds_stats_say(e, DS_MODE_DIRECT, DS_WHY_NOTHING);
}

uint64_t *ds_stats_counters(struct ds_entry *e) { return e ? e->counters : nowhere; }

void ds_stats_follow(struct ds_entry *e, struct ds_seg *g)
{
	static const uint8_t on;

	g->counters = ds_stats_counters(e);
	g->off = e ? &e->off : &on;
	if (e)
		memcpy(e->draw, g->info.nonce, sizeof e->draw);
}

void ds_stats_flow(struct ds_entry *e, const uint8_t nonce[16])
{
	if (!e)
		return;
	e->udp = 1;
	memcpy(e->draw, nonce, sizeof e->draw);
}

#include "conn/stats.h"

#include "conn/fds.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ENTRIES = 16384, HEAD = 256 };

static int stats_fd = -1;
static uint8_t *table;
static uint32_t next_entry;
static uint64_t nowhere[DS_COUNTERS];

/* The i-th entry of the table. */
static struct ds_entry *entry(uint32_t i) { return (struct ds_entry *)(void *)(table + HEAD + (size_t)i * sizeof(struct ds_entry)); }

int ds_stats_fd(void)
{
	const size_t size = HEAD + (size_t)ENTRIES * sizeof(struct ds_entry);
	uint32_t version = 1, entries = ENTRIES, pid = (uint32_t)getpid();
	uint8_t *m;
	int fd;

	if (stats_fd >= 0)
		return stats_fd;
	fd = memfd_create("exnet-ds-stats", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	m = NULL;
	if (ds_truncate(fd, size) == 0 && REAL(fcntl)(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		m = ds_map_new(fd, size);
	if (!m) {
		REAL(close)(fd);
		return -1;
	}
	memcpy(m + 8, &version, 4);
	memcpy(m + 12, &entries, 4);
	memcpy(m + 16, &pid, 4);
	memcpy(m, "EXTDSST\x01", 8);
	table = m;
	next_entry = 0;
	stats_fd = ds_fd_keep(fd);
	return stats_fd;
}

/* Opens an entry for a change: its sequence is odd until close_entry. */
static void open_entry(struct ds_entry *e) { __atomic_fetch_add(&e->sequence, 1, __ATOMIC_ACQ_REL); }

/* The change is done: the sequence is even again, and not 0. */
static void close_entry(struct ds_entry *e)
{
	uint32_t s = e->sequence + 1;

	__atomic_store_n(&e->sequence, s ? s : 2, __ATOMIC_RELEASE);
}

struct ds_entry *ds_stats_get(int fd, int side, const struct ds_info *info)
{
	struct ds_entry *e = NULL;
	struct timespec now;

	if (ds_stats_fd() < 0)
		return NULL;
	for (uint32_t tries = 0; tries < ENTRIES; tries++) {
		e = entry(next_entry++ % ENTRIES);
		if (e->sequence == 0 || e->mode == DS_MODE_CLOSED)
			break;
		e = NULL;
	}
	if (!e)
		return NULL;
	clock_gettime(CLOCK_REALTIME, &now);
	open_entry(e);
	e->mode = DS_MODE_TCP;
	e->side = (uint8_t)side;
	e->reason = DS_WHY_NOT_YET;
	e->device = info->port[1] & 0xf;
	e->fd = (uint32_t)fd;
	memcpy(e->addr, info->addr, sizeof e->addr);
	memcpy(e->port, info->port, sizeof e->port);
	e->time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	memset(e->counters, 0, sizeof e->counters);
	close_entry(e);
	return e;
}

void ds_stats_put(struct ds_entry *e)
{
	if (e)
		__atomic_store_n(&e->mode, DS_MODE_CLOSED, __ATOMIC_RELEASE);
}

void ds_stats_child(void)
{
	if (stats_fd >= 0) {
		REAL(munmap)(table, HEAD + (size_t)ENTRIES * sizeof(struct ds_entry));
		ds_fd_close(stats_fd);
	}
	stats_fd = -1;
	table = NULL;
}

void ds_stats_say(struct ds_entry *e, int mode, int reason)
{
	if (!e)
		return;
	__atomic_store_n(&e->reason, (uint8_t)reason, __ATOMIC_RELAXED);
	__atomic_store_n(&e->mode, (uint8_t)mode, __ATOMIC_RELEASE);
}

uint64_t *ds_stats_counters(struct ds_entry *e) { return e ? e->counters : nowhere; }

/* The statistics of this process: a memfd that the broker maps for reading (SPEC 6.3). */
#ifndef DS_STATS_H
#define DS_STATS_H

#include "segment/segment.h"

enum { DS_MODE_TCP = 1, DS_MODE_DIRECT, DS_MODE_DEMOTED, DS_MODE_CLOSED, DS_MODE_SUM };
enum { DS_PATH_MEMORY = 1, DS_PATH_FABRIC, DS_PATH_RDMA };

enum {
	DS_WHY_NOTHING, DS_WHY_NOT_YET, DS_WHY_NO_BROKER, DS_WHY_NO_LISTENER, DS_WHY_RULE, DS_WHY_OFFERED, DS_WHY_REFUSED,
	DS_WHY_NO_MEMORY, DS_WHY_PROGRAM, DS_WHY_PEER, DS_WHY_BREACH, DS_WHY_UNSUPPORTED_CALL, DS_WHY_ADDRESS_NOT_WANTED,
	DS_WHY_NO_OFFER, DS_WHY_SHARED, DS_WHY_BUSY, DS_WHY_EXPIRED, DS_WHY_UNREACHABLE, DS_WHY_STREAM, DS_WHY_VERSION,
	DS_WHY_SILENT, DS_WHY_NO_RULE, DS_WHY_IDLE, DS_WHY_NETWORK, DS_WHY_NO_PAIR, DS_WHY_NO_DIAG,
	DS_WHY_SWITCHED_OFF,
};

struct ds_entry {
	uint32_t sequence;
	uint8_t mode, side, reason, device;
	uint32_t fd;
	uint8_t path, summed, udp, heeds;
	uint8_t addr[2][16];
	uint16_t port[2];
	uint8_t off; /* the broker's: it has switched the connection off */
	uint8_t draw[3];
	uint64_t time;
	uint64_t counters[DS_COUNTERS];
};
_Static_assert(sizeof(struct ds_entry) == 256, "entry");
_Static_assert(offsetof(struct ds_entry, off) == 52, "off");
_Static_assert(offsetof(struct ds_entry, counters) == 64, "counters");

/* The descriptor of the memfd, made at the first call; -1: it cannot be made. The caller serialises
 * these four. */
int ds_stats_fd(void) DS_HIDDEN;
bool ds_stats_made(void) DS_HIDDEN;
/* An entry for a connection; NULL: none is free. */
struct ds_entry *ds_stats_get(int fd, int side, const struct ds_info *info) DS_HIDDEN;
/* The connection is closed. With keep, or where its figures are in no sum, its entry shows it until
 * all others are used; else the next connection has it. */
void ds_stats_put(struct ds_entry *e, bool keep) DS_HIDDEN;
/* In the child of a fork: the existing memfd is the parent's. */
void ds_stats_child(void) DS_HIDDEN;

/* Sets the mode of the connection, and the reason. e may be NULL. */
void ds_stats_say(struct ds_entry *e, int mode, int reason) DS_HIDDEN;
/* The connection is direct, by a path DS_PATH_... */
void ds_stats_direct(struct ds_entry *e, int path) DS_HIDDEN;
/* The DS_COUNTERS words of e or, if it is NULL, words that nobody reads. */
uint64_t *ds_stats_counters(struct ds_entry *e) DS_HIDDEN;
/* The connection of e has the segment g, which counts there from now on, and looks there whether
 * the broker has switched it off. */
void ds_stats_follow(struct ds_entry *e, struct ds_seg *g) DS_HIDDEN;
/* A flow has e, which may be NULL, and this nonce. */
void ds_stats_flow(struct ds_entry *e, const uint8_t nonce[16]) DS_HIDDEN;
/* Has the broker switched off what has e, which may be NULL? */
static inline bool ds_stats_off(const struct ds_entry *e) { return e && __atomic_load_n(&e->off, __ATOMIC_RELAXED); }

#endif

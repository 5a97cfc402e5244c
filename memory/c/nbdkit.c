/* The nbdkit plugin exnet: a block device in the memory of other nodes (docs/memory.md). */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "exnmem.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

enum { MIRRORS = 8 };

static int64_t size = -1;
static int nodes[MIRRORS], wanted;
static int huge;
static const char *node_socket;

/* copies are the leases; each has all data. One that has failed is not used any more: that is the
 * end of a copy, and the only thing that changes with it. */
static struct exnmem *copies[MIRRORS];
static atomic_bool failed[MIRRORS];
static int count;

/* reader is the copy that reads ask first: the one that has answered last where another was late.
 * */
static atomic_int reader;

/* How long a change waits for the other copies when one has it, in seconds. */
static unsigned patience = 10;

/* How long a read waits before it asks another copy as well, and how long either waits for one copy
 * before it looks at the next. */
enum { LATE_MSEC = 100, LOOK_MSEC = 20 };

static int parse_nodes(const char *key, const char *value, bool several) {
	char *list = strdup(value), *rest = NULL;
	int r = list ? 0 : -1;
	for (char *one = list ? strtok_r(list, ",", &rest) : NULL; one && r == 0; one = strtok_r(NULL, ",", &rest)) {
		uint16_t n;
		if (wanted == (several ? MIRRORS : 1)) {
			nbdkit_error("%s=%s: use up to %d nodes", key, value, several ? MIRRORS : 1);
			r = -1;
		} else if (nbdkit_parse_uint16_t(key, one, &n) < 0) {
			r = -1;
		} else {
			for (int i = 0; i < wanted; i++)
				if (nodes[i] == n) {
					nbdkit_error("%s=%s: node %d appears twice", key, value, n);
					r = -1;
				}
			nodes[wanted++] = n;
		}
	}
	free(list);
	if (r == 0 && several && wanted < 2) {
		nbdkit_error("%s=%s: name two nodes or more, as in mirror=3,4", key, value);
		r = -1;
	}
	return r;
}

static int config(const char *key, const char *value) {
	if (strcmp(key, "size") == 0)
		return (size = nbdkit_parse_size(value)) < 0 ? -1 : 0;
	if (strcmp(key, "huge") == 0)
		return (huge = nbdkit_parse_bool(value)) < 0 ? -1 : 0;
	if (strcmp(key, "socket") == 0)
		return node_socket = value, 0;
	if (strcmp(key, "node") == 0 || strcmp(key, "mirror") == 0) {
		if (wanted > 0) {
			nbdkit_error("node and mirror say the same: use one of them, once");
			return -1;
		}
		return parse_nodes(key, value, key[0] == 'm');
	}
	if (strcmp(key, "patience") == 0)
		return nbdkit_parse_unsigned(key, value, &patience);
	nbdkit_error("unknown parameter %s: use size, node, mirror, patience, huge or socket", key);
	return -1;
}

static int config_complete(void) {
	if (size >= 0)
		return 0;
	nbdkit_error("say how large the device is, as in size=2G");
	return -1;
}

static int get_ready(void) {
	char why[256] = "";
	count = wanted > 0 ? wanted : 1;
	for (int i = 0; i < count; i++) {
		struct exnmem_config c = {.socket = node_socket, .node = wanted > 0 ? nodes[i] : -1, .size = (uint64_t)size, .huge = huge};
		if (!(copies[i] = exnmem_borrow(&c, why, sizeof(why)))) {
			nbdkit_error("%s", why[0] ? why : strerror(errno));
			return -1;
		}
		nbdkit_debug("copy %d is on node %d", i, exnmem_lender(copies[i]));
	}
	return 0;
}

static int after_fork(void) {
	for (int i = 0; i < count; i++)
		if (exnmem_watch(copies[i]) < 0) {
			nbdkit_error("thread: %m");
			return -1;
		}
	return 0;
}

static void unload(void) {
	for (int i = 0; i < count; i++)
		if (copies[i])
			exnmem_return(copies[i]);
}

static void *open_device(int readonly) {
	(void)readonly;
	return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t get_size(void *h) {
	(void)h;
	return size;
}

static int yes(void *h) {
	(void)h;
	return 1;
}

static int no(void *h) {
	(void)h;
	return 0;
}

static int native(void *h) {
	(void)h;
	return NBDKIT_FUA_NATIVE;
}

static int block_size(void *h, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum) {
	(void)h;
	*minimum = 1;
	*preferred = EXNMEM_PAGE;
	*maximum = 64 << 20;
	return 0;
}

/* fail notes that a copy is lost, whatever the error is: it may have other bytes than the rest from
 * now on. nbdkit itself refuses what is not within the device. */
static void fail(int i, int e) {
	if (count == 1 && e != ESTALE && e != EIO)
		return; /* there is no other copy that it could differ from */
	if (!atomic_exchange(&failed[i], true))
		nbdkit_error("the copy on node %d is lost: %s", exnmem_lender(copies[i]),
			     e == ESTALE ? "its lender has taken the memory back" :
			     e == EIO ? "its lender is gone" :
			     e == ETIMEDOUT ? "its lender does not answer" : "an access was refused");
}

/* after returns a time of CLOCK_MONOTONIC. */
static struct timespec after(long msec) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += msec / 1000;
	t.tv_nsec += msec % 1000 * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_nsec -= 1000000000;
		t.tv_sec++;
	}
	return t;
}

static bool before(const struct timespec *a, const struct timespec *b) {
	return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* request is a read, or a change, of one copy. */
struct request {
	struct exnmem_op op;
	enum { IDLE, ASKED, DONE, REFUSED } state;
};

static void begin_request(struct request *r, int i, enum exnmem_kind kind, void *here, uint32_t n, uint64_t at) {
	r->state = atomic_load(&failed[i]) ? REFUSED : ASKED;
	exnmem_begin(&r->op, copies[i], kind, here, n, at);
}

/* look waits for a copy's answer for some time. A copy that has failed meanwhile refuses. */
static void look(struct request *r, int i, long msec) {
	struct timespec until = after(msec);
	if (r->state != ASKED)
		return;
	if (exnmem_wait(&r->op, count > 1 ? &until : NULL) == 0) {
		r->state = DONE;
	} else if (errno != ETIMEDOUT) {
		r->state = REFUSED;
		fail(i, errno);
	}
}

/* read_device asks one copy, and the next ones as well if it is late. */
static int read_device(void *h, void *to, uint32_t n, uint64_t at, uint32_t flags) {
	struct request all[MIRRORS] = {{.state = IDLE}};
	int first = atomic_load(&reader), found = -1;
	(void)h;
	(void)flags;
	for (bool asked = true; found < 0 && asked;) {
		asked = false;
		for (int k = 0; k < count && found < 0; k++) {
			int i = (first + k) % count;
			long msec = LOOK_MSEC;
			if (all[i].state == IDLE) {
				begin_request(&all[i], i, EXNMEM_READ, to, n, at);
				msec = LATE_MSEC;
			}
			look(&all[i], i, msec);
			asked = asked || all[i].state == ASKED;
			if (all[i].state == DONE)
				found = i;
		}
	}
	for (int i = 0; i < count; i++)
		if (all[i].state == ASKED)
			exnmem_leave(&all[i].op);
	if (found < 0) {
		nbdkit_set_error(EIO);
		return -1;
	}
	if (found != first)
		atomic_store(&reader, found);
	return 0;
}

/* changes are the ranges of a device with mirrors that are being changed. No two overlap: of two
 * changes at once, every copy is to have the same one last. */
struct range {
	uint64_t at, end;
	struct range *next;
};

static struct range *changes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

static bool overlaps(const struct range *c) {
	for (const struct range *o = changes; o; o = o->next)
		if (o->at < c->end && c->at < o->end)
			return true;
	return false;
}

/* begin waits until a range can be changed. */
static void begin(struct range *c) {
	pthread_mutex_lock(&lock);
	while (overlaps(c))
		pthread_cond_wait(&ended, &lock);
	c->next = changes;
	changes = c;
	pthread_mutex_unlock(&lock);
}

static void end(struct range *c) {
	pthread_mutex_lock(&lock);
	struct range **p = &changes;
	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&lock);
}

/* changed counts the copies that have a change, and are of use still. */
static int changed(const struct request *all) {
	int n = 0;
	for (int i = 0; i < count; i++)
		n += all[i].state == DONE && !atomic_load(&failed[i]);
	return n;
}

/* left is how much is to be done yet for a change, over all copies that it waits for. */
static uint64_t left(const struct request *all) {
	uint64_t n = 0;
	for (int i = 0; i < count; i++)
		if (all[i].state == ASKED)
			n += exnmem_left(&all[i].op);
	return n;
}

/* give_up ends the copies that a change waits for, unless no other copy has it: of two changes that
 * wait for each other's copy, only one ends the other's. */
static void give_up(struct request *all) {
	bool ends[MIRRORS] = {false};
	pthread_mutex_lock(&lock);
	for (int i = 0; changed(all) > 0 && i < count; i++)
		if (all[i].state == ASKED) {
			all[i].state = REFUSED;
			ends[i] = true;
			fail(i, ETIMEDOUT);
		}
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < count; i++)
		if (ends[i])
			exnmem_give_up(copies[i]);
}

/* change has each copy changed. It is done if one is left. */
static int change(enum exnmem_kind kind, const void *from, uint32_t n, uint64_t at) {
	struct range r = {.at = at, .end = at + n};
	struct request all[MIRRORS];
	struct timespec until = {0};
	uint64_t was = 0; /* left at the last look; 0: no copy has the change */
	if (count > 1)
		begin(&r);
	for (int i = 0; i < count; i++)
		begin_request(&all[i], i, kind, (void *)(uintptr_t)from, n, at);
	for (;;) {
		for (int i = 0; i < count; i++)
			look(&all[i], i, LOOK_MSEC);
		uint64_t now = left(all);
		if (now == 0)
			break;
		struct timespec time = after(0);
		if (changed(all) == 0)
			was = 0;
		else if (now != was)
			was = now, until = after(patience * 1000L);
		else if (before(&until, &time))
			give_up(all);
	}
	int done = changed(all);
	if (count > 1)
		end(&r);
	if (done > 0)
		return 0;
	nbdkit_set_error(EIO);
	return -1;
}

static int write_device(void *h, const void *from, uint32_t n, uint64_t at, uint32_t flags) {
	(void)h;
	(void)flags; /* FUA: it is there when this returns */
	return change(EXNMEM_WRITE, from, n, at);
}

static int zero(void *h, uint32_t n, uint64_t at, uint32_t flags) {
	(void)h;
	(void)flags;
	return change(EXNMEM_ZERO, NULL, n, at);
}

static int flush(void *h, uint32_t flags) {
	(void)h;
	(void)flags;
	char one;
	return read_device(h, &one, 1, 0, 0); /* EIO if no copy is left */
}

static int extents(void *h, uint32_t n, uint64_t at, uint32_t flags, struct nbdkit_extents *list) {
	(void)h;
	int i = 0;
	while (i < count - 1 && atomic_load(&failed[i]))
		i++;
	for (uint64_t end = at + n; at < end;) {
		uint64_t data = exnmem_next(copies[i], at, true);
		if (data > at && nbdkit_add_extent(list, at, data - at, NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO) < 0)
			return -1;
		at = data;
		if (at >= end || (data > at && flags & NBDKIT_FLAG_REQ_ONE))
			break;
		uint64_t hole = exnmem_next(copies[i], at, false);
		if (hole <= at)
			hole = end;
		if (nbdkit_add_extent(list, at, hole - at, 0) < 0)
			return -1;
		at = hole;
	}
	return 0;
}

static struct nbdkit_plugin plugin = {
	.name = "exnet",
	.longname = "a block device in the memory of other nodes",
	.description = "The device is a lease on the memory of a node, which is up with exn-tun up --lend SIZE.",
	.config = config,
	.config_complete = config_complete,
	.config_help = "size=SIZE      of the device, a multiple of 4096\n"
		       "node=N         whose memory it is (the nearest that has enough)\n"
		       "mirror=N,M     these nodes have a copy each\n"
		       "patience=SECONDS  how long changes wait for a copy when another has them (10)\n"
		       "huge=true      huge pages of 2 MiB\n"
		       "socket=NAME    of the node of this host ($EXN_MEMORY, or @exn-memory)",
	.magic_config_key = "size",
	.get_ready = get_ready,
	.after_fork = after_fork,
	.unload = unload,
	.open = open_device,
	.get_size = get_size,
	.block_size = block_size,
	.can_flush = yes,
	.can_trim = yes,
	.can_zero = yes,
	.can_fast_zero = yes,
	.can_fua = native,
	.can_multi_conn = yes,
	.can_extents = yes,
	.is_rotational = no,
	.pread = read_device,
	.pwrite = write_device,
	.flush = flush,
	.trim = zero,
	.zero = zero,
	.extents = extents,
	.errno_is_preserved = 0,
};

NBDKIT_REGISTER_PLUGIN(plugin)

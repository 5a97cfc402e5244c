/* The process: its handles of connections, its segments, and fork. */
#include "conn/broker.h"
#include "conn/fds.h"
#include "conn/inner.h"
#include "conn/rules.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum {
	POOL = 256,    /* handles made at a time */
	POOLS = 4096,
	/* Offers that can be repeated: each has two descriptors. A broker takes 1024. */
	KEPT_LEAST = 64,
	KEPT_MOST = 960,
	MAX_SEGMENTS = 16384, /* each is a mapping, of which a process has 65530 */
};

unsigned ds_gen;

static struct ds_lock setup; /* guards all below, the broker and the statistics */
static bool fork_locked;
static struct ds_sock *pools[POOLS];
static unsigned npools;
static unsigned nmade; /* handles that were ever in use: pages of the others are not touched */
static struct ds_sock *unused;
static unsigned segments, kept;

/* What could not be done because this thread itself held the lock: its holder does it before it
 * unlocks. */
enum { LATER = 64 };

static struct later {
	void (*run)(void *arg);
	void *arg;
} later[LATER];
static uint32_t nlater;

/* With the lock of setup, whose last holder stopped in the middle: rebuilds the list of handles,
 * and hangs up. */
static void recover(void)
{
	unused = NULL;
	for (unsigned i = nmade; i-- > 0;) {
		struct ds_sock *s = &pools[i / POOL][i % POOL];

		if (ds_open(s))
			continue;
		s->next_free = unused;
		unused = s;
	}
	ds_broker_child();
}

/* True if how says that the lock of setup was taken. Mends what its last holder has left. */
static bool taken(int how)
{
	if (how == DS_INHERITED)
		recover();
	return how != DS_NESTED;
}

bool ds_setup_used;

bool ds_setup_try(void)
{
	DS_SET(ds_setup_used, true);
	return taken(ds_own_try(&setup));
}

bool ds_setup_lock(void)
{
	DS_SET(ds_setup_used, true);
	return taken(ds_own_lock(&setup));
}

void (*ds_setup_due)(void);

void ds_setup_unlock(void)
{
	while (__builtin_expect(__atomic_load_n(&nlater, __ATOMIC_ACQUIRE) != 0, 0)) {
		uint32_t n = __atomic_sub_fetch(&nlater, 1, __ATOMIC_ACQ_REL);

		later[n].run(later[n].arg);
	}
	void (*run)(void) = __atomic_load_n(&ds_setup_due, __ATOMIC_ACQUIRE);
	if (__builtin_expect(run != NULL, 0))
		run();
	ds_own_unlock(&setup);
}

void ds_setup_do(void (*run)(void *arg), void *arg)
{
	if (ds_setup_lock()) {
		run(arg);
		ds_setup_unlock();
		return;
	}
	/* This thread holds it, so nobody else is here. */
	uint32_t n = __atomic_load_n(&nlater, __ATOMIC_RELAXED);
	if (n == LATER)
		return; /* it stays open until the process ends */
	later[n] = (struct later){run, arg};
	__atomic_store_n(&nlater, n + 1, __ATOMIC_RELEASE);
}

struct ds_sock *ds_handle(void)
{
	struct ds_sock *s = unused;

	if (!s) {
		if (nmade == npools * POOL) {
			if (npools == POOLS)
				return NULL;
			s = REAL(mmap, NULL, POOL * sizeof *s, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (s == MAP_FAILED)
				return NULL;
			pools[npools++] = s;
		}
		s = &pools[nmade / POOL][nmade % POOL];
		s->index = nmade;
		__atomic_store_n(&nmade, nmade + 1, __ATOMIC_RELEASE); /* recover finds it whole */
	}
	unused = s->next_free;
	uint32_t index = s->index, id = s->id;
	memset(s, 0, sizeof *s);
	s->index = index;
	s->id = ((id >> 20) + 1) % 2048 << 20 | index; /* below those of listeners */
	s->wakefd = s->leadfd = s->granted = -1;
	s->seg.bell = -1;
	DS_SET(s->offered[0], -1);
	DS_SET(s->offered[1], -1);
	s->lowat = 1;
	s->spinner.budget = 20000;
	return s;
}

struct ds_sock *ds_by_id(uint32_t id)
{
	uint32_t i = id & (POOL * POOLS - 1);

	if (i >= nmade)
		return NULL;
	struct ds_sock *s = &pools[i / POOL][i % POOL];
	return ds_open(s) && s->id == id ? s : NULL;
}

_Static_assert(POOL * POOLS == 1 << 20, "ids");

void ds_handle_put(struct ds_sock *s)
{
	ds_on(s, CONN_ON_END);
	s->next_free = unused;
	unused = s;
}

/* Why s, which this process has from its parent and which has no segment, is on TCP. */
static int why_tcp(const struct ds_sock *s)
{
	int why = s->sh ? 0 : rules_decide(s->side, s->info.addr[1], s->info.port[1]);

	if (!s->sh)
		return why ? why : DS_WHY_NO_MEMORY;
	if (ds_state_of(s) <= CONN_LEFT)
		return DS_WHY_PROGRAM;
	if (!ds_single(s))
		return DS_WHY_SHARED;
	return s->side ? DS_WHY_NO_OFFER : DS_WHY_NOT_YET;
}

/* Connected to a broker, for the first time or again: connections no longer wait for the one before
 * it. */
void ds_broker_is_new(void)
{
	for (unsigned i = 0; i < nmade; i++) {
		struct ds_sock *s = &pools[i / POOL][i % POOL];

		if (!ds_open(s))
			continue;
		if (s->state == CONN_CLAIMED)
			ds_on(s, CONN_ON_NONE);
		if (s->state == CONN_EARLY && s->entry && ds_is_absent(ds_mode(&s->entry->reason)))
			ds_stats_say(s->entry, DS_MODE_TCP, s->side ? DS_WHY_NO_OFFER : DS_WHY_NOT_YET);
		__atomic_store_n(&s->refused, 0, __ATOMIC_RELAXED); /* its page counts from 0 */
		if (!s->entry && (s->entry = ds_stats_get(-1, s->side, &s->info))) {
			ds_stats_follow(s->entry, &s->seg);
			if (ds_has_segment(s))
				ds_say_again(s);
			else
				ds_stats_say(s->entry, DS_MODE_TCP, why_tcp(s));
		}
	}
}

/* ---- segments ----------------------------------------------------------------------- */

bool ds_segment_room(bool offers) { return segments < MAX_SEGMENTS && ds_room(offers); }

void ds_segment_made(void) { segments++; }

void ds_granted_close(struct ds_sock *s)
{
	if (s->granted >= 0)
		ds_fd_close(s->granted);
	s->granted = -1;
}

/* Takes the segment away again, before anything was promoted: with the gate shut, or before the
 * bell was known. */
void ds_drop(struct ds_sock *s)
{
	int bell = s->seg.bell;

	ds_granted_close(s);
	ds_sharer_drop(s);
	if (s->seg.mem) {
		ds_seg_unmap(&s->seg);
		segments--;
	}
	s->seg.bell = -1;
	if (bell >= 0 && s->no_rights)
		ds_fd_close(bell);
	else if (bell >= 0)
		ds_fd_abandon(bell);
}

bool ds_offers_full(void) { return kept >= KEPT_MOST; }

bool ds_offer_keep(struct ds_sock *s, int segment, int bell)
{
	unsigned most = ds_fds_most() / (ds_fds_scarce() ? 64 : 16);

	if (ds_offers_full() || (kept >= most && (kept >= KEPT_LEAST || ds_fds_scarce())))
		return false;
	kept++;
	s->offered[0] = ds_fd_keep(segment, &s->offered[0]);
	DS_SET(s->offered[1], ds_fd_keep(bell, &s->offered[1]));
	return true;
}

void ds_offer_once(struct ds_sock *s)
{
	if (s->offered[1] < 0)
		return;
	ds_fd_close(s->offered[0]);
	ds_fd_close(s->offered[1]);
	DS_SET(s->offered[0], -1);
	DS_SET(s->offered[1], -1);
	DS_SET(s->retry, 0);
	kept--;
}

/* ---- fork -------------------------------------------------------------------------- */

void ds_count_process(struct ds_sock *s, int by)
{
	if (!s->sh)
		return;
	__atomic_fetch_add(&s->sh->refs, (uint32_t)by, __ATOMIC_ACQ_REL);
	ds_sharer_fork(s, by);
}

static struct ds_sock *forks_for; /* with the lock of setup: as of ds_fork_prepare_for */

/* With the lock of setup: counts one process more for every open connection that a child has or,
 * with by = -1, one less. */
static void each_shared(int by)
{
	for (unsigned i = 0; i < nmade; i++) {
		struct ds_sock *s = &pools[i / POOL][i % POOL];

		if (ds_open(s) && (!forks_for || s == forks_for))
			ds_count_process(s, by);
	}
}

/* With the lock of setup: the process has more than one connection, of which it may have both
 * ends. */
static bool several(void)
{
	int n = 0;

	for (unsigned i = 0; i < nmade && n <= 2; i++)
		n += ds_open(&pools[i / POOL][i % POOL]);
	return n > 2;
}

void ds_sharer_forking(struct ds_sock *s)
{
	if (!ds_one_thread() || ds_state_of(s) != CONN_EARLY || !ds_setup_lock())
		return;
	/* While those of several become direct, one after the other, the order of what is sent on
	 * them would not be kept. */
	if (!several())
		ds_sharer_pair(s);
	ds_setup_unlock();
}

void ds_fork_prepare_for(struct ds_sock *only)
{
	fork_locked = ds_setup_lock();
	forks_for = only;
	if (fork_locked)
		ds_name_share(ds_fd_fix);
	each_shared(1);
	for (unsigned i = 0; i < nmade; i++) {
		struct ds_sock *s = &pools[i / POOL][i % POOL];

		if (ds_open(s) && s->life) /* not one that is being inherited, or made if there is no lock */
			ds_life_flags(s->life, false); /* the other process may change it, and end */
	}
}

void ds_fork_parent(pid_t pid)
{
	if (pid < 0)
		each_shared(-1);
	forks_for = NULL;
	if (fork_locked)
		ds_setup_unlock();
}

void ds_fork_child(void)
{
	forks_for = NULL;
	ds_me_child();
	ds_arena_child();
	ds_config.expedited = ds_config.expedite && ds_expedite();
	for (unsigned i = 0; i < nmade; i++) {
		struct ds_sock *s = &pools[i / POOL][i % POOL];

		if (!ds_open(s))
			continue;
		if (s->state == CONN_GRANTED) /* it is the parent's */
			ds_drop(s);
		if (s->state == CONN_CLAIMED || s->state == CONN_GRANTED)
			ds_on(s, CONN_ON_NONE);
		ds_offer_once(s); /* the parent repeats it */
		s->arming = (struct ds_lock){0}; /* its sleepers are the parent's */
		s->leading = s->sets = s->pollers = 0;
		if (s->leadfd >= 0) /* the parent reads it */
			ds_fd_close(s->leadfd);
		s->leadfd = -1;
		s->entry = NULL;
		if (s->seg.mem)
			ds_stats_follow(NULL, &s->seg);
	}
	ds_broker_child();
	ds_stats_child();
	if (fork_locked)
		ds_setup_unlock();
}

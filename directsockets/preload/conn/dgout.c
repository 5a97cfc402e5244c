/* Flows from a UDP socket, by destination. */
#include "conn/broker.h"
#include "conn/dgram.h"
#include "conn/fds.h"
#include "conn/inner.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum {
	FLOWS = 16384,      /* of the process */
	DRAIN_US = 1000,    /* for the receiver to take all */
	DRY_US = 1000,      /* after the last datagram by the kernel, until its queue says what was lost */
	WAIT_US = 2000,	    /* for a receiver that is behind; */
	BACKOFF = 16,	    /* times WAIT_US that it does not wait after a wait in vain; */
	BACKOFF_MOST = 64,  /* each further one in vain doubles that, up to this */
	ALIVE_US = 1000,
	OTHERS_US = 20000,  /* for room, at once, of a socket that sends to others, too, */
	BRIEF_US = 4000,    /* and of a send that shall not block */
	PATIENT = 16,	    /* datagrams by the kernel after which it waits for that */
	AHEAD = 64,	    /* that the receiver has not taken, after which it waits, too; */
	SHARE = 8,	    /* it waits for an eighth of its time, if it sends to others, too, */
	WAIT_LEFT_US = 8000, /* and so long at once */
	AGAIN_US = 1000000, /* until it is offered again, doubled each time that it is not taken, */
	TRIES = 4,	    /* so often at most */
};

static struct ds_dg_out *flows; /* with the lock of setup, or that of out of their socket */
static uint32_t used;
static struct ds_lock lock;

struct ds_dg_out *ds_dg_out_new(void)
{
	struct ds_dg_out *o = NULL;

	if (!flows) {
		void *p = REAL(mmap, NULL, FLOWS * sizeof *flows, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			return NULL;
		flows = p;
	}
	if (ds_own_lock(&lock) == DS_NESTED)
		return NULL;
	for (uint32_t i = 0; i < used && !o; i++)
		if (!flows[i].open)
			o = &flows[i];
	if (!o && used < FLOWS)
		o = &flows[used++];
	if (o) {
		uint32_t serial = (o->id >> 16) + 1;
		memset(o, 0, sizeof *o);
		o->open = true;
		o->id = 0xe0000000u | (serial & 0x1fff) << 16 | (uint32_t)(o - flows);
		o->alive = -1;
		o->lost = DS_DG_UNKNOWN;
		o->counters = ds_stats_counters(NULL);
	}
	ds_own_unlock(&lock);
	return o;
}

void ds_dg_out_put(struct ds_dg_out *o)
{
	if (o->alive >= 0)
		ds_fd_close(o->alive);
	o->alive = -1;
	__atomic_store_n(&o->open, false, __ATOMIC_RELEASE);
}

struct ds_dg_out *ds_dg_out_by_id(uint32_t id)
{
	uint32_t i = id & 0xffff;

	return i < used && flows[i].open && flows[i].id == id ? &flows[i] : NULL;
}

/* Is the receiver's process gone? Asks the kernel, not often. */
static bool dead(struct ds_dg_out *o, uint64_t now)
{
	if (now - o->checked < ALIVE_US * ds_ticks_us())
		return false;
	o->checked = now;
	return ds_fd_ended(o->alive);
}

/* What has ended a flow; DG_NO_STEP: nothing has. */
static int over(struct ds_dg_out *o, uint64_t now)
{
	if (o->state != DG_OUT_OFFERED)
		return ds_dg_closed(&o->seg) || dead(o, now) ? DG_ON_GONE : DG_NO_STEP;
	uint32_t state = ds_dg_state(&o->seg);
	if (state == DS_ATTACHED)
		return DG_NO_STEP;
	if (state == DS_WITHDRAWN || DS_GET(o->refused))
		return DG_ON_REFUSED;
	return dead(o, now) ? DG_ON_GONE : DG_NO_STEP; /* nobody has the offer any more */
}

/* What the statistics say of that. */
static int why_over(const struct ds_dg_out *o)
{
	if (o->seg.broken)
		return DS_WHY_BREACH;
	if (ds_stats_off(o->entry))
		return DS_WHY_SWITCHED_OFF;
	return o->why ? o->why : o->state == DG_OUT_OFFERED ? DS_WHY_REFUSED : DS_WHY_PEER;
}

/* Ends flows that are over, also of destinations to which nothing is sent any more. */
static void tidy(struct ds_dgram *d)
{
	uint64_t now = ds_ticks();

	if (now - d->tidied < DS_DG_TIDY_US * ds_ticks_us())
		return;
	d->tidied = now;
	for (int i = 0; i < DS_DG_DESTS; i++) {
		struct ds_dg_out *o = d->dests[i].flow;
		int what = o ? over(o, now) : DG_NO_STEP;

		if (what != DG_NO_STEP)
			ds_dg_out_end(d, &d->dests[i], what, why_over(o));
	}
}

/* How many datagrams are under way, as sending says. */
static unsigned under_way(uint64_t sending) { return (unsigned)sending & ((1u << DS_DG_UNDER_BITS) - 1); }

struct ds_dg_dest *ds_dg_dest(struct ds_dgram *d, const uint8_t addr[16], uint16_t port)
{
	uint32_t h = 2166136261u;
	struct ds_dg_dest *free = NULL;

	if (d->connected && d->peer.port == port && !memcmp(d->peer.addr, addr, 16))
		return &d->peer;
	if (d->nout)
		tidy(d);
	for (int i = 8; i < 16; i++)
		h = (h ^ addr[i]) * 16777619u;
	h = ((h ^ port) * 16777619u) >> 7;
	for (unsigned i = 0; i < 4; i++) {
		struct ds_dg_dest *t = &d->dests[(h + i) % DS_DG_DESTS];

		if (t->port == port && !memcmp(t->addr, addr, 16))
			return t;
		if (!t->flow && !under_way(__atomic_load_n(&t->sending, __ATOMIC_RELAXED)) && (!free || t->since < free->since))
			free = t;
	}
	if (!free)
		return NULL;
	memset(free, 0, sizeof *free);
	memcpy(free->addr, addr, 16);
	free->port = port;
	free->since = ds_ticks();
	d->dests[0].since += !d->dests[0].since; /* so that ds_dg_new clears the table */
	return free;
}

void ds_dg_out_end(struct ds_dgram *d, struct ds_dg_dest *dest, int what, int why)
{
	struct ds_dg_out *o = dest->flow;

	if (!o)
		return;
	ds_dg_out_on(o, what);
	__atomic_store_n(&o->seg.out->flags, DS_DG_LEFT, __ATOMIC_SEQ_CST);
	ds_dg_entry_put(o->entry, why);
	o->entry = NULL;
	dest->flow = NULL;
	DS_SET(dest->unknown, false);
	ds_dg_unmap(&o->seg);
	ds_dg_out_put(o);
	d->nout--;
	dest->sent = 0;
	if (ds_is_brokers(why)) /* that does not count */
		dest->since = ds_ticks() + AGAIN_US * ds_ticks_us();
	else
		dest->since = ds_ticks() + ((uint64_t)AGAIN_US << (dest->tries < TRIES ? dest->tries++ : TRIES)) * ds_ticks_us();
}

void ds_dg_leave(struct ds_dgram *d, int why)
{
	for (int i = 0; i <= DS_DG_DESTS; i++) {
		struct ds_dg_dest *t = i < DS_DG_DESTS ? &d->dests[i] : &d->peer;

		ds_dg_out_end(d, t, DG_ON_LEAVE, why);
		t->since = t->sent = t->tries = 0;
	}
}

/* Counts datagrams by the kernel that have been sent, and that the kernel has refused. */
static void count(struct ds_dg_out *o, struct ds_dg_dest *t, uint64_t sent, uint64_t refused)
{
	uint64_t n = t->by_kernel + sent;
	/* The last record that says so (AFTER) may wait for those: the receiver counts them as
	 * lost, and so does the sender. */
	uint64_t waits = o->seg.told > n ? o->seg.told - n : 0, lost = refused < waits ? refused : waits;

	if (sent)
		o->last = ds_ticks();
	o->lost += lost;
	t->by_kernel = n + lost;
	__atomic_store_n(&o->seg.out->by_kernel, t->by_kernel, __ATOMIC_RELEASE);
}

unsigned ds_dg_ended(struct ds_dg_dest *t)
{
	uint64_t v = __atomic_load_n(&t->sending, __ATOMIC_ACQUIRE), ended;

	while (__builtin_expect(v >> DS_DG_UNDER_BITS != 0, 0) &&
	       !__atomic_compare_exchange_n(&t->sending, &v, under_way(v), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	ended = v >> DS_DG_UNDER_BITS;
	if (__builtin_expect(ended != 0, 0) && t->flow)
		count(t->flow, t, ended & ((1u << DS_DG_ENDED_BITS) - 1), ended >> DS_DG_ENDED_BITS);
	return under_way(v);
}

/* Is nothing under way in the kernel? */
static bool settled(struct ds_dg_out *o, struct ds_dg_dest *dest, uint64_t now)
{
	uint64_t taken;
	unsigned under = ds_dg_ended(dest);

	if (o->lost != DS_DG_UNKNOWN && ds_dg_settled(&o->seg, dest->by_kernel + under, o->lost))
		return true;
	if (under || now - o->last < DRY_US * ds_ticks_us() || !ds_dg_dry(&o->seg, dest->by_kernel, &taken))
		return false;
	if (o->shared)
		return true;
	if (o->lost == DS_DG_UNKNOWN)
		o->seg.base = dest->by_kernel - taken;
	o->lost = dest->by_kernel - taken;
	return true;
}

/* How long d may wait for a receiver, which may not mean to catch up: of a socket that sends to
 * others, too, a share of its time. */
static uint64_t allowed(struct ds_dgram *d, uint64_t now)
{
	uint64_t more = (now - d->earned) / SHARE, most = WAIT_LEFT_US * ds_ticks_us();

	if (d->run >= DS_DG_ALONE)
		return UINT64_MAX;
	d->wait_left = more < most && d->wait_left + more < most ? d->wait_left + more : most;
	d->earned = now;
	return d->wait_left;
}

uint64_t ds_dg_spare(const struct ds_dg_out *o)
{
	uint64_t most = (o->brief ? BRIEF_US : o->alone ? DS_DG_CREDIT_US : OTHERS_US) * ds_ticks_us();

	return o->spare < most ? o->spare : most;
}

/* Waits a moment for a receiver that is behind. */
static bool catch_up(struct ds_dgram *d, struct ds_dg_out *o, struct ds_dg_dest *dest)
{
	uint64_t begin = ds_ticks(), now, most = WAIT_US * ds_ticks_us(), may = allowed(d, begin);

	most = most < may ? most : may;

	/* The kernel would drop what the receiver does not take: as for room in the ring, also
	 * while it sleeps, as what has come for it has woken it. */
	if (o->lost != DS_DG_UNKNOWN && !o->brief && ds_dg_spare(o) > most)
		most = ds_dg_spare(o);
	if (!most)
		return false;
	bool done;
	do {
		ds_syscall(SYS_sched_yield);
		now = ds_ticks();
		done = settled(o, dest, now);
	} while (!done && now - begin < most && !ds_dg_closed(&o->seg));
	d->wait_left -= now - begin < d->wait_left ? now - begin : d->wait_left;
	if (done) {
		o->backoff = 0;
		return true;
	}
	o->spare -= now - begin < o->spare ? now - begin : o->spare;
	o->backoff = o->backoff == 0 ? BACKOFF : o->backoff < BACKOFF_MOST ? 2 * o->backoff : BACKOFF_MOST;
	o->waited = now;
	return false;
}

/* Is it time to wait for the receiver? For one that is far behind, and goes on taking, so that its
 * socket does not drop what the kernel carries; and now and then for one that has never been known
 * to have all. */
static bool wait_is_due(struct ds_dg_out *o, const struct ds_dg_dest *dest)
{
	uint64_t taken;

	o->unsettled++;
	if (o->lost != DS_DG_UNKNOWN) {
		ds_dg_dry(&o->seg, dest->by_kernel, &taken);
		if (dest->by_kernel - o->lost - taken >= AHEAD && taken != o->behind) {
			o->behind = taken;
			return true;
		}
	}
	return o->unsettled >= PATIENT && ds_ticks() - o->waited >= (uint64_t)o->backoff * WAIT_US * ds_ticks_us() &&
	       (o->lost == DS_DG_UNKNOWN || !ds_dg_armed(&o->seg));
}

bool ds_dg_drained(struct ds_dg_out *o)
{
	uint64_t begin = ds_ticks();

	while (ds_dg_queued(&o->seg)) {
		if (ds_dg_closed(&o->seg) || ds_ticks() - begin >= DRAIN_US * ds_ticks_us())
			return false;
		ds_syscall(SYS_sched_yield);
	}
	return true;
}

struct ds_dg_out *ds_dg_flow(struct ds_dgram *d, struct ds_dg_dest *dest)
{
	struct ds_dg_out *o = dest->flow;

	if (!o)
		return NULL;
	uint64_t t = ds_ticks();
	int what = over(o, t);
	if (__builtin_expect(o->state == DG_OUT_OFFERED && what == DG_NO_STEP, 0)) {
		if (ds_dg_state(&o->seg) != DS_ATTACHED)
			return NULL;
		ds_dg_out_on(o, DG_ON_ATTACHED);
		dest->tries = 0;
		ds_stats_direct(o->entry, DS_PATH_MEMORY);
		what = over(o, t);
	}
	if (what == DG_NO_STEP && !ds_dg_stands(o, t))
		what = DG_ON_MOVED;
	if (what == DG_NO_STEP && __builtin_expect(ds_stats_off(o->entry), 0) && ds_dg_drained(o)) /* what the kernel carries comes after */
		what = DG_ON_LEAVE;
	if (what == DG_NO_STEP && __builtin_expect(DS_GET(dest->unknown), 0)) {
		ds_dg_drained(o);
		what = DG_ON_LEAVE;
	}
	if (what != DG_NO_STEP) {
		ds_dg_out_end(d, dest, what, DS_GET(dest->unknown) ? DS_WHY_UNSUPPORTED_CALL : why_over(o));
		return NULL;
	}
	unsigned under = ds_dg_ended(dest);
	if (__builtin_expect(o->lost != DS_DG_UNKNOWN && ds_dg_settled(&o->seg, dest->by_kernel + under, o->lost), 1)) {
		o->unsettled = 0;
		return ds_dg_armed(&o->seg) && !ds_dg_unsettled_too(&o->seg) ? NULL : o;
	}
	bool all = settled(o, dest, ds_ticks());
	if (o->lost != DS_DG_UNKNOWN && ds_dg_unsettled_too(&o->seg)) { /* which says AFTER, or is the bell */
		o->unsettled = 0;
		return o;
	}
	if (!all && !(wait_is_due(o, dest) && catch_up(d, o, dest)))
		return NULL;
	o->unsettled = 0;
	return ds_dg_armed(&o->seg) ? NULL : o;
}

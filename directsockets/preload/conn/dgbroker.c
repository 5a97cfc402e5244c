/* What the broker says about UDP sockets (SPEC 10.4). */
#include "conn/broker.h"
#include "conn/dgram.h"
#include "conn/fds.h"
#include "conn/inner.h"
#include "conn/rules.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { REFUSED_US = 16000000 }; /* after which a socket is announced again */

/* Is id one of a UDP socket, or of a flow from one? */
static bool is_socket(uint32_t id) { return id >> 29 == 6; }
static bool is_flow(uint32_t id) { return id >> 29 == 7; }

/* Is what was granted what the segment says, and for this socket? */
static bool fits(const struct ds_dgram *d, const struct ds_dgseg *g, const struct ds_message *m)
{
	static const uint8_t any[16], any4[16] = {[10] = 0xff, [11] = 0xff};
	const uint8_t *own = d->ends.addr[1];

	if (memcmp(g->info.nonce, m->info.nonce, 16) || memcmp(g->info.addr, m->info.addr, 32) || memcmp(g->info.port, m->info.port, 4))
		return false;
	if (d->family == AF_INET && memcmp(g->info.addr[0], any4, 12))
		return false;
	return g->info.port[1] == d->ends.port[1] && (!memcmp(own, any, 16) || !memcmp(own, any4, 16) || !memcmp(own, g->info.addr[1], 16));
}

/* Is the sender, whose number is stored, still the one that the broker has seen? */
static bool stands(const struct ds_message *m, const struct ds_info *i, uint64_t *cookie)
{
	return ds_dg_reached(i->addr[1], i->port[1], i->addr[0], i->port[0], cookie) && (!m->cookie || m->cookie == *cookie);
}

/* Makes a flow of the segment. False: it is refused. */
static bool attach(struct ds_dgram *d, const struct ds_message *m, int segment, int alive)
{
	struct ds_dg_in *f = REAL(mmap, NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool added = false, reliable;

	if (f == MAP_FAILED)
		return false;
	if (ds_room(false) && ds_dg_map(&f->seg, segment) == 0) {
		const struct ds_info *i = &f->seg.info;
		if (ds_dg_shared(d) != DG_ALONE || !fits(d, &f->seg, m) || !stands(m, i, &f->cookie) || rules_udp(1, i->addr[1], i->port[1], false, &reliable) != RULES_DIRECT)
			;
		else if (ds_own_lock(&d->in) != DS_NESTED) {
			ds_dg_arm(&f->seg, DS_DG_ALL);
			ds_dg_take_after(&f->seg, !d->no_bells);
			ds_dg_bound(&f->seg, d->bound);
			f->alive = ds_fd_keep(alive, &f->alive);
			f->entry = ds_stats_get((int)d->last, 1, i);
			ds_stats_flow(f->entry, i->nonce);
			ds_stats_say(f->entry, DS_MODE_TCP, DS_WHY_IDLE);
			f->counters = ds_stats_counters(f->entry);
			if (!d->nin)
				ds_dg_forget_drops(d, (int)d->last);
			added = !d->hard && ds_dg_add(d, f);
			if (added && !d->no_bells && ds_dg_shareable((int)d->last))
				ds_dg_end_bells(d);
			if (added && DS_GET(ds_dg_eager))
				ds_dg_eager_wake(d, f, (int)d->last);
			__atomic_store_n(&f->seg.in->state, added ? DS_ATTACHED : DS_WITHDRAWN, __ATOMIC_RELEASE);
			ds_own_unlock(&d->in);
		}
	}
	if (added)
		return true;
	if (f->alive > 0) {
		ds_fd_close(f->alive);
		ds_stats_put(f->entry, false);
	}
	bool kept = f->alive > 0;
	ds_dg_unmap(&f->seg);
	REAL(munmap, f, sizeof *f);
	return kept; /* its end is closed */
}

bool ds_dg_granted(const struct ds_message *m, int segment, int alive)
{
	struct ds_dgram *d = is_socket(m->id) ? ds_dg_by_id(m->id) : NULL;

	if (!is_socket(m->id))
		return false;
	bool claiming = d && d->setup == DG_SETUP_CLAIMING;
	if (!claiming || !attach(d, m, segment, alive)) /* its sender finds the end of its pair, and offers again */
		ds_fd_abandon(alive);
	if (claiming) {
		ds_dg_setup_on(d, DG_ON_GRANT);
		d->refused = 0; /* there may be more */
	}
	REAL(close, segment);
	return true;
}

bool ds_dg_none(uint32_t id)
{
	struct ds_dgram *d = is_socket(id) ? ds_dg_by_id(id) : NULL;

	if (d && d->setup == DG_SETUP_CLAIMING)
		ds_dg_setup_on(d, DG_ON_NONE);
	return is_socket(id);
}

bool ds_dg_refused(uint32_t id, int reason)
{
	struct ds_dgram *d = is_socket(id) ? ds_dg_by_id(id) : NULL;
	struct ds_dg_out *o = is_flow(id) ? ds_dg_out_by_id(id) : NULL;

	if (d && (d->setup == DG_SETUP_ANNOUNCED || d->setup == DG_SETUP_CLAIMING)) { /* its announcement */
		ds_dg_setup_on(d, DG_ON_REFUSED);
		DS_SET(d->retry, ds_ticks() + ds_dg_ticks(REFUSED_US));
	}
	if (o && DS_GET(o->state) == DG_OUT_OFFERED) {
		o->why = (uint8_t)ds_broker_why(reason);
		ds_stats_say(o->entry, DS_MODE_TCP, o->why);
		DS_SET(o->refused, true); /* its next send ends it */
	}
	return is_socket(id) || is_flow(id);
}

void ds_dg_unlisten(struct ds_dgram *d)
{
	struct ds_message m = {.type = DS_UNLISTEN, .id = d->id};

	if (d->setup != DG_SETUP_EXCLUDED && d->told == ds_broker_connection())
		ds_broker_send(&m);
	ds_dg_setup_on(d, DG_ON_FORGET);
	/* What the broker still answers is about the socket that this one was. */
	d->id = ds_dg_id(d->id, ++d->serial);
	d->received = 0;
}

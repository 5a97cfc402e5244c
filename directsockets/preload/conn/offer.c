/* Offers of a segment, repeated if nobody takes them (SPEC 5.1). All functions want the lock of
 * setup. */
#include "conn/broker.h"
#include "conn/fds.h"
#include "conn/inner.h"

#include <errno.h>
#include <sys/syscall.h>

enum {
	TRIES = 5,            /* after the first */
	FIRST_US = 1000000,   /* until the second; doubled each time */
	LISTENER_US = 1000000, /* in which a new listener gets into the page, however busy the broker */
	DEEP_SLOTS = 4096,    /* of a queue, and bytes of a ring, at least, where the fabric leads to another host (SPEC 6.2) */
	DEEP_RING = 4 << 20,
	RING = 2 << 20,
	RING_STRICT = 1 << 20, /* where a segment takes all its memory at once */
};

void ds_offered(struct ds_sock *s)
{
	s->seg.expedited = ds_config.expedited;
	s->seg.reserve = 2; /* so that shutdown and exec need not wait */
	ds_stats_follow(s->entry, &s->seg);
	s->seg.counters[DS_C_RING] = s->seg.ring;
	DS_SET(s->checked, ds_ticks());
	ds_on(s, CONN_ON_SEGMENT);
	if (ds_above)
		ds_above->bell(s);
}

void ds_tell_rung(struct ds_sock *s)
{
	if (ds_above)
		ds_above->rung(s);
}

/* Puts the next try off, for longer each time. False: there were enough. */
static bool later(struct ds_sock *s, int why)
{
	if (ds_is_absent(why) && ds_broker_comes()) {
		ds_retry_soon(s);
		return true;
	}
	if (ds_is_brokers(why)) {
		DS_SET(s->retry, ds_ticks() + FIRST_US * ds_ticks_us());
		return true;
	}
	if (s->tries >= TRIES)
		return false;
	DS_SET(s->retry, ds_ticks() + ((uint64_t)FIRST_US << s->tries++) * ds_ticks_us());
	return true;
}

/* The offer was not taken: repeats it later or, after enough tries, closes what was kept for that,
 * so that the doorbell ends. */
static void not_taken(struct ds_sock *s, int why)
{
	/* The listeners that a broker has told of go out of the page when it cannot be reached. */
	if (why == DS_WHY_NO_LISTENER && s->not_taken == DS_WHY_UNREACHABLE)
		why = DS_WHY_UNREACHABLE;
	s->not_taken = (uint8_t)why;
	ds_stats_say(s->entry, DS_MODE_TCP, why);
	if (s->offered[1] >= 0 && !later(s, why))
		ds_offer_once(s);
}

void ds_refused(uint32_t id, int reason)
{
	struct ds_sock *s = ds_by_id(id);

	if (s && s->state == CONN_OFFERED && s->side == 0 && !DS_GET(s->retry))
		not_taken(s, ds_broker_why(reason));
}

/* Why a message did not get to the broker. */
static int not_sent(int error)
{
	switch (error) {
	case EAGAIN:
	case ENOBUFS:
		return DS_WHY_SILENT;
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case ETOOMANYREFS:
		return DS_WHY_NO_MEMORY;
	default:
		return DS_WHY_NO_BROKER;
	}
}

/* Offers the segment and side 1's doorbell. */
static void ask(struct ds_sock *s, int fd, int segment, int bell)
{
	DS_SET(s->retry, 0);
	s->asked = ds_broker_connection();
	ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_OFFERED);
	if (!ds_broker_offer(s->id, &s->info, fd, segment, bell))
		not_taken(s, not_sent(errno));
}

void ds_offer_again(struct ds_sock *s, int fd)
{
	ds_broker_read();
	if (s->offered[1] >= 0 && !DS_GET(s->retry) && s->asked != ds_broker_connection())
		not_taken(s, DS_WHY_NO_BROKER); /* it has taken the offer with it */
	if (s->offered[1] < 0 || !DS_GET(s->retry) || (int64_t)(ds_ticks() - DS_GET(s->retry)) < 0)
		return;
	if (!ds_broker_up(true))
		not_taken(s, ds_broker_absent());
	else if (!ds_page_listeners(s->info.port[1]))
		not_taken(s, DS_WHY_NO_LISTENER);
	else
		ask(s, fd, s->offered[0], s->offered[1]);
}

/* No listener is known: one that has just begun to listen may not be in the page yet. */
static void no_listener(struct ds_sock *s)
{
	uint64_t now = ds_ticks();

	if (!DS_GET(s->checked))
		DS_SET(s->checked, now);
	ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_NO_LISTENER);
	if (now - DS_GET(s->checked) > LISTENER_US * ds_ticks_us() && !later(s, DS_WHY_NO_LISTENER))
		ds_on(s, CONN_ON_GIVE_UP);
}

/* Leaves s on TCP, for want of memory or descriptors. */
static void no_memory(struct ds_sock *s)
{
	ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_NO_MEMORY);
	ds_on(s, CONN_ON_GIVE_UP);
}

/* Makes a segment and both ends of the doorbell, for s. False: there is no memory, or no
 * descriptors. */
static bool create(struct ds_sock *s, int *segment, int bells[2])
{
	struct ds_info info = s->info;
	bool deep = ds_page_deep(info.port[1]);
	unsigned slots = deep && ds_config.slots < DEEP_SLOTS ? DEEP_SLOTS : ds_config.slots;
	uint64_t ring = ds_config.ring ? ds_config.ring : ds_map_strict() ? RING_STRICT : RING;

	if (deep && ring < DEEP_RING)
		ring = DEEP_RING;

	*segment = -1;
	if (ds_syscall(SYS_getrandom, info.nonce, sizeof info.nonce, 0) != sizeof info.nonce ||
	    ds_seg_create(&s->seg, &info, slots, ring, segment) < 0 ||
	    kernel_socketpair(SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, bells) < 0) {
		if (*segment >= 0) {
			ds_seg_unmap(&s->seg);
			REAL(close, *segment);
		}
		return false;
	}
	s->info = info;
	return true;
}

bool ds_gate_get(struct ds_sock *s)
{
	if (ds_gate_clear(s, 1000))
		return true;
	ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_BUSY);
	ds_retry_soon(s);
	return false;
}

void ds_offer(struct ds_sock *s, int fd)
{
	int segment, bells[2];
	uint64_t read;

	if (!ds_page_listeners(s->info.port[1])) {
		no_listener(s);
		return;
	}
	if (!ds_segment_room(true)) {
		no_memory(s);
		return;
	}
	if (ds_offers_full() || !ds_broker_room()) {
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_SILENT);
		ds_retry_soon(s);
		return;
	}
	if (!ds_gate_get(s))
		return;
	if (!ds_kernel_read(fd, &read)) {
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_PEER); /* it has ended */
		ds_on(s, CONN_ON_GIVE_UP);
	} else if (!create(s, &segment, bells)) {
		no_memory(s);
	} else {
		ds_segment_made();
		DS_SET(s->sh->rx_read, read);
		if (!ds_sharer_take(s, segment, bells[0])) { /* it is used elsewhere by now */
			ds_drop(s);
			REAL(close, segment);
			REAL(close, bells[0]);
			REAL(close, bells[1]);
			ds_gate_open(s);
			return;
		}
		s->tries = s->not_taken = 0;
		s->seg.bell = ds_fd_keep(bells[0], &s->seg.bell);
		s->no_rights = ds_fd_no_rights(s->seg.bell);
		ds_seg_flags(&s->seg);
		ds_node_tell(s, fd);
		ds_offered(s);
		if (ds_offer_keep(s, segment, bells[1])) {
			ask(s, fd, s->offered[0], s->offered[1]);
		} else {
			ask(s, fd, segment, bells[1]);
			REAL(close, segment);
			REAL(close, bells[1]);
		}
	}
	ds_gate_open(s);
}

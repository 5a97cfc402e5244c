/* New connections, and their way from the shadow to a segment (SPEC 5.1).
 *
 *   client                                broker                         server
 *
 *   EARLY     enough was sent
 *   OFFERED   segment, bell ── OFFER ──▶  counts in the page ──────────▶ EARLY
 *                                         ◀── CLAIM, its socket ──────── CLAIMED
 *                                         the two are ends of one ─ GRANT ─▶ GRANTED
 *             state ATTACHED ◀─────────────────────────────────────────── UP
 *   UP
 *   PROMOTE, each direction by itself, at the next send (modes.c): from there on its bytes are in the segment
 *
 * and from each of them but OFFERED and UP ─▶ PLAIN: on the shadow for good.
 */
#include "conn/broker.h"
#include "conn/dgram.h"
#include "conn/fds.h"
#include "conn/inner.h"
#include "conn/rules.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

enum {
	SMALL_BUFFER = 65536,
	MIN_WINDOW = 8192,
	ABSENT_US = 1000000, /* until it looks again for a broker that does not answer, */
	COMES_US = 4000,     /* or that may be coming, */
	GREETS_US = 50,	     /* or reads its answer to HELLO */
};

/* With the lock of setup: asks the broker for the offer that the page's word announces. */
static void claim(struct ds_sock *s, int fd, uint32_t word)
{
	__atomic_store_n(&s->refused, word, __ATOMIC_RELAXED);
	if (!ds_segment_room(false))
		return;
	ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_NO_OFFER);
	s->asked = ds_broker_connection();
	if (ds_broker_claim(s->id, &s->info, fd)) {
		ds_on(s, CONN_ON_CLAIM);
		return;
	}
	/* Nobody was asked: the broker has too much to do, or this process no descriptor. */
	__atomic_store_n(&s->refused, 0, __ATOMIC_RELAXED);
	ds_retry_soon(s);
}

/* A client must not make this process use more memory than it allows (SPEC 5.1). */
static bool too_large(const struct ds_seg *g) { return g->ring > ds_config.max_ring || g->slots > ds_config.max_slots; }

/* With the lock of setup: the broker has sent the segment and the bell that were offered to a
 * connection. */
static void granted(const struct ds_message *m, int segment, int bell)
{
	struct ds_sock *s = ds_by_id(m->id);
	bool no_rights = ds_fd_no_rights(bell);
	char c;

	if (ds_dg_granted(m, segment, bell))
		return;

	if (s && s->state == CONN_CLAIMED && ds_seg_map(&s->seg, segment, 1) == 0) {
		const struct ds_info *i = &s->seg.info;

		ds_segment_made();
		/* The same connection in the header and in the GRANT, which the id joins with the
		 * socket: a translation on the way may have given that other addresses. */
		if (!memcmp(i->nonce, m->info.nonce, 16) && !memcmp(i->addr, m->info.addr, 32) &&
		    !memcmp(i->port, m->info.port, 4) && ds_seg_peer_state(&s->seg) == DS_OFFERED &&
		    ds_syscall(SYS_recvfrom, bell, &c, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL) < 0 && errno == EAGAIN) {
			if (!too_large(&s->seg)) {
				s->seg.bell = ds_fd_keep(bell, &s->seg.bell);
				s->no_rights = no_rights; /* and the queue is empty */
				if (ds_single(s))
					REAL(close, segment);
				else
					s->granted = ds_fd_keep(segment, &s->granted);
				ds_on(s, CONN_ON_GRANT);
				return;
			}
			/* The next offer would be no smaller. */
			ds_seg_state(&s->seg, &s->sh->attention, DS_WITHDRAWN);
			ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_REFUSED);
			ds_on(s, CONN_ON_GIVE_UP);
		}
		ds_drop(s);
	}
	if (s && s->state == CONN_CLAIMED)
		ds_on(s, CONN_ON_NONE);
	REAL(close, segment);
	ds_fd_abandon(bell);
}

/* With the lock of setup: there is no offer for the connection. */
static void none(uint32_t id)
{
	struct ds_sock *s = ds_dg_none(id) ? NULL : ds_by_id(id);

	if (s && s->state == CONN_CLAIMED)
		ds_on(s, CONN_ON_NONE);
}

/* A program that sets a small SO_SNDBUF wants to be stopped before a whole ring is under way; the
 * kernel's own choice is larger than SMALL_BUFFER. */
static void window(struct ds_sock *s, int fd)
{
	int n, saved = errno;
	socklen_t len = sizeof n;

	if (REAL(getsockopt, fd, SOL_SOCKET, SO_SNDBUF, &n, &len) == 0)
		DS_SET(s->seg.window, n >= SMALL_BUFFER ? s->seg.ring : n < MIN_WINDOW ? MIN_WINDOW : (uint64_t)n);
	errno = saved;
}

void ds_window_changed(struct ds_sock *s, int fd)
{
	if (ds_state_of(s) == CONN_UP) /* it looks itself when it gets there */
		window(s, fd);
}

/* The server has attached. */
static void up(struct ds_sock *s, int fd)
{
	window(s, fd);
	ds_options_changed(s, fd); /* those of before connect, or of the listener */
	ds_on(s, CONN_ON_ATTACHED);
	ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_IDLE);
}

/* With the lock of setup: a server uses the segment that it was granted, unless a thread is in a
 * call on the shadow. */
static void attach(struct ds_sock *s, int fd)
{
	uint64_t read;

	if (!ds_gate_get(s))
		return;
	if (ds_seg_peer_state(&s->seg) != DS_OFFERED || !ds_kernel_read(fd, &read)) {
		ds_gate_open(s);
		ds_drop(s);
		ds_on(s, CONN_ON_GIVE_UP);
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_PEER); /* it has ended, or taken the offer back */
		ds_decided(s);
		return;
	}
	DS_SET(s->sh->rx_read, read);
	if (!ds_sharer_take(s, s->granted, s->seg.bell)) {
		ds_gate_open(s);
		ds_drop(s);
		ds_on(s, CONN_ON_NONE);
		return;
	}
	ds_granted_close(s);
	ds_node_tell(s, fd);
	ds_offered(s);
	ds_seg_state(&s->seg, &s->sh->attention, DS_ATTACHED);
	up(s, fd);
	ds_decided(s);
	ds_gate_open(s);
}

/* Has s sent often enough, or moved enough, to be worth a segment? */
static bool lives(const struct ds_sock *s)
{
	if (s->side == 0)
		return ds_worth(DS_GET(s->sends), DS_GET(s->moved));
	return DS_GET(s->sends) >= ds_config.sends || DS_GET(s->moved) >= ds_config.bytes;
}

/* May this process make s direct? While several have and use it, or the C library has it for a
 * standard stream, it may not. */
static bool is_ours(struct ds_sock *s)
{
	if (ds_sharer_free(s) && !DS_GET(s->stream))
		return true;
	ds_stats_say(s->entry, DS_MODE_TCP, DS_GET(s->stream) ? DS_WHY_STREAM : DS_WHY_SHARED);
	return false;
}

/* Is an offer open that s, a server, was not told NONE of? One that was inherited waits: a program
 * that was executed for a connection often forks once more for it. */
static bool may_claim(struct ds_sock *s, uint32_t *word)
{
	*word = ds_page_offers(s->bucket);
	return (*word & 0xffff) && *word != __atomic_load_n(&s->refused, __ATOMIC_RELAXED) && (!s->inherited || lives(s));
}

/* Is there something to do for s, which has no segment? */
static bool early_due(struct ds_sock *s)
{
	uint64_t retry = DS_GET(s->retry);
	uint32_t word;

	if (s->side == 0 ? !lives(s) : !may_claim(s, &word) && !(DS_GET(s->waits) && ds_broker_orphans()) && !ds_broker_better())
		return false;
	if (retry && (int64_t)(ds_ticks() - retry) < 0)
		return false;
	return is_ours(s) || (s->side == 1 && ds_broker_orphans());
}

/* With the lock of setup: takes s, which has no segment, a step further. */
static void early(struct ds_sock *s, int fd)
{
	uint32_t word;

	if (!ds_broker_up(s->side == 1)) {
		bool comes = ds_broker_comes();

		ds_stats_say(s->entry, DS_MODE_TCP, ds_broker_absent());
		if (comes || ds_broker_known()) {
			DS_SET(s->retry, ds_ticks() + (ds_broker_greets() ? GREETS_US : comes ? COMES_US : ABSENT_US) * ds_ticks_us());
			return;
		}
		ds_decided(s); /* there is none here */
		ds_on(s, CONN_ON_GIVE_UP);
		return;
	}
	if (s->side == 1 && ds_broker_orphans())
		ds_broker_announce_by(&s->info, fd);
	if (!is_ours(s))
		return;
	DS_SET(s->retry, 0);
	if (s->side == 0)
		ds_offer(s, fd);
	else if (may_claim(s, &word))
		claim(s, fd, word);
}

/* A client that has offered. */
static void tick_offered(struct ds_sock *s, int fd)
{
	uint32_t peer = ds_seg_peer_state(&s->seg);
	bool attached = peer == DS_ATTACHED, refused = peer == DS_WITHDRAWN, due = ds_ticks() - DS_GET(s->checked) >= ds_ticks_us() * 10000;
	int saved = errno;

	if (DS_GET(s->offered[1]) >= 0 && (attached || refused || due)) {
		if (!ds_setup_try())
			return; /* next time */
		if (attached || refused)
			ds_offer_once(s); /* so that the doorbell tells when the peer is gone */
		else
			ds_offer_again(s, fd);
		ds_setup_unlock();
		errno = saved;
	}
	if (refused)
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_REFUSED);
	if (attached)
		up(s, fd);
	else
		ds_check_peer(s, fd, false);
}

/* Another process has made s direct: gets its segment. */
static void join(struct ds_sock *s, int fd)
{
	int bell;

	if (!ds_sharer_map(s, &bell)) { /* for want of memory or descriptors: the stream cannot go on without its bytes */
		REAL(shutdown, fd, SHUT_RDWR);
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_NO_MEMORY);
		return;
	}
	ds_segment_made();
	s->no_rights = ds_fd_no_rights(bell);
	s->seg.bell = ds_fd_keep(bell, &s->seg.bell);
	memcpy(s->info.nonce, s->seg.info.nonce, sizeof s->info.nonce);
	ds_offered(s);
	if (s->side == 1)
		up(s, fd);
	ds_decided(s);
}

void ds_sharer_use(struct ds_sock *s, int fd)
{
	if (!ds_sharer_unused(s))
		return;
	int saved = errno;
	bool locked = ds_setup_lock(); /* if not, this thread has it, and changes another connection */
	if (ds_sharer_unused(s) && !ds_sharer_count(s))
		join(s, fd);
	if (locked)
		ds_setup_unlock();
	errno = saved;
}

/* ds_tick of a connection that is being set up: out of line, so that the others save no
 * registers. */
__attribute__((noinline)) static void tick(struct ds_sock *s, int fd)
{
	ds_sharer_use(s, fd);
	switch (ds_state_of(s)) {
	case CONN_EARLY:
		if (!early_due(s))
			return;
		break;
	case CONN_GRANTED:
		if (DS_GET(s->retry) && (int64_t)(ds_ticks() - DS_GET(s->retry)) < 0)
			return;
		if (!is_ours(s)) /* it waits: the client offers once */
			return;
		break;
	case CONN_OFFERED:
		if (s->side == 0)
			tick_offered(s, fd);
		else
			ds_check_peer(s, fd, false);
		return;
	}
	if (!ds_setup_try())
		return; /* next time */
	int saved = errno;
	DS_BY_NUMBER(kernel);
	ds_by_number_begin(&kernel, &s->life->numbered, true);
	fd = ds_still(s, fd);
	if (s->state == CONN_CLAIMED) {
		ds_broker_read();
		if (s->state == CONN_CLAIMED && s->asked != ds_broker_connection())
			ds_on(s, CONN_ON_NONE); /* it has taken the answer with it */
	}
	if (s->state == CONN_GRANTED && is_ours(s))
		attach(s, fd);
	else if (s->state == CONN_EARLY)
		early(s, fd);
	ds_by_number_end(&kernel);
	ds_setup_unlock();
	errno = saved;
}

void ds_tick(struct ds_sock *s, int fd)
{
	unsigned state = (unsigned)ds_state_of(s);

	if (__builtin_expect(state - CONN_EARLY < CONN_UP - CONN_EARLY, 0))
		tick(s, fd);
}

/* Connected to the broker, for the first time or again. With the lock of setup. */
static void connected(void)
{
	ds_broker_is_new();
	ds_broker_announce();
}

/* With the lock of setup: an offer, or what was announced, is refused. */
static void refused(uint32_t id, int reason)
{
	if (!ds_dg_refused(id, reason))
		ds_refused(id, reason);
}

static const struct ds_broker_notices by_broker = {granted, none, refused, connected};

void ds_setup_broker(void) { ds_broker_init(&by_broker); }

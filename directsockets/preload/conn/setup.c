/* Making connections, and taking them from the shadow to a segment (SPEC 5.1).
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
 * and from any phase ─▶ PLAIN: the shadow only, for good.
 */
#include "conn/broker.h"
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
	LISTENER_US = 1000000, /* in which a new listener gets into the page, however busy the broker */
};

/* Someone sleeps in the kernel on the shadow alone: wake it, so that it comes round. */
static void kick(struct ds_sock *s)
{
	uint64_t one = 1;
	int fd = __atomic_load_n(&s->kick, __ATOMIC_ACQUIRE);

	if (fd >= 0)
		ds_syscall(SYS_write, fd, &one, sizeof one);
}

static const struct ds_notices *notices;

void ds_tell(const struct ds_notices *to) { notices = to; }

/* Both ends of the segment are known: what is left is to say so. */
static void ready(struct ds_sock *s)
{
	s->seg.expedited = ds_config.expedited;
	s->seg.reserve = 2; /* so that shutdown and exec need not wait */
	s->seg.counters = ds_stats_counters(s->entry);
	s->seg.counters[DS_C_RING] = s->seg.ring;
	s->checked = ds_ticks();
	ds_phase(s, OFFERED);
	if (notices)
		notices->bell(s);
}

/* With the lock of setup: makes a segment and offers it to the peer, or finds that there shall be none. */
static void offer(struct ds_sock *s, int fd)
{
	int segment = -1, bells[2] = {-1, -1};
	uint64_t read;

	if (!ds_page_listeners(s->info.port[1])) {
		/* One that has just begun to listen may not be in the page yet. */
		if (!s->checked)
			s->checked = ds_ticks();
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_NO_LISTENER);
		if (ds_ticks() - s->checked > LISTENER_US * ds_ticks_us())
			ds_phase(s, PLAIN);
		return;
	}
	if (!ds_segment_room()) {
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_MEMORY);
		ds_phase(s, PLAIN);
		return;
	}
	if (!ds_single(s))
		return;
	if (!ds_gate_shut(s)) {
		kick(s);
		return;
	}
	if (!ds_kernel_read(fd, &read)) {
		ds_gate_open(s);
		ds_phase(s, PLAIN);
		return;
	}
	struct ds_info info = s->info;
	if (ds_syscall(SYS_getrandom, info.nonce, sizeof info.nonce, 0) != sizeof info.nonce ||
	    ds_seg_create(&s->seg, &info, ds_config.slots, ds_config.ring, &segment) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, bells) < 0) {
		if (segment >= 0) {
			ds_seg_unmap(&s->seg);
			REAL(close)(segment);
		}
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_MEMORY);
		ds_gate_open(s);
		ds_phase(s, PLAIN);
		return;
	}
	ds_segment_made();
	s->info = info;
	s->seg.bell = ds_fd_keep(bells[0]);
	s->no_rights = ds_fd_no_rights(s->seg.bell);
	s->sh->rx_read = read;
	__atomic_store_n(&s->seg.own->flags, ds_config.expedited ? DS_EXPEDITED : 0, __ATOMIC_RELEASE);
	ready(s);
	ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_OFFERED);
	/* If it cannot be sent the bell is at its end at once, as if the broker had refused it. */
	ds_broker_offer(s->id, &info, fd, segment, bells[1]);
	REAL(close)(segment);
	REAL(close)(bells[1]);
	ds_gate_open(s);
}

/* With the lock of setup: asks the broker for the offer of which the page's word is told. */
static void claim(struct ds_sock *s, int fd, uint32_t word)
{
	if (!ds_single(s)) /* until only one process has it, as after accept, fork, close */
		return;
	__atomic_store_n(&s->refused, word, __ATOMIC_RELAXED);
	if (!ds_segment_room())
		return;
	if (ds_broker_claim(s->id, &s->info, fd))
		ds_phase(s, CLAIMED);
}

/* A client shall not have this process use more memory than it wants to (SPEC 5.1). */
static bool too_large(const struct ds_seg *g) { return g->ring > ds_config.max_ring || g->slots > ds_config.max_slots; }

/* With the lock of setup: the broker has sent the segment and the bell that were offered to a connection. */
static void granted(const struct ds_message *m, int segment, int bell)
{
	struct ds_sock *s = ds_by_id(m->id);
	bool no_rights = ds_fd_no_rights(bell);
	char c;

	if (s && s->phase == CLAIMED && ds_seg_map(&s->seg, segment, 1) == 0) {
		const struct ds_info *i = &s->seg.info;

		ds_segment_made();
		/* The same connection in the header, in the GRANT, and at the socket. */
		if (!memcmp(i->nonce, m->info.nonce, 16) && !memcmp(i->addr, m->info.addr, 32) &&
		    !memcmp(i->port, m->info.port, 4) && !memcmp(i->addr, s->info.addr, 32) &&
		    !memcmp(i->port, s->info.port, 4) && ds_seg_peer_state(&s->seg) == DS_OFFERED &&
		    ds_syscall(SYS_recvfrom, bell, &c, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL) < 0 && errno == EAGAIN) {
			if (!too_large(&s->seg)) {
				s->seg.bell = ds_fd_keep(bell);
				s->no_rights = no_rights; /* and the queue is empty */
				REAL(close)(segment);
				ds_phase(s, GRANTED);
				return;
			}
			/* The next offer would be no smaller. */
			ds_seg_state(&s->seg, &s->sh->attention, DS_WITHDRAWN);
			ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_REFUSED);
			ds_phase(s, PLAIN);
		}
		ds_drop(s);
	}
	if (s && s->phase == CLAIMED)
		ds_phase(s, EARLY);
	REAL(close)(segment);
	ds_fd_abandon(bell);
}

/* With the lock of setup: there is no offer for the connection. */
static void none(uint32_t id)
{
	struct ds_sock *s = ds_by_id(id);

	if (s && s->phase == CLAIMED)
		ds_phase(s, EARLY);
}

/* With the lock of setup: the broker does not take the offer. */
static void refused(uint32_t id, int reason)
{
	struct ds_sock *s = ds_by_id(id);

	(void)reason; /* the doorbell comes to its end, whatever it was */
	if (s && s->phase == OFFERED && s->side == 0)
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_REFUSED);
}

/* A program that has set SO_SNDBUF wants to be stopped before so much is under way. The kernel's own choice is
 * larger than SMALL_BUFFER. */
static void up(struct ds_sock *s, int fd)
{
	int n;
	socklen_t len = sizeof n;

	if (REAL(getsockopt)(fd, SOL_SOCKET, SO_SNDBUF, &n, &len) == 0 && n < SMALL_BUFFER)
		s->seg.window = n < MIN_WINDOW ? MIN_WINDOW : (uint64_t)n;
	ds_phase(s, UP);
	ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_NONE);
}

/* With the lock of setup: a server uses the segment that it was granted, unless somebody is on the shadow. */
static void attach(struct ds_sock *s, int fd)
{
	uint64_t read;

	if (ds_single(s) && !ds_gate_shut(s)) {
		kick(s);
		return;
	}
	if (!ds_single(s) || ds_seg_peer_state(&s->seg) != DS_OFFERED || !ds_kernel_read(fd, &read)) {
		if (ds_single(s))
			ds_gate_open(s);
		ds_drop(s);
		ds_phase(s, PLAIN);
		return;
	}
	s->sh->rx_read = read;
	ready(s);
	ds_seg_state(&s->seg, &s->sh->attention, DS_ATTACHED);
	up(s, fd);
	ds_gate_open(s);
}

void ds_tick(struct ds_sock *s, int fd)
{
	uint32_t word;

	switch (__atomic_load_n(&s->phase, __ATOMIC_ACQUIRE)) {
	case PLAIN:
	case UP:
		return;
	case EARLY:
		if (s->side == 0 && __atomic_load_n(&s->sends, __ATOMIC_RELAXED) < ds_config.sends &&
		    __atomic_load_n(&s->moved, __ATOMIC_RELAXED) < ds_config.bytes)
			return;
		if (s->side == 1) {
			word = ds_page_offers(s->bucket);
			if (!(word & 0xffff) || word == __atomic_load_n(&s->refused, __ATOMIC_RELAXED))
				return;
		}
		break;
	case OFFERED:
		if (s->side == 0 && ds_seg_peer_state(&s->seg) == DS_ATTACHED) {
			up(s, fd);
			return;
		}
		if (s->side == 0 && ds_seg_peer_state(&s->seg) == DS_WITHDRAWN)
			ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_REFUSED); /* the bell is at its end, or soon will be */
		ds_check_bell(s, false);
		return;
	}
	if (!ds_setup_try())
		return; /* next time */
	int saved = errno;
	if (s->phase == CLAIMED)
		ds_broker_read();
	if (s->phase == GRANTED) {
		attach(s, fd);
	} else if (s->phase == EARLY && ds_broker_up()) {
		if (s->side == 0)
			offer(s, fd);
		else if ((word = ds_page_offers(s->bucket)) & 0xffff && word != s->refused)
			claim(s, fd, word);
	}
	ds_setup_unlock();
	errno = saved;
}

static const struct ds_broker_notices by_broker = {granted, none, refused, ds_met};

/* ---- life -------------------------------------------------------------------------- */

static struct ds_sock *make(int fd, int side)
{
	struct ds_info info = {0};
	struct ds_sock *s = NULL;
	int saved = errno, why;

	if (!ds_setup_lock())
		return NULL;
	ds_start(&by_broker);
	bool broker = ds_broker_up();
	if ((!broker && !ds_config.explain) || !ds_addresses(fd, side, &info) || !(s = ds_handle())) {
		ds_setup_unlock();
		errno = saved;
		return NULL;
	}
	s->side = (uint8_t)side;
	s->info = info;
	s->entry = ds_stats_get(fd, side, &info);
	why = rules_decide(side, info.addr[1], info.port[1]);
	if (!why && !broker)
		why = DS_WHY_NO_BROKER;
	if (!why && !(s->sh = ds_arena_get()))
		why = DS_WHY_MEMORY;
	if (why) {
		ds_stats_say(s->entry, DS_MODE_TCP, why);
	} else {
		s->bucket = ds_bucket(&info);
		s->phase = EARLY;
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_EARLY);
	}
	ds_setup_unlock();
	errno = saved;
	return s;
}

/* For tests (EXNET_DS_WAIT): waits until the connection has a segment, in all of its calls together so long, so
 * that nearly every byte of a suite of short connections is direct. */
void ds_patience(struct ds_sock *s, int fd)
{
	struct timespec pause = {0, 50000};
	int saved = errno;

	while (__atomic_load_n(&s->waited, __ATOMIC_RELAXED) < ds_config.wait * 20) {
		int phase = __atomic_load_n(&s->phase, __ATOMIC_ACQUIRE);

		if (phase == UP || phase == PLAIN)
			break;
		ds_tick(s, fd);
		syscall(SYS_nanosleep, &pause, NULL);
		__atomic_fetch_add(&s->waited, 1, __ATOMIC_RELAXED);
	}
	errno = saved;
}

struct ds_sock *ds_client(int fd)
{
	struct ds_sock *s = make(fd, 0);

	if (s && ds_config.wait)
		ds_tick(s, fd); /* offers it at once, if EXNET_DS_SENDS is 0 */
	return s;
}

struct ds_sock *ds_server(int fd)
{
	struct ds_sock *s = make(fd, 1);

	if (s && ds_config.wait)
		ds_patience(s, fd);
	return s;
}

bool ds_plain(const struct ds_sock *s) { return __atomic_load_n(&s->phase, __ATOMIC_RELAXED) == PLAIN; }
void **ds_user(struct ds_sock *s) { return &s->user; }

bool ds_listen(int fd)
{
	struct sockaddr_storage a;
	uint8_t addr[16];
	uint16_t port;
	socklen_t n = sizeof a;
	int saved = errno;
	bool ours = false;

	if (!ds_setup_lock())
		return false;
	ds_start(&by_broker);
	if (getsockname(fd, (struct sockaddr *)&a, &n) == 0 && ds_address(&a, addr, &port) && ds_is_tcp(fd))
		/* If somebody wants to know, what it accepts gets a line of the statistics all the same. */
		ours = rules_listen(addr, port) == RULES_DIRECT ? ds_broker_listen(fd) : ds_config.explain;
	ds_setup_unlock();
	errno = saved;
	return ours;
}

/* With the lock of setup: fd, a number, will not listen any more. */
static void unlisten(void *fd) { ds_broker_unlisten((int)(intptr_t)fd); }

void ds_unlisten(int fd)
{
	int saved = errno;

	ds_setup_do(unlisten, (void *)(intptr_t)fd);
	errno = saved;
}

void ds_maintain(void)
{
	if (!ds_broker_due() || !ds_setup_try())
		return;
	int saved = errno;
	if (ds_broker_up())
		ds_broker_announce();
	ds_setup_unlock();
	errno = saved;
}

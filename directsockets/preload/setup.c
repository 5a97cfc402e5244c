/* Connections: making them, taking them to a segment, and letting them go. */
#include "broker.h"
#include "fds.h"
#include "inner.h"
#include "rules.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum {
	SENDS = 2,          /* a client offers at its second send, */
	BYTES = 16384,      /* or when so much has moved */
	SLOTS = 128,
	RING = 1 << 20,
	POOL = 256,         /* handles made at a time */
	POOLS = 4096,
	MAX_SEGMENTS = 16384, /* each is a mapping, of which a process has 65530 */
};

/* ---- the process --------------------------------------------------------------- */

static uint32_t setup_word; /* guards all below, the broker and the statistics */
static struct ds_sock *pools[POOLS];
static unsigned npools, segments;
static struct ds_sock *unused;
static bool started, expedited;
static unsigned want_sends = SENDS, want_slots = SLOTS;
static uint64_t want_bytes = BYTES, want_ring = RING;

static bool setup_try(void) { return !__atomic_exchange_n(&setup_word, 1, __ATOMIC_ACQUIRE); }

static void setup_lock(void)
{
	for (int i = 0; !setup_try(); i++)
		if (i > 20)
			syscall(SYS_sched_yield);
}

static void setup_unlock(void) { __atomic_store_n(&setup_word, 0, __ATOMIC_RELEASE); }

static uint64_t number(const char *name, uint64_t other, uint64_t low, uint64_t high)
{
	const char *s = getenv(name);
	char *end;

	if (!s || !*s)
		return other;
	uint64_t n = strtoull(s, &end, 10);
	return *end || n < low || n > high ? other : n;
}

/* Tunable, for tests and those who measure: EXNET_DS_SENDS, _BYTES, _SLOTS, _RING. */
static void start(void)
{
	if (started)
		return;
	started = true;
	rules_init();
	want_sends = (unsigned)number("EXNET_DS_SENDS", SENDS, 0, 1u << 30);
	want_bytes = number("EXNET_DS_BYTES", BYTES, 0, 1ull << 40);
	want_slots = (unsigned)number("EXNET_DS_SLOTS", SLOTS, DS_MIN_SLOTS, DS_MAX_SLOTS);
	want_ring = number("EXNET_DS_RING", RING, DS_MIN_RING, DS_MAX_RING);
	if (want_slots & (want_slots - 1))
		want_slots = SLOTS;
	want_ring &= ~4095ull;
	expedited = ds_expedite();
	ds_ticks_us();
}

static struct ds_sock *handle(void)
{
	struct ds_sock *s = unused;

	if (!s) {
		if (npools == POOLS)
			return NULL;
		s = mmap(NULL, POOL * sizeof *s, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (s == MAP_FAILED)
			return NULL;
		pools[npools] = s;
		for (unsigned i = POOL; i-- > 0;) {
			s[i].index = npools * POOL + i;
			s[i].next_free = unused;
			unused = &s[i];
		}
		npools++;
		s = unused;
	}
	unused = s->next_free;
	uint32_t index = s->index, id = s->id;
	memset(s, 0, sizeof *s);
	s->index = index;
	s->id = ((id >> 20) + 1) % 2048 << 20 | index; /* below those of listeners */
	s->open = true;
	s->kick = -1;
	s->seg.bell = -1;
	s->lowat = 1;
	s->spinner.budget = 20000;
	return s;
}

static struct ds_sock *by_id(uint32_t id)
{
	uint32_t i = id & (POOL * POOLS - 1);

	if (i / POOL >= npools)
		return NULL;
	struct ds_sock *s = &pools[i / POOL][i % POOL];
	return s->open && s->id == id ? s : NULL;
}

_Static_assert(POOL * POOLS == 1 << 20, "ids");

/* ---- addresses and the kernel's counts ------------------------------------------ */

static bool address(const struct sockaddr_storage *a, uint8_t *to, uint16_t *port)
{
	if (a->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)a;

		memset(to, 0, 10);
		to[10] = to[11] = 0xff;
		memcpy(to + 12, &in->sin_addr, 4);
		*port = ntohs(in->sin_port);
		return true;
	}
	if (a->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const void *)a;

		memcpy(to, &in->sin6_addr, 16);
		*port = ntohs(in->sin6_port);
		return true;
	}
	return false;
}

static bool is_tcp(int fd)
{
	int protocol = 0;
	socklen_t len = sizeof protocol;

	return REAL(getsockopt)(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 && protocol == IPPROTO_TCP;
}

static bool addresses(int fd, int side, struct ds_info *info)
{
	struct sockaddr_storage own, peer;
	socklen_t n = sizeof own;

	if (getsockname(fd, (struct sockaddr *)&own, &n) < 0 || !address(&own, info->addr[side], &info->port[side]))
		return false;
	n = sizeof peer;
	return getpeername(fd, (struct sockaddr *)&peer, &n) == 0 && address(&peer, info->addr[!side], &info->port[!side]) &&
	       is_tcp(fd);
}

enum { ESTABLISHED = 1, CLOSE_WAIT = 8 }; /* of the kernel's TCP states */

static bool tcp_info(int fd, struct tcp_info *t)
{
	socklen_t len = sizeof *t;

	memset(t, 0, sizeof *t);
	return REAL(getsockopt)(fd, IPPROTO_TCP, TCP_INFO, t, &len) == 0 &&
	       len >= offsetof(struct tcp_info, tcpi_bytes_received) + sizeof t->tcpi_bytes_received;
}

enum { INQ = 0x541B, OUTQ = 0x5411 }; /* SIOCINQ, SIOCOUTQ */

bool ds_kernel_sent(int fd, int side, uint64_t *n)
{
	struct tcp_info t;
	int before, after;

	for (int i = 0; i < 10; i++) {
		if (REAL(ioctl)(fd, OUTQ, &before) < 0 || !tcp_info(fd, &t) || REAL(ioctl)(fd, OUTQ, &after) < 0)
			return false;
		if (t.tcpi_state != ESTABLISHED && t.tcpi_state != CLOSE_WAIT)
			return false;
		if (before != after)
			continue;
		*n = t.tcpi_bytes_acked + (uint64_t)after - (side == 0 ? 1 : 0); /* the SYN counts */
		return true;
	}
	return false;
}

bool ds_kernel_read(int fd, uint64_t *n)
{
	struct tcp_info t;
	int before, after;

	for (int i = 0; i < 10; i++) {
		if (REAL(ioctl)(fd, INQ, &before) < 0 || !tcp_info(fd, &t) || REAL(ioctl)(fd, INQ, &after) < 0)
			return false;
		if (t.tcpi_state != ESTABLISHED)
			return false;
		if (before != after)
			continue;
		*n = t.tcpi_bytes_received - (uint64_t)after;
		return true;
	}
	return false;
}

/* ---- calls on the shadow alone --------------------------------------------------- */

void ds_users_begin(struct ds_sock *s)
{
	struct ds_shared *h = s->sh;

	if (ds_alone(s)) {
		__atomic_store_n(&h->users, __atomic_load_n(&h->users, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
		return;
	}
	for (int i = 1;; i++) {
		__atomic_fetch_add(&h->users, 1, __ATOMIC_SEQ_CST);
		uint32_t keeper = __atomic_load_n(&h->gate, __ATOMIC_SEQ_CST);
		if (!keeper || keeper == ds_tid())
			return;
		__atomic_fetch_sub(&h->users, 1, __ATOMIC_SEQ_CST);
		syscall(SYS_sched_yield);
		if (i % 1024 == 0 && ds_tid_dead(keeper))
			__atomic_compare_exchange_n(&h->gate, &keeper, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	}
}

void ds_users_end(struct ds_sock *s)
{
	if (ds_alone(s))
		__atomic_store_n(&s->sh->users, __atomic_load_n(&s->sh->users, __ATOMIC_RELAXED) - 1, __ATOMIC_RELEASE);
	else
		__atomic_fetch_sub(&s->sh->users, 1, __ATOMIC_SEQ_CST);
}

bool ds_gate_shut(struct ds_sock *s)
{
	uint32_t none = 0;

	if (!__atomic_compare_exchange_n(&s->sh->gate, &none, ds_tid(), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return false;
	if (!__atomic_load_n(&s->sh->users, __ATOMIC_SEQ_CST))
		return true;
	ds_gate_open(s);
	return false;
}

void ds_gate_open(struct ds_sock *s) { __atomic_store_n(&s->sh->gate, 0, __ATOMIC_SEQ_CST); }

/* ---- from the shadow to a segment ------------------------------------------------- */

static void phase(struct ds_sock *s, int p) { __atomic_store_n(&s->phase, p, __ATOMIC_RELEASE); }

/* Takes the segment away again: before anything was promoted, with the gate shut or before
 * the bell was known. */
static void drop(struct ds_sock *s)
{
	int bell = s->seg.bell;

	if (s->seg.mem) {
		ds_seg_unmap(&s->seg);
		segments--;
	}
	s->seg.bell = -1;
	if (bell >= 0)
		ds_fd_close(bell);
}

/* Someone sleeps in the kernel on the shadow alone: wake it, so that it comes round. */
static void kick(struct ds_sock *s)
{
	uint64_t one = 1;
	int fd = __atomic_load_n(&s->kick, __ATOMIC_ACQUIRE);

	if (fd >= 0)
		syscall(SYS_write, fd, &one, sizeof one);
}

static bool single(struct ds_sock *s) { return __atomic_load_n(&s->sh->refs, __ATOMIC_ACQUIRE) == 1; }

/* Both ends of the segment are known: what is left is to say so. */
static void ready(struct ds_sock *s)
{
	s->seg.expedited = expedited;
	s->seg.counters = ds_stats_counters(s->entry);
	s->seg.counters[DS_C_RING] = s->seg.ring;
	s->checked = ds_ticks();
	phase(s, OFFERED);
	ds_hook_bell(s);
}

static void offer(struct ds_sock *s, int fd)
{
	int segment = -1, bells[2] = {-1, -1};
	uint64_t read;

	if (!ds_page_listeners(s->info.port[1])) {
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_NO_LISTENER);
		phase(s, PLAIN);
		return;
	}
	if (segments >= MAX_SEGMENTS) {
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_MEMORY);
		phase(s, PLAIN);
		return;
	}
	if (!single(s))
		return;
	if (!ds_gate_shut(s)) {
		kick(s);
		return;
	}
	if (!ds_kernel_read(fd, &read)) {
		ds_gate_open(s);
		phase(s, PLAIN);
		return;
	}
	struct ds_info info = s->info;
	if (syscall(SYS_getrandom, info.nonce, sizeof info.nonce, 0) != sizeof info.nonce ||
	    ds_seg_create(&s->seg, &info, want_slots, want_ring, &segment) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, bells) < 0) {
		if (segment >= 0) {
			ds_seg_unmap(&s->seg);
			REAL(close)(segment);
		}
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_MEMORY);
		ds_gate_open(s);
		phase(s, PLAIN);
		return;
	}
	segments++;
	s->info = info;
	s->seg.bell = ds_fd_keep(bells[0]);
	s->sh->rx_read = read;
	__atomic_store_n(&s->seg.own->flags, expedited ? DS_EXPEDITED : 0, __ATOMIC_RELEASE);
	ready(s);
	ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_OFFERED);
	/* If it cannot be sent the bell is at its end at once, as if the broker had refused it. */
	ds_broker_offer(s->id, info.nonce, fd, segment, bells[1]);
	REAL(close)(segment);
	REAL(close)(bells[1]);
	ds_gate_open(s);
}

static void claim(struct ds_sock *s, int fd, uint32_t word)
{
	s->refused = word;
	if (!single(s) || segments >= MAX_SEGMENTS)
		return;
	if (ds_broker_claim(s->id, fd))
		phase(s, CLAIMED);
}

void ds_broker_granted(const struct ds_message *m, int segment, int bell)
{
	struct ds_sock *s = by_id(m->id);
	char c;

	if (s && s->phase == CLAIMED && ds_seg_map(&s->seg, segment, 1) == 0) {
		const struct ds_info *i = &s->seg.info;

		segments++;
		/* The same connection in the header, in the GRANT, and at the socket. */
		if (!memcmp(i->nonce, m->info.nonce, 16) && !memcmp(i->addr, m->info.addr, 32) &&
		    !memcmp(i->port, m->info.port, 4) && !memcmp(i->addr, s->info.addr, 32) &&
		    !memcmp(i->port, s->info.port, 4) && ds_seg_peer_state(&s->seg) == DS_OFFERED &&
		    syscall(SYS_recvfrom, bell, &c, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL) < 0 && errno == EAGAIN) {
			s->seg.bell = ds_fd_keep(bell);
			REAL(close)(segment);
			phase(s, GRANTED);
			return;
		}
		drop(s);
	}
	if (s && s->phase == CLAIMED)
		phase(s, EARLY);
	REAL(close)(segment);
	REAL(close)(bell);
}

void ds_broker_none(uint32_t id)
{
	struct ds_sock *s = by_id(id);

	if (s && s->phase == CLAIMED)
		phase(s, EARLY);
}

void ds_broker_refused(uint32_t id, int reason)
{
	struct ds_sock *s = by_id(id);

	(void)reason; /* the doorbell comes to its end, whatever it was */
	if (s && s->phase == OFFERED && s->side == 0)
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_REFUSED);
}

static void attach(struct ds_sock *s, int fd)
{
	uint64_t read;

	if (single(s) && !ds_gate_shut(s)) {
		kick(s);
		return;
	}
	if (!single(s) || ds_seg_peer_state(&s->seg) != DS_OFFERED || !ds_kernel_read(fd, &read)) {
		if (single(s))
			ds_gate_open(s);
		drop(s);
		phase(s, PLAIN);
		return;
	}
	s->sh->rx_read = read;
	ready(s);
	ds_seg_state(&s->seg, &s->sh->attention, DS_ATTACHED);
	phase(s, UP);
	ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_NONE);
	ds_gate_open(s);
}

/* Connected to a broker, for the first time or again: connections that waited for the one
 * before it wait no more. */
void ds_broker_met(void)
{
	for (unsigned i = 0; i < npools * POOL; i++) {
		struct ds_sock *s = &pools[i / POOL][i % POOL];

		if (!s->open)
			continue;
		if (s->phase == CLAIMED)
			phase(s, EARLY);
		if (!s->entry && (s->entry = ds_stats_get(-1, s->side, &s->info)) && s->sh) {
			s->seg.counters = ds_stats_counters(s->entry);
			if (ds_has_segment(s))
				ds_stats_say(s->entry, DS_MODE_DIRECT, DS_WHY_NONE);
		}
	}
}

void ds_tick(struct ds_sock *s, int fd)
{
	uint32_t word;

	switch (__atomic_load_n(&s->phase, __ATOMIC_ACQUIRE)) {
	case PLAIN:
	case UP:
		return;
	case EARLY:
		if (s->side == 0 && __atomic_load_n(&s->sends, __ATOMIC_RELAXED) < want_sends &&
		    __atomic_load_n(&s->moved, __ATOMIC_RELAXED) < want_bytes)
			return;
		if (s->side == 1) {
			word = ds_page_offers(s->bucket);
			if (!(word & 0xffff) || word == s->refused)
				return;
		}
		break;
	case OFFERED:
		if (s->side == 0 && ds_seg_peer_state(&s->seg) == DS_ATTACHED) {
			phase(s, UP);
			ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_NONE);
			return;
		}
		ds_check_bell(s, false);
		return;
	}
	if (!setup_try())
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
	setup_unlock();
	errno = saved;
}

/* ---- life -------------------------------------------------------------------------- */

static struct ds_sock *make(int fd, int side)
{
	struct ds_info info = {0};
	struct ds_sock *s = NULL;
	int saved = errno, why;

	setup_lock();
	start();
	if (!ds_broker_up() || !addresses(fd, side, &info) || !(s = handle())) {
		setup_unlock();
		errno = saved;
		return NULL;
	}
	s->side = (uint8_t)side;
	s->info = info;
	s->entry = ds_stats_get(fd, side, &info);
	why = rules_decide(side, info.addr[1], info.port[1]);
	if (!why && side == 0 && !ds_page_listeners(info.port[1]))
		why = DS_WHY_NO_LISTENER;
	if (!why && !(s->sh = ds_arena_get()))
		why = DS_WHY_MEMORY;
	if (why) {
		ds_stats_say(s->entry, DS_MODE_TCP, why);
	} else {
		s->bucket = ds_bucket(&info);
		s->phase = EARLY;
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_EARLY);
	}
	setup_unlock();
	errno = saved;
	return s;
}

struct ds_sock *ds_client(int fd) { return make(fd, 0); }
struct ds_sock *ds_server(int fd) { return make(fd, 1); }
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

	setup_lock();
	start();
	if (getsockname(fd, (struct sockaddr *)&a, &n) == 0 && address(&a, addr, &port) && is_tcp(fd) &&
	    rules_listen(addr, port) == RULES_DIRECT)
		ours = ds_broker_listen(fd);
	setup_unlock();
	errno = saved;
	return ours;
}

void ds_unlisten(int fd)
{
	int saved = errno;

	setup_lock();
	ds_broker_unlisten(fd);
	setup_unlock();
	errno = saved;
}

void ds_maintain(void)
{
	if (!ds_broker_due() || !setup_try())
		return;
	int saved = errno;
	if (ds_broker_up())
		ds_broker_announce();
	setup_unlock();
	errno = saved;
}

static ssize_t nowhere(void *arg, const void *p, size_t n)
{
	/* The program is about to go and cannot come back for what the shadow does not take now. */
	struct pollfd f = {.fd = *(int *)arg, .events = POLLOUT};
	struct timespec patience = {5, 0};
	ssize_t r;

	for (;;) {
		r = syscall(SYS_sendto, f.fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
		if (r >= 0 || errno != EAGAIN)
			return r;
		if (syscall(SYS_ppoll, &f, 1, &patience, NULL, 0) <= 0)
			return -1;
	}
}

/* With the lock of tx: finishes rolling back. */
static void roll_all(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	bool ended = h->tx_shut;

	if (h->tx_mode != TX_ROLLING)
		return;
	ds_tx_roll(&s->seg, &h->tx, &h->roll_slot, &h->roll_off, nowhere, &fd, &ended);
	ds_tx_is(s, TX_BACK);
	if (ended)
		REAL(shutdown)(fd, SHUT_WR);
}

void ds_exit_one(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	struct linger l = {0};
	socklen_t n = sizeof l;
	uint32_t set = DS_CLOSED;
	int saved = errno;

	if (!ds_has_segment(s) || !single(s))
		return;
	bool alone = ds_alone(s);
	if (ds_tx_take(s, alone)) {
		ds_tx_update(s, fd);
		if (h->tx_mode == TX_DIRECT) {
			if (ds_tx_end(&s->seg, &h->tx, &h->attention, DS_SHUTDOWN) == 0)
				ds_tx_is(s, TX_ENDED);
			else
				ds_tx_update(s, fd);
		}
		roll_all(s, fd);
		ds_unlock(&h->tx_lock, alone);
	}
	if (ds_rx_take(s, alone)) {
		bool unread = h->rx_mode == RX_DIRECT && ds_rx_look(&s->seg, &h->rx) == 1;

		if (REAL(getsockopt)(fd, SOL_SOCKET, SO_LINGER, &l, &n) == 0 && l.l_onoff && !l.l_linger)
			unread = true;
		if (unread || h->rx_mode == RX_BROKEN) {
			set |= DS_RESET;
			l = (struct linger){1, 0};
			REAL(setsockopt)(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
		}
		ds_unlock(&h->rx_lock, alone);
	}
	if (__atomic_load_n(&s->phase, __ATOMIC_RELAXED) == OFFERED && s->side == 0)
		ds_seg_state(&s->seg, &h->attention, DS_WITHDRAWN);
	ds_say(s, set, DS_ARM_RX | DS_ARM_TX);
	errno = saved;
}

void ds_close(struct ds_sock *s, int fd)
{
	int saved = errno;

	if (s->sh)
		ds_exit_one(s, fd);
	setup_lock();
	if (s->phase == OFFERED && s->side == 0)
		ds_broker_withdraw(s->id, s->info.nonce);
	drop(s);
	if (s->kick >= 0)
		ds_fd_close(s->kick);
	ds_stats_put(s->entry);
	if (s->sh)
		ds_arena_unref(s->sh);
	s->open = false;
	s->next_free = unused;
	unused = s;
	setup_unlock();
	errno = saved;
}

int ds_shutdown(struct ds_sock *s, int fd, int how)
{
	struct ds_shared *h = s->sh;
	bool roll = false;

	if (!h)
		return REAL(shutdown)(fd, how);
	if (how == SHUT_RD || how == SHUT_RDWR)
		__atomic_store_n(&h->rx_shut, 1, __ATOMIC_RELEASE);
	if (how == SHUT_WR || how == SHUT_RDWR) {
		bool alone = ds_alone(s), taken = ds_tx_take(s, alone);

		h->tx_shut = 1;
		if (taken && ds_has_segment(s)) {
			ds_tx_update(s, fd);
			if (h->tx_mode == TX_DIRECT) {
				switch (ds_tx_end(&s->seg, &h->tx, &h->attention, DS_SHUTDOWN)) {
				case 0:
					ds_tx_is(s, TX_ENDED);
					break;
				default:
					ds_tx_update(s, fd);
				}
			}
			roll = h->tx_mode == TX_ROLLING; /* shut down when that is done */
		}
		if (taken)
			ds_unlock(&h->tx_lock, alone);
	}
	if (!roll)
		return REAL(shutdown)(fd, how);
	return how == SHUT_RDWR ? REAL(shutdown)(fd, SHUT_RD) : 0;
}

void ds_freeze_demote(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	int saved = errno;

	if (!h || s->phase == PLAIN)
		return;
	setup_lock();
	if (s->phase < OFFERED) {
		drop(s);
		phase(s, PLAIN);
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_DEMOTED);
		setup_unlock();
		errno = saved;
		return;
	}
	if (s->phase == OFFERED && s->side == 0)
		ds_broker_withdraw(s->id, s->info.nonce);
	setup_unlock();
	bool alone = ds_alone(s);
	if (ds_tx_take(s, alone)) {
		ds_tx_update(s, fd);
		if (h->tx_mode == TX_SHADOW)
			ds_tx_is(s, TX_BACK);
		if (h->tx_mode == TX_DIRECT) {
			if (ds_tx_end(&s->seg, &h->tx, &h->attention, DS_DEMOTE) == 0)
				ds_tx_is(s, TX_BACK);
			else
				ds_tx_update(s, fd);
		}
		roll_all(s, fd);
		ds_unlock(&h->tx_lock, alone);
	}
	if (ds_rx_take(s, alone)) {
		ds_rx_update(s, fd);
		if (h->rx_mode == RX_SHADOW || h->rx_mode == RX_CATCHUP || h->rx_mode == RX_DIRECT) {
			int how = ds_rx_freeze(&s->seg, &h->rx, &h->attention);

			if (how == 1)
				ds_rx_is(s, RX_BACK);
			else if (how == 0)
				ds_rx_is(s, RX_UNDECIDED);
		}
		ds_unlock(&h->rx_lock, alone);
	}
	ds_stats_say(s->entry, DS_MODE_DEMOTED, DS_WHY_DEMOTED);
	errno = saved;
}

/* ---- fork -------------------------------------------------------------------------- */

static void each(void (*f)(struct ds_shared *))
{
	for (unsigned i = 0; i < npools * POOL; i++) {
		struct ds_sock *s = &pools[i / POOL][i % POOL];

		if (s->open && s->sh)
			f(s->sh);
	}
}

static void unref(struct ds_shared *h) { __atomic_fetch_sub(&h->refs, 1, __ATOMIC_ACQ_REL); }

void ds_fork_prepare(void)
{
	setup_lock();
	each(ds_arena_ref);
}

void ds_fork_parent(pid_t pid)
{
	if (pid < 0)
		each(unref);
	setup_unlock();
}

void ds_fork_child(void)
{
	ds_tid_child();
	ds_arena_child();
	expedited = started && ds_expedite();
	for (unsigned i = 0; i < npools * POOL; i++) {
		struct ds_sock *s = &pools[i / POOL][i % POOL];

		if (!s->open)
			continue;
		if (s->phase == CLAIMED)
			s->phase = EARLY;
		if (s->phase == GRANTED) { /* it is the parent's */
			drop(s);
			s->phase = EARLY;
		}
		s->entry = NULL;
		if (s->seg.mem)
			s->seg.counters = ds_stats_counters(NULL);
	}
	ds_broker_child();
	ds_stats_child();
	setup_unlock();
}

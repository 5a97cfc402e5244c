/* UDP sockets are announced, claim what is offered to them, and offer flows (SPEC 10.4). All of
 * this is tried, and never waited for. */
#include "conn/broker.h"
#include "conn/dgram.h"
#include "conn/fds.h"
#include "conn/inner.h"
#include "conn/rules.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

enum {
	RECEIVES = 2,	   /* before a socket is announced */
	AGAIN_US = 1000000,
	READ_US = 50,	   /* between two looks for an answer */
	RING = 1 << 19,
};

/* With the lock of setup: is there a broker that knows UDP? */
static bool ready(void)
{
	if (ds_start())
		ds_setup_broker();
	return ds_broker_up(true) && ds_page_udp();
}

/* The ends of fd as the kernel has them. */
static bool ends(const struct ds_dgram *d, int fd, struct ds_info *i)
{
	struct sockaddr_storage a, b;
	socklen_t n = sizeof a;

	memset(i, 0, sizeof *i);
	if (kernel_getsockname(fd, (struct sockaddr *)&a, &n) < 0 || !ds_address(&a, i->addr[1], &i->port[1]) || !i->port[1])
		return false;
	n = sizeof b;
	if (d->connected && (kernel_getpeername(fd, (struct sockaddr *)&b, &n) < 0 || !ds_address(&b, i->addr[0], &i->port[0])))
		return false;
	static const uint8_t any4[16] = {[10] = 0xff, [11] = 0xff};
	if (!memcmp(i->addr[1], any4, 16))
		memset(i->addr[1], 0, 16);
	return true;
}

/* Is an error of ds_dg_may_ask one that passes? */
static bool may_pass(int err) { return err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS || err == EAGAIN; }

/* Announces d. False: try again later. */
static bool announce(struct ds_dgram *d, int fd)
{
	struct ds_message m = {.type = DS_LISTEN, .id = d->id, .udp = true};
	bool reliable;

	if (!ready() || !ds_dg_alone(d, fd))
		return false;
	int mute = ds_dg_may_ask();
	if (may_pass(mute))
		return false;
	if (mute || !ends(d, fd, &d->ends) || rules_udp(1, d->ends.addr[1], d->ends.port[1], true, &reliable) != RULES_DIRECT) {
		ds_dg_setup_on(d, DG_ON_EXCLUDE);
		return false;
	}
	struct ds_info key = {.addr = {{0}}, .port = {0, d->ends.port[1]}};
	d->bucket = ds_bucket(&key);
	m.info = d->ends;
	if (!ds_broker_show(&m, fd, NULL, 0))
		return false;
	d->told = ds_broker_connection();
	d->refused = 0;
	ds_dg_setup_on(d, DG_ON_LISTEN);
	return true;
}

/* Is there an offer for d that it was not told NONE of? */
static bool may_claim(const struct ds_dgram *d, uint32_t *word)
{
	if (!ds_udp_offered())
		return false;
	*word = ds_page_offers(d->bucket);
	return (*word & 0xffff) && *word != DS_GET(d->refused);
}

/* With the lock of setup: asks for the offer that the page's word announces. */
static void claim(struct ds_dgram *d, int fd, uint32_t word)
{
	struct ds_message m = {.type = DS_CLAIM, .id = d->id, .info = d->ends, .udp = true};

	d->refused = word;
	if (ds_dg_alone(d, fd) && ds_broker_show(&m, fd, NULL, 0))
		ds_dg_setup_on(d, DG_ON_CLAIM);
	else
		d->refused = 0;
}

void ds_dg_tick_slow(struct ds_dgram *d, int fd)
{
	uint32_t word;
	int saved = errno;

	if (d->received < RECEIVES && !DS_GET(ds_dg_eager)) {
		d->received++;
		return;
	}
	bool told = DS_GET(d->setup) != DG_SETUP_QUIET && DS_GET(d->told) == ds_broker_connection();
	if (told && DS_GET(d->setup) != DG_SETUP_CLAIMING && !may_claim(d, &word))
		return;
	uint64_t now = ds_ticks();
	if ((int64_t)(now - DS_GET(d->retry)) < 0)
		return;
	DS_SET(d->retry, now + (told ? READ_US : AGAIN_US) * ds_ticks_us());
	if (!ds_setup_try()) {
		DS_SET(d->retry, now);
		return;
	}
	DS_SET(d->last, (uint32_t)fd);
	if (d->setup != DG_SETUP_QUIET && d->setup != DG_SETUP_EXCLUDED && d->told != ds_broker_connection())
		ds_dg_setup_on(d, DG_ON_FORGET);
	if (d->setup == DG_SETUP_QUIET) {
		if (!DS_GET(d->hard) && announce(d, fd)) /* what is offered to it now is claimed at once */
			DS_SET(d->retry, now + READ_US * ds_ticks_us());
	} else {
		ds_broker_read();
	}
	if (d->setup == DG_SETUP_ANNOUNCED && may_claim(d, &word))
		claim(d, fd, word);
	ds_setup_unlock();
	errno = saved;
}

void ds_dg_eager_tick(struct ds_dgram *d, int fd)
{
	uint64_t now = ds_ticks();

	if ((int64_t)(DS_GET(d->retry) - now) <= (int64_t)(AGAIN_US * ds_ticks_us())) /* else the broker has refused it */
		DS_SET(d->retry, now);
	ds_dg_tick(d, fd);
}

/* ---- offers ------------------------------------------------------------------------- */

/* The address from which fd sends to the destination of i. */
static bool source(const struct ds_dgram *d, int fd, struct ds_info *i)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof a;
	static const uint8_t any[16], any4[16] = {[10] = 0xff, [11] = 0xff};

	if (kernel_getsockname(fd, (struct sockaddr *)&a, &n) < 0 || !ds_address(&a, i->addr[0], &i->port[0]))
		return false;
	if (!i->port[0]) /* its first send binds it */
		return false;
	if (memcmp(i->addr[0], any, 16) && memcmp(i->addr[0], any4, 16))
		return true;
	int s = (int)ds_syscall(SYS_socket, d->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s < 0)
		return false;
	struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(i->port[1])};
	struct sockaddr_in to4 = {.sin_family = AF_INET, .sin_port = htons(i->port[1])};
	memcpy(&to6.sin6_addr, i->addr[1], 16);
	memcpy(&to4.sin_addr, i->addr[1] + 12, 4);
	uint16_t port;
	n = sizeof a;
	bool ok = (d->family == AF_INET ? ds_syscall(SYS_connect, s, &to4, sizeof to4) : ds_syscall(SYS_connect, s, &to6, sizeof to6)) == 0 &&
		  kernel_getsockname(s, (struct sockaddr *)&a, &n) == 0 && ds_address(&a, i->addr[0], &port);
	ds_syscall(SYS_close, s);
	return ok;
}

/* Makes a flow, and what its receiver gets: the segment and an end of the liveness pair. NULL:
 * there is no memory, or no descriptors. */
static struct ds_dg_out *make(struct ds_info *i, int *segment, int *theirs)
{
	struct ds_dg_out *o;
	int pair[2];

	if (!ds_room(true) || !ds_memory_room(RING) || ds_syscall(SYS_getrandom, i->nonce, sizeof i->nonce, 0) != sizeof i->nonce || !(o = ds_dg_out_new()))
		return NULL;
	if (ds_dg_create(&o->seg, i, RING, segment) < 0) {
		ds_dg_out_put(o);
		return NULL;
	}
	if (kernel_socketpair(SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, pair) < 0) {
		REAL(close, *segment);
		ds_dg_unmap(&o->seg);
		ds_dg_out_put(o);
		return NULL;
	}
	o->alive = ds_fd_keep(pair[0], &o->alive);
	*theirs = pair[1];
	return o;
}

/* With the lock of setup: a new entry of the statistics for a flow. NULL: there is none. */
static struct ds_entry *entry(int fd, const struct ds_info *i)
{
	struct ds_entry *e = ds_stats_get(fd, 0, i);

	ds_stats_flow(e, i->nonce);
	return e;
}

/* Is e that of a flow to the destination of i? */
static bool leads_to(const struct ds_entry *e, const struct ds_info *i)
{
	return !memcmp(e->addr[1], i->addr[1], sizeof e->addr[1]) && e->port[1] == i->port[1];
}

/* With the lock of setup: no flow is offered to a destination, for --explain. A socket has one
 * entry for that, of the first one. */
static void tell(struct ds_dgram *d, int fd, struct ds_info *i, int why)
{
	if (!d->line && source(d, fd, i))
		d->line = entry(fd, i);
	if (d->line && leads_to(d->line, i))
		ds_stats_say(d->line, DS_MODE_TCP, why);
}

/* With the lock of setup: makes a flow to a destination and offers it. Returns why not, or 0. */
static int offer(struct ds_dgram *d, int fd, struct ds_info *i)
{
	struct ds_dg_out *o;
	int segment, theirs, why;
	uint64_t cookie;
	bool up = ready(), reliable = false; /* ready reads the rules */

	if ((why = rules_udp(0, i->addr[1], i->port[1], false, &reliable)))
		return why;
	if (!up)
		return ds_broker_absent();
	if (!ds_dg_alone(d, fd))
		return DS_WHY_SHARED;
	if (!ds_page_receivers(i->port[1]))
		return DS_WHY_NO_LISTENER;
	if (!source(d, fd, i) || d->nout >= DS_DG_FLOWS)
		return DS_WHY_NO_MEMORY;
	int mute = ds_dg_may_ask();
	if (mute)
		return may_pass(mute) ? DS_WHY_NO_MEMORY : DS_WHY_NO_DIAG;
	/* Before the broker looks: who is there then and later is the one that it knows. */
	if (!ds_dg_reached(i->addr[0], i->port[0], i->addr[1], i->port[1], &cookie))
		return DS_WHY_NO_LISTENER;
	if (!(o = make(i, &segment, &theirs)))
		return DS_WHY_NO_MEMORY;
	o->cookie = cookie;
	if (d->line && leads_to(d->line, i)) {
		o->entry = d->line;
		d->line = NULL;
		ds_stats_flow(o->entry, i->nonce);
	} else {
		o->entry = entry(fd, i);
	}
	ds_stats_say(o->entry, DS_MODE_TCP, DS_WHY_OFFERED);
	o->counters = ds_stats_counters(o->entry);
	o->reliable = reliable;
	o->shared = ds_dg_shareable(fd);
	bool placed = false;
	if (ds_own_lock(&d->out) != DS_NESTED) {
		struct ds_dg_dest *t = ds_dg_dest(d, i->addr[1], i->port[1]);
		placed = t && !t->flow && !d->hard;
		if (placed) {
			ds_dg_ended(t); /* before */
			t->by_kernel = 1; /* stands for those before */
			DS_SET(t->unknown, false);
			__atomic_store_n(&o->seg.out->by_kernel, 1, __ATOMIC_RELEASE);
			t->flow = o;
			ds_dg_out_on(o, DG_ON_OFFER);
			d->nout++;
			ds_dg_marks(o, fd); /* who sets them meanwhile finds the flow */
		}
		ds_own_unlock(&d->out);
	}
	struct ds_message m = {.type = DS_OFFER, .id = o->id, .info = *i, .udp = true};
	if (placed && !ds_broker_show(&m, fd, (int[]){segment, theirs}, 2))
		DS_SET(o->refused, true); /* its next send ends it */
	if (!placed) {
		ds_stats_put(o->entry, false);
		ds_dg_unmap(&o->seg);
		ds_dg_out_put(o);
	}
	REAL(close, segment);
	REAL(close, theirs);
	return 0;
}

/* Notes why there is no flow to a destination: by a rule, for good. */
static void not_offered(struct ds_dgram *d, const struct ds_info *i, int why)
{
	if (ds_own_lock(&d->out) == DS_NESTED)
		return;
	struct ds_dg_dest *t = ds_dg_dest(d, i->addr[1], i->port[1]);
	if (t) {
		t->ended = why == DS_WHY_RULE || why == DS_WHY_ADDRESS_NOT_WANTED || why == DS_WHY_NO_DIAG;
		t->sent = 0;
		t->since = ds_ticks() + (why == DS_WHY_NO_LISTENER ? 0 : AGAIN_US * ds_ticks_us());
	}
	ds_own_unlock(&d->out);
}

void ds_dg_offer(struct ds_dgram *d, int fd, const uint8_t addr[16], uint16_t port)
{
	struct ds_info i = {.port = {0, port}};
	int saved = errno, why;

	memcpy(i.addr[1], addr, 16);
	/* The usual answer costs no lock: nobody takes flows at that port. */
	if (ds_page_udp() && !ds_page_receivers(port) && !ds_config.explain)
		return;
	if (!ds_setup_try())
		return;
	why = offer(d, fd, &i);
	if (why && ds_config.explain)
		tell(d, fd, &i, why);
	ds_setup_unlock();
	if (why)
		not_offered(d, &i, why);
	errno = saved;
}

/* Sends on UDP sockets (SPEC 10.3, 10.5). */
#include "conn/dgram.h"
#include "conn/inner.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

enum {
	MOST = 65507,	   /* bytes of a datagram; IPv6 has 20 more, which go by the kernel: */
	MOST_EVER = 65527,
	SENDS = 4,	   /* in a second, before a flow is offered */
	SECOND_US = 1000000,
	STUCK_US = 20,	   /* it waits so long for room in any case */
	SAVED_US = 4,	   /* each datagram through a flow lets it wait so much longer: it saves more */
			   /* than this, so no sender is slower than by the kernel */
	SOFTIRQ_US = 1000, /* in which the kernel has given a datagram to its receiver */
	BELL_US = 200000,  /* after which one that was to wake the receiver may be lost */
	EAGER = 32,
	TRAIN_MOST = 64,   /* datagrams of one send, as in the kernel; */
	COUNTED_MOST = 1024, /* later kernels take more, but not so many */
	ENDED_MOST = (1 << DS_DG_ENDED_BITS) - 1,
	WAIT = -4,
};

bool ds_dg_room(struct ds_dg_out *o)
{
	uint64_t queued = ds_dg_queued(&o->seg), taken = o->seg.known, begin = ds_ticks(), spent, most;

	if (o->state == DG_OUT_STALLED && o->stuck == taken) { /* as long as a send by the kernel takes, which also lets the receiver run */
		do {
			ds_syscall(SYS_sched_yield);
			if (ds_dg_queued(&o->seg) != queued) {
				ds_dg_out_on(o, DG_ON_ROOM);
				return true;
			}
		} while (ds_ticks() - begin < SAVED_US * ds_ticks_us());
		return false;
	}
	if (o->state == DG_OUT_STALLED)
		ds_dg_out_on(o, DG_ON_ROOM);
	most = ds_dg_spare(o);
	if (most < STUCK_US * ds_ticks_us())
		most = STUCK_US * ds_ticks_us();
	for (unsigned i = 0;; i++) {
		bool done = ds_dg_queued(&o->seg) != queued || ds_dg_closed(&o->seg) || (ds_dg_armed(&o->seg) && !ds_dg_unsettled_too(&o->seg));
		spent = ds_ticks() - begin;
		if (done || spent > most) {
			o->spare -= spent < o->spare ? spent : o->spare;
			if (!done) {
				ds_dg_out_on(o, DG_ON_FULL);
				o->stuck = taken;
			}
			return done;
		}
		if (i < EAGER)
			ds_pause();
		else
			ds_syscall(SYS_sched_yield);
	}
}

/* Sends one datagram of n bytes at the cursor: as ds_dg_send, but drops it in place of DS_DG_FULL,
 * unless a rule says that the sender waits. */
static int one(struct ds_dg_dest *t, unsigned under, struct ds_cursor *c, size_t n, const struct ds_dg_says *says)
{
	struct ds_dg_out *o = t->flow;
	struct ds_dg_meta m = {.len = (uint32_t)n, .tos = says->tos < 0 ? o->tos : (uint8_t)says->tos,
			       .ttl = says->ttl < 0 ? o->ttl : (uint8_t)says->ttl, .after = o->lost != DS_DG_UNKNOWN, .kernel = t->by_kernel, .under = under, .lost = o->lost};
	int rc;

	for (;;) {
		m.stamp = ds_ticks();
		m.there = m.stamp - o->last >= SOFTIRQ_US * ds_ticks_us();
		m.stale = m.stamp - o->last >= BELL_US * ds_ticks_us() && m.stamp - o->seg.moved >= BELL_US * ds_ticks_us();
		rc = ds_dg_send(&o->seg, &m, c);
		if (rc != DS_DG_FULL || (!ds_dg_room(o) && o->reliable))
			break;
		if (o->state != DG_OUT_STALLED) /* there is room */
			continue;
		ds_dg_drop(&o->seg);
		ds_bump(o->counters, DS_C_TX_DEMOTE, 1);
		ds_skip(c, n);
		return DS_DG_SENT;
	}
	if (rc == DS_DG_SENT) {
		uint64_t spare = o->spare + SAVED_US * ds_ticks_us(), most = DS_DG_CREDIT_US * ds_ticks_us();
		o->spare = spare < most ? spare : most;
		ds_bump(ds_dg_moved, 0, 1);
		ds_bump(o->counters, DS_C_SENT, n);
		ds_bump(o->counters, n <= DS_DG_SLOT ? DS_C_TX_VELO_LAST : DS_C_TX_INFO, 1);
	}
	return rc;
}

/* Sends all at the cursor, in datagrams of says->train bytes if that is not 0. DS_DG_SENT, also if
 * the receiver went to sleep in the middle: c->left is what the kernel has to send. */
static int all(struct ds_dg_dest *t, struct ds_cursor *c, const struct ds_dg_says *says)
{
	size_t train = says->train;
	unsigned under = ds_dg_ended(t);
	int rc;

	do
		rc = one(t, under, c, train && c->left > train ? train : c->left, says);
	while (rc == DS_DG_SENT && c->left);
	return rc;
}

/* Counts a datagram that the kernel is about to send to a destination without a flow. True: one is
 * to be offered. */
static bool worth(struct ds_dg_dest *t)
{
	uint64_t now = ds_ticks();

	if (t->ended || (int64_t)(now - t->since) < 0)
		return false;
	if (t->sent++ == 0 || now - t->since > SECOND_US * ds_ticks_us()) {
		t->since = now;
		t->sent = 1;
	}
	if (t->sent < SENDS)
		return false;
	t->sent = 0;
	return true;
}

/* The send *s by the kernel ends, which has sent so many datagrams for a flow. Needs no lock: who
 * has that of out may be waiting until none is under way. */
static void ends(const struct ds_dg_sent *s, uint64_t sent)
{
	uint64_t v = __atomic_load_n(&s->to->sending, __ATOMIC_RELAXED), under, n, left, refused;

	do { /* in the child of a fork none is under way, but for one whose handler has forked */
		under = v & ((1u << DS_DG_UNDER_BITS) - 1);
		n = under < s->n ? under : s->n;
		left = ENDED_MOST - (v >> (DS_DG_UNDER_BITS + DS_DG_ENDED_BITS));
		refused = n > sent ? n - sent : 0;
		refused = refused < left ? refused : left;
	} while (!__atomic_compare_exchange_n(&s->to->sending, &v, v + (refused << DS_DG_ENDED_BITS << DS_DG_UNDER_BITS) + (sent << DS_DG_UNDER_BITS) - n, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

/* A jump leaves the send *s: nobody knows whether the kernel has sent it, and so what the receiver
 * has counted. */
static void jumped(void *p)
{
	struct ds_dg_sent *s = p;

	DS_SET(s->to->unknown, true);
	ends(s, 0);
}

/* With the lock of out, or in a critical section: records to t wait for a send of n datagrams by
 * the kernel, which begins next. */
static void announce(struct ds_dg_sent *s, struct ds_dg_dest *t, size_t n)
{
	s->to = t;
	s->n = n < COUNTED_MOST ? (unsigned)n : COUNTED_MOST;
	__atomic_add_fetch(&t->sending, s->n, __ATOMIC_RELAXED);
}

/* In a critical section, with no lock, whose release would forget that a jump ends *s: the send
 * begins. False: the number is another file's, and it has ended. */
static bool begin(struct ds_dgram *d, struct ds_dg_sent *s)
{
	if (!ds_by_number_same(&s->kernel, &d->numbered, s->number)) {
		ends(s, 0);
		s->to = NULL;
		return false;
	}
	s->slot = ds_cleanup_push_frame(jumped, s);
	return true;
}

/* A datagram of d goes where no flow leads: it may be refused, and d hear of that. */
static void may_fail(struct ds_dgram *d)
{
	if (DS_GET(d->connected) || DS_GET(d->hears))
		DS_SET(d->asks, true);
}

/* With the lock of out, which it drops: the kernel sends n datagrams to t next. False: the number
 * is another file's. */
static bool to_kernel(struct ds_dgram *d, struct ds_dg_sent *s, struct ds_dg_dest *t, size_t n)
{
	ds_critical_begin();
	if (!t->flow)
		may_fail(d);
	if (n)
		announce(s, t, n);
	ds_own_unlock(&d->out);
	bool same = !n || begin(d, s);
	ds_critical_end();
	return same;
}

/* Is one datagram by the kernel enough to wake the receiver for what follows it? */
static bool wakes(const struct ds_dg_out *o) { return !o->reliable && o->lost != DS_DG_UNKNOWN && ds_dg_unsettled_too(&o->seg); }

/* Sends on, after a datagram by the kernel has woken the receiver. */
static int go_on(struct ds_dgram *d, const struct ds_dg_sent *s, struct ds_cursor *c, const struct ds_dg_says *says)
{
	int rc = DS_DG_ARMED;

	if (ds_own_lock(&d->out) == DS_NESTED)
		return rc;
	struct ds_dg_dest *t = ds_dg_dest(d, s->addr, s->port);
	struct ds_dg_out *o = t ? ds_dg_flow(d, t) : NULL;
	if (o && wakes(o))
		rc = all(t, c, says);
	if (rc == DS_DG_OVER)
		ds_dg_out_end(d, t, DG_ON_GONE, o->seg.broken ? DS_WHY_BREACH : DS_WHY_PEER);
	ds_own_unlock(&d->out);
	return rc;
}

/* Sends the rest of a train to t, whose receiver sleeps now, by the kernel. woken: once the kernel
 * has woken the receiver, the flow carries what is left. False: the number is another file's by
 * now. */
static bool send_rest(struct ds_dgram *d, int fd, const struct msghdr *h, int flags, struct ds_dg_sent *s,
		      struct ds_dg_dest *t, struct ds_cursor *c, const struct ds_dg_says *says, bool woken)
{
	struct iovec v[DS_VECTORS];
	int rc = DS_DG_ARMED;

	while (rc != DS_DG_SENT && c->left) {
		struct msghdr m = {.msg_name = h->msg_name, .msg_namelen = h->msg_namelen, .msg_iov = v,
				   .msg_control = h->msg_control, .msg_controllen = h->msg_controllen};
		size_t n = says->train < c->left ? says->train : c->left;

		m.msg_iovlen = (size_t)ds_vectors(c, n, v);
		ds_critical_begin();
		announce(s, t, 1);
		bool same = begin(d, s);
		ds_critical_end();
		if (!same)
			return false;
		bool done = ds_syscall(SYS_sendmsg, fd, &m, flags) >= 0;
		ds_dg_has_sent(d, s, done, n);
		if (!done)
			break;
		ds_skip(c, n);
		if (woken && c->left)
			rc = go_on(d, s, c, says);
	}
	return true;
}

/* Does what destination does, for an address that ds_dg_address does not take. */
static __attribute__((noinline, cold)) bool unusual_destination(const struct ds_dgram *d, const struct msghdr *h, struct ds_dg_sent *s)
{
	struct sockaddr_storage a = {0};
	size_t n = h->msg_namelen < sizeof a ? h->msg_namelen : sizeof a;

	if (!DS_GET(d->nout) || n < sizeof(struct sockaddr_in))
		return false;
	memcpy(&a, h->msg_name, n);
	if (a.ss_family == AF_UNSPEC && d->family == AF_INET)
		a.ss_family = AF_INET;
	return ds_address(&a, s->addr, &s->port);
}

/* Stores in *s where h goes. *unusual: the kernel has to send it, as it reads the address in a way
 * of its own. False: flows do not lead there. */
static inline bool destination(const struct ds_dgram *d, const struct msghdr *h, struct ds_dg_sent *s, bool *unusual)
{
	*unusual = false;
	if (!h->msg_name)
		return DS_GET(d->connected);
	if (__builtin_expect(ds_dg_address(d, h->msg_name, h->msg_namelen, s->addr, &s->port), 1))
		return true;
	*unusual = true;
	return unusual_destination(d, h, s);
}

/* With the lock: the destination of h, which destination has stored in *s, or the peer. NULL: there
 * is no place for it. */
static inline struct ds_dg_dest *dest_of(struct ds_dgram *d, const struct msghdr *h, struct ds_dg_sent *s)
{
	struct ds_dg_dest *t = h->msg_name ? ds_dg_dest(d, s->addr, s->port) : &d->peer;

	if (!t)
		return NULL;
	if (t == &d->peer) {
		memcpy(s->addr, t->addr, 16);
		s->port = t->port;
	}
	d->run = t == d->to ? d->run + 1 : 0;
	d->to = t;
	return t;
}

/* What a send to *s says of its datagrams. False: the kernel makes it. */
static inline bool reads(const struct ds_dgram *d, const struct msghdr *h, struct ds_dg_sent *s, struct ds_dg_says *says)
{
	bool all = true;

	says->tos = says->ttl = -1;
	says->train = s->train;
	says->sourced = false;
	if (h->msg_controllen)
		all = ds_dg_control(d, h, s->addr, says);
	s->train = says->train;
	return all;
}

/* A send by the kernel to no destination begins. */
static ssize_t by_kernel(struct ds_dgram *d, struct ds_dg_sent *s)
{
	may_fail(d);
	return ds_by_number_same(&s->kernel, &d->numbered, s->number) ? DS_DG_KERNEL : DS_DG_ANEW;
}

/* Are the datagrams of a send to t not part of its flow, as they come from another address? */
static bool elsewhere(const struct ds_dg_dest *t, const struct ds_dg_says *says)
{
	return says->sourced && t->flow && memcmp(says->source, t->flow->seg.info.addr[0], sizeof says->source);
}

/* How many datagrams the bytes are. */
static size_t pieces(size_t bytes, size_t train) { return train && bytes > train ? (bytes + train - 1) / train : 1; }

/* A send by the kernel, in a handler that has interrupted who has the lock of out. It counts all
 * the same: what a flow carries next waits for it. */
static ssize_t interrupting(struct ds_dgram *d, const struct msghdr *h, struct ds_dg_sent *s, size_t bytes)
{
	struct ds_dg_dest *t = NULL;
	struct ds_dg_says says;
	bool same = true;

	ds_critical_begin();
	for (int i = 0; i <= DS_DG_DESTS; i++) {
		struct ds_dg_dest *one = i < DS_DG_DESTS ? &d->dests[i] : &d->peer;

		if (one->flow && (h->msg_name ? one->port == s->port && !memcmp(one->addr, s->addr, 16) : one == &d->peer))
			t = one;
	}
	if (t) {
		reads(d, h, s, &says);
		s->known = !elsewhere(t, &says);
		if (ds_lock_mine(&d->out) && t->flow->state != DG_OUT_OFFERED) /* so nobody unmaps it */
			ds_dg_drained(t->flow);
		announce(s, t, pieces(bytes, says.train));
		same = begin(d, s);
	}
	ds_critical_end();
	return !t ? by_kernel(d, s) : same ? DS_DG_KERNEL : DS_DG_ANEW;
}

/* As ds_dg_sendmsg; WAIT: a rule says that it waits for room. *done: bytes of a train that have
 * been sent before. */
static ssize_t try_send(struct ds_dgram *d, int fd, const struct msghdr *h, int flags, struct ds_dg_sent *s, size_t *done)
{
	struct ds_cursor c = {0};
	struct ds_dg_says says;
	size_t total, whole, train;
	bool offer = false, kernel_only, unusual, woken = false;
	int rc = DS_DG_ARMED;

	s->to = NULL;
	s->known = false;
	s->train = DS_GET(d->train);
	if (flags & MSG_MORE)
		ds_dg_harden(d, DS_WHY_UNSUPPORTED_CALL);
	if (DS_GET(d->hard))
		return by_kernel(d, s);
	if (!destination(d, h, s, &unusual))
		return by_kernel(d, s);
	bool whole_known = ds_cursor(&c, h->msg_iov, (int)h->msg_iovlen);
	if (c.left > MOST_EVER) /* the kernel refuses it: no record waits for it */
		return by_kernel(d, s);
	kernel_only = !whole_known || unusual || (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL)) || c.left > MOST;
	if (ds_own_lock(&d->out) == DS_NESTED)
		return interrupting(d, h, s, c.left);
	struct ds_dg_dest *t = dest_of(d, h, s);
	if (!t) {
		ds_own_unlock(&d->out);
		return by_kernel(d, s);
	}
	kernel_only = !reads(d, h, s, &says) || kernel_only;
	train = says.train;
	bool other = elsewhere(t, &says); /* D does not count them */
	kernel_only = kernel_only || other || (train && (c.left > train * TRAIN_MOST || h->msg_iovlen > DS_VECTORS));
	whole = kernel_only ? 0 : c.left;
	if (!kernel_only)
		ds_skip(&c, *done);
	s->known = t->flow && !other;
	if (!t->flow) {
		offer = !kernel_only && worth(t);
	} else if (kernel_only) {
		if (t->flow->state != DG_OUT_OFFERED)
			ds_dg_drained(t->flow);
	} else {
		t->flow->brief = (flags & MSG_DONTWAIT) || ds_dg_nonblocking(d, fd);
		t->flow->alone = d->run >= DS_DG_ALONE;
		struct ds_dg_out *o = ds_dg_flow(d, t);
		total = c.left;
		if (o)
			rc = all(t, &c, &says);
		woken = o && rc == DS_DG_ARMED && c.left > train && train && wakes(o);
		if (rc == DS_DG_OVER)
			ds_dg_out_end(d, t, DG_ON_GONE, o->seg.broken ? DS_WHY_BREACH : DS_WHY_PEER);
		if (rc == DS_DG_FULL) { /* a rule says that it waits */
			ds_own_unlock(&d->out);
			*done += total - c.left;
			return WAIT;
		}
		if (rc == DS_DG_SENT || (rc == DS_DG_FAULT && c.left == total) || c.left < total || woken) {
			ds_own_unlock(&d->out);
			if (rc == DS_DG_FAULT) {
				errno = EFAULT;
				return -1;
			}
			if (rc != DS_DG_SENT && !send_rest(d, fd, h, flags, s, t, &c, &says, woken) && c.left == total && !*done)
				return DS_DG_ANEW;
			return rc != DS_DG_SENT && c.left == total && !*done ? -1 : (ssize_t)whole;
		}
	}
	bool rest = *done && !kernel_only; /* the flow has ended, or its receiver sleeps */
	if (!to_kernel(d, s, t, rest ? 0 : pieces(c.left, train)))
		return DS_DG_ANEW;
	if (rest) {
		send_rest(d, fd, h, flags, s, t, &c, &says, false);
		return (ssize_t)whole;
	}
	if (offer) {
		ds_dg_offer(d, fd, s->addr, s->port);
		s->known = true;
	}
	return DS_DG_KERNEL;
}

ssize_t ds_dg_sendmsg(struct ds_dgram *d, int fd, const struct msghdr *h, int flags, struct ds_dg_sent *s)
{
	static const struct timespec moment = {0, 100000};
	unsigned handled = ds_handled();
	size_t done = 0;
	ssize_t rc;

	if (DS_GET(d->nout) && ds_dg_failed(d, fd))
		return -1;
	while ((rc = try_send(d, fd, h, flags, s, &done)) == WAIT) {
		int fl = flags & MSG_DONTWAIT ? O_NONBLOCK : REAL(fcntl, fd, F_GETFL);

		errno = EAGAIN;
		if (fl < 0 || (fl & O_NONBLOCK))
			return done ? (ssize_t)done : -1;
		if (ds_syscall(SYS_nanosleep, &moment, NULL) < 0 || ds_handled() != handled) {
			errno = EINTR;
			return done ? (ssize_t)done : -1;
		}
	}
	return (rc == DS_DG_KERNEL || rc == DS_DG_ANEW) && done ? (ssize_t)done : rc;
}

void ds_dg_has_sent(struct ds_dgram *d, struct ds_dg_sent *s, unsigned n, size_t bytes)
{
	struct ds_dg_dest *t = s->to;
	unsigned counts = s->known ? n : 0;

	ds_critical_begin();
	ds_cleanup_pop(s->slot);
	ends(s, counts);
	s->to = NULL;
	ds_by_number_end(&s->kernel);
	if (counts && ds_own_lock(&d->out) != DS_NESTED) {
		ds_dg_ended(t);
		if (t->flow) {
			ds_bump(ds_dg_moved, 1, n);
			ds_bump(t->flow->counters, DS_C_SENT_SHADOW, bytes);
		}
		ds_own_unlock(&d->out);
	}
	ds_critical_end();
}

void ds_dg_cancelled(struct ds_dg_sent *s)
{
	ds_critical_begin();
	ds_cleanup_pop(s->slot);
	jumped(s);
	s->to = NULL;
	ds_by_number_end(&s->kernel);
	ds_critical_end();
}

void ds_dg_counted(struct ds_dgram *d, int fd, const void *to, socklen_t len)
{
	uint8_t addr[16];
	uint16_t port;
	bool offer = false;

	if ((to ? !ds_dg_address(d, to, len, addr, &port) : !DS_GET(d->connected)) || ds_own_lock(&d->out) == DS_NESTED)
		return;
	struct ds_dg_dest *t = to ? ds_dg_dest(d, addr, port) : &d->peer;
	if (t && !t->flow && worth(t)) {
		offer = true;
		memcpy(addr, t->addr, 16);
		port = t->port;
	}
	ds_own_unlock(&d->out);
	if (offer)
		ds_dg_offer(d, fd, addr, port);
}

/* The UDP sockets of the process. */
#include "conn/broker.h"
#include "conn/dgram.h"
#include "conn/fds.h"
#include "conn/inner.h"

#include <errno.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* ---- a fork ------------------------------------------------------------------------- */

static int pair[2] = {-1, -1};
static bool forks; /* there are sockets: the lock of the pool keeps it so */

/* In a child: what d had belongs to the parent. Memory and descriptors end for this process. */
static void forget_flows(struct ds_dgram *d, void *arg)
{
	(void)arg;
	d->in = d->out = (struct ds_lock){0};
	d->sleepers = d->uncounted = 0;
	ds_by_number_child(&d->numbered);
	if (d->setup != DG_SETUP_QUIET)
		ds_dg_setup_on(d, DG_ON_FORGET);
	d->line = NULL;
	for (unsigned i = 0; i < d->nin; i++) {
		d->past += d->flows[i]->seg.seen + d->flows[i]->seg.given_up; /* as far as anybody has looked */
		ds_dg_unmap(&d->flows[i]->seg);
		if (d->flows[i]->alive >= 0)
			ds_fd_close(d->flows[i]->alive);
		REAL(munmap, d->flows[i], sizeof *d->flows[i]);
	}
	d->nin = d->nlisted = d->awake = 0;
	ds_dg_gave(d, d->shown_in);
	for (int i = 0; i <= DS_DG_DESTS; i++) {
		struct ds_dg_dest *t = i < DS_DG_DESTS ? &d->dests[i] : &d->peer;

		if (t->flow) {
			ds_dg_unmap(&t->flow->seg);
			ds_dg_out_put(t->flow);
		}
		t->flow = NULL;
		t->sending = 0; /* other threads */
	}
	d->nout = 0;
}

/* Ends the flows of d, which two processes are about to have. */
static void end_flows(struct ds_dgram *d, void *arg)
{
	(void)arg;
	if (d->nin && ds_own_lock(&d->in) != DS_NESTED) {
		ds_dg_in_close_all(d, DS_WHY_SHARED);
		ds_own_unlock(&d->in);
	}
	if (d->nout && ds_own_lock(&d->out) != DS_NESTED) {
		ds_dg_leave(d, DS_WHY_SHARED);
		ds_own_unlock(&d->out);
	}
}

void ds_dg_forking(void)
{
	forks = ds_dg_pool_hold();
	ds_dg_each(end_flows, NULL);
	if (forks && ds_syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		pair[0] = pair[1] = -1;
}

void ds_dg_forked(int pid)
{
	int own = pair[pid == 0], other = pair[pid != 0];

	if (pid == 0) {
		ds_dg_each(forget_flows, NULL);
		ds_dg_peer_child();
	}
	if (other >= 0)
		REAL(close, other);
	if (pid >= 0 && forks)
		ds_dg_add_relative(own);
	else if (own >= 0)
		REAL(close, own);
	pair[0] = pair[1] = -1;
	ds_dg_pool_let_go(pid == 0);
}

void ds_dg_forked_unprepared(bool child)
{
	ds_dg_each(child ? forget_flows : end_flows, NULL);
	if (child)
		ds_dg_peer_child();
	ds_dg_add_relative(-1);
}

/* ---- the life of a socket ----------------------------------------------------------- */

/* With the lock of setup: nothing is offered to the socket from now on. */
static void forget(struct ds_dgram *d)
{
	if (d->setup != DG_SETUP_QUIET)
		ds_dg_unlisten(d);
}

/* For ds_dg_each: the same, if the socket is the kernel's. */
static void forget_hard(struct ds_dgram *d, void *arg)
{
	(void)arg;
	if (DS_GET(d->hard))
		forget(d);
}

/* Runs with the lock of setup. */
static void forget_all(void)
{
	__atomic_store_n(&ds_setup_due, NULL, __ATOMIC_SEQ_CST);
	ds_dg_each(forget_hard, NULL);
}

/* With the lock of setup: the socket is closed. */
static void end(void *arg)
{
	struct ds_dgram *d = arg;

	forget(d);
	if (ds_own_lock(&d->in) != DS_NESTED) {
		ds_dg_in_close_all(d, DS_WHY_NOTHING);
		ds_dg_in_drop_all(d);
		ds_dg_in_sweep(d);
		ds_own_unlock(&d->in);
	}
	if (ds_own_lock(&d->out) != DS_NESTED) {
		ds_dg_leave(d, DS_WHY_NOTHING);
		ds_own_unlock(&d->out);
	}
	ds_stats_put(d->line, ds_config.explain);
	ds_dg_free(d);
}

void ds_dg_end(struct ds_dgram *d)
{
	int saved = errno, zero = 0;

	/* A call that found its descriptor just before it was closed holds it for a moment, and
	 * drops the last reference once more: one of the two ends it. */
	if (!__atomic_compare_exchange_n(&d->users, &zero, DS_DG_FREE, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return;
	if (d->setup != DG_SETUP_QUIET || d->nin || d->nout || d->line)
		ds_setup_do(end, d);
	else
		ds_dg_free(d);
	errno = saved;
}

/* ---- what makes a socket the kernel's ----------------------------------------------- */

void ds_dg_harden(struct ds_dgram *d, int why)
{
	int saved = errno;

	if (!DS_GET(d->hard))
		d->why = (uint8_t)why;
	__atomic_store_n(&d->hard, true, __ATOMIC_SEQ_CST);
	if (DS_GET(d->setup) != DG_SETUP_QUIET) {
		__atomic_store_n(&ds_setup_due, forget_all, __ATOMIC_RELEASE);
		if (ds_setup_try()) /* never waits: this may be a holder of a lock that comes after that */
			ds_setup_unlock();
	}
	if (d->nin && ds_own_lock(&d->in) != DS_NESTED) {
		ds_dg_in_close_all(d, why);
		ds_own_unlock(&d->in);
	}
	if (d->nout && ds_own_lock(&d->out) != DS_NESTED) {
		ds_dg_leave(d, why);
		ds_own_unlock(&d->out);
	}
	errno = saved;
}

/* *t leads to where *to does. The sends that are under way go on. */
static void begins_anew(struct ds_dg_dest *t, const struct ds_dg_dest *to)
{
	memcpy(t, to, offsetof(struct ds_dg_dest, sending));
	t->flow = NULL;
}

void ds_dg_connected(struct ds_dgram *d, const struct sockaddr *addr, socklen_t len)
{
	int saved = errno;
	struct ds_dg_dest peer = {0};
	bool ours = ds_dg_address(d, addr, len, peer.addr, &peer.port);

	if (DS_GET(d->setup) != DG_SETUP_QUIET && ds_setup_lock()) { /* it is another socket to the broker */
		forget(d);
		ds_setup_unlock();
	}
	if (d->nin && ds_own_lock(&d->in) != DS_NESTED) {
		ds_dg_in_close_all(d, DS_WHY_PROGRAM);
		ds_own_unlock(&d->in);
	}
	if (ds_own_lock(&d->out) != DS_NESTED) {
		ds_dg_leave(d, DS_WHY_PROGRAM);
		for (int i = 0; i < DS_DG_DESTS; i++)
			begins_anew(&d->dests[i], &(struct ds_dg_dest){0});
		begins_anew(&d->peer, &peer);
		d->peer.ended = !ours;
		DS_SET(d->connected, ours);
		ds_own_unlock(&d->out);
	}
	errno = saved;
}

/* Does an option of a level change nothing that a flow would have to know? */
static bool harmless(int level, int name)
{
	static const short socket[] = {
		SO_SNDBUF, SO_SNDBUFFORCE, SO_RCVTIMEO_OLD, SO_RCVTIMEO_NEW, SO_SNDTIMEO_OLD,
		SO_SNDTIMEO_NEW, SO_BROADCAST, SO_KEEPALIVE, SO_PRIORITY, SO_INCOMING_CPU, SO_BUSY_POLL, SO_RCVLOWAT, SO_DEBUG, SO_LINGER,
		72 /* SO_BUF_LOCK */,
	};
	static const short ip[] = {
		IP_MTU_DISCOVER, IP_MULTICAST_IF, IP_MULTICAST_TTL, IP_MULTICAST_LOOP, IP_BIND_ADDRESS_NO_PORT, IP_FREEBIND,
		IP_MULTICAST_ALL, 51 /* IP_LOCAL_PORT_RANGE */,
	};
	static const short ip6[] = {
		IPV6_V6ONLY, IPV6_MTU_DISCOVER, IPV6_MTU, IPV6_DONTFRAG, IPV6_MULTICAST_IF, IPV6_MULTICAST_HOPS,
		IPV6_MULTICAST_LOOP, IPV6_ADDR_PREFERENCES, IPV6_AUTOFLOWLABEL, IPV6_FREEBIND,
	};
	const short *list = level == SOL_SOCKET ? socket : level == IPPROTO_IP ? ip : level == IPPROTO_IPV6 ? ip6 : NULL;
	size_t n = level == SOL_SOCKET ? sizeof socket : level == IPPROTO_IP ? sizeof ip : level == IPPROTO_IPV6 ? sizeof ip6 : 0;

	for (size_t i = 0; i < n / sizeof *list; i++)
		if (list[i] == name)
			return true;
	return false;
}

/* Does it ask for control data that is the same for all datagrams of one sender? */
static bool constant(int level, int name)
{
	if (level == IPPROTO_IP)
		return name == IP_PKTINFO || name == IP_RECVTOS || name == IP_RECVTTL || name == IP_RECVORIGDSTADDR;
	return level == IPPROTO_IPV6 && (name == IPV6_RECVPKTINFO || name == IPV6_RECVTCLASS || name == IPV6_RECVHOPLIMIT || name == IPV6_RECVORIGDSTADDR);
}

/* Does it change how this socket's datagrams arrive? */
static bool outward(int level, int name)
{
	return (level == IPPROTO_IP && (name == IP_TOS || name == IP_TTL)) ||
	       (level == IPPROTO_IPV6 && (name == IPV6_TCLASS || name == IPV6_UNICAST_HOPS));
}

/* All flows to d begin anew. */
static void again(struct ds_dgram *d)
{
	if (ds_own_lock(&d->in) == DS_NESTED)
		return;
	ds_dg_in_close_all(d, DS_WHY_PROGRAM);
	ds_own_unlock(&d->in);
}

/* What its flows from it say changes from here on. */
static void marks(struct ds_dgram *d, int fd)
{
	if (ds_own_lock(&d->out) == DS_NESTED)
		return;
	for (int i = 0; d->nout && i <= DS_DG_DESTS; i++) {
		const struct ds_dg_dest *t = i < DS_DG_DESTS ? &d->dests[i] : &d->peer;

		if (t->flow)
			ds_dg_marks(t->flow, fd);
	}
	ds_own_unlock(&d->out);
}

void ds_dg_option(struct ds_dgram *d, int fd, int level, int name, const void *value, socklen_t len)
{
	int saved = errno, v = 0;

	if (len >= sizeof v && ds_readable(value, sizeof v))
		memcpy(&v, value, sizeof v);
	if (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_RCVBUFFORCE)) {
		socklen_t n = sizeof v;
		if (REAL(getsockopt, fd, SOL_SOCKET, SO_RCVBUF, &v, &n) == 0)
			DS_SET(d->bound, (uint32_t)v);
		if (ds_own_lock(&d->in) != DS_NESTED) {
			for (unsigned i = 0; i < d->nin; i++)
				ds_dg_bound(&d->flows[i]->seg, d->bound);
			ds_own_unlock(&d->in);
		}
	} else if (level == SOL_SOCKET && (name == SO_REUSEADDR || name == SO_REUSEPORT)) {
		if (v && d->nin && ds_own_lock(&d->in) != DS_NESTED) {
			ds_dg_end_bells(d);
			ds_own_unlock(&d->in);
		}
		if (v && d->nout && ds_own_lock(&d->out) != DS_NESTED) {
			ds_dg_leave(d, DS_WHY_PROGRAM); /* they begin anew */
			ds_own_unlock(&d->out);
		}
	} else if (constant(level, name)) {
		DS_SET(d->wants, true); /* it stays so: what is not asked for any more is not in the sample */
		again(d);
	} else if (outward(level, name)) {
		marks(d, fd);
	} else if (level == IPPROTO_UDP && name == UDP_SEGMENT) {
		DS_SET(d->train, v > 0 && v <= 65507 ? (uint16_t)v : 0);
	} else if (level == IPPROTO_UDP && name == UDP_GRO) {
		DS_SET(d->trains, v != 0); /* it takes datagrams one by one, too */
	} else if ((level == IPPROTO_IP && name == IP_RECVERR) || (level == IPPROTO_IPV6 && name == IPV6_RECVERR)) {
		DS_SET(d->hears, true); /* it stays so: then it asks in vain */
	} else if (!harmless(level, name)) {
		ds_dg_harden(d, DS_WHY_UNSUPPORTED_CALL);
	}
	errno = saved;
}

/* ---- what another process has set --------------------------------------------------- */

/* The options of a level: 1..most. Those of iptables, from 64 on, are not asked for. */
static const struct {
	int level, most;
} levels[] = {{SOL_SOCKET, 90}, {IPPROTO_IP, 63}, {IPPROTO_IPV6, IPV6_FREEBIND}, {IPPROTO_UDP, UDP_GRO}};

/* Does it say what the socket is or has had, and not what a program has set? */
static bool is_told(int level, int name)
{
	return (level == SOL_SOCKET && (name == SO_ERROR || name == SO_MEMINFO || name == SO_INCOMING_NAPI_ID || name == SO_COOKIE)) ||
	       (level == IPPROTO_IP && name == 52 /* IP_PROTOCOL */);
}

/* Takes an option for one that the program has set, if fd has another value than a new socket. */
static void reread(struct ds_dgram *d, int fd, int new, int level, int name)
{
	uint8_t set[64] = {0}, unset[64] = {0};
	socklen_t n = sizeof set, m = sizeof unset;

	if (is_told(level, name) || REAL(getsockopt, new, level, name, unset, &m) < 0)
		return;
	if (REAL(getsockopt, fd, level, name, set, &n) < 0 || n != m || memcmp(set, unset, sizeof set) != 0)
		ds_dg_option(d, fd, level, name, set, n);
}

/* Is fd connected as d is? */
static bool same_peer(const struct ds_dgram *d, int fd)
{
	struct sockaddr_storage a;
	uint8_t addr[16];
	uint16_t port;
	socklen_t n = sizeof a;

	if (kernel_getpeername(fd, (struct sockaddr *)&a, &n) < 0 || !ds_dg_address(d, &a, n, addr, &port))
		return !d->connected;
	return d->connected && d->peer.port == port && memcmp(d->peer.addr, addr, sizeof addr) == 0;
}

bool ds_dg_alone(struct ds_dgram *d, int fd)
{
	int how = ds_dg_shared(d), saved = errno, new = -1;

	if (how == DG_UNREAD)
		new = (int)ds_syscall(SYS_socket, d->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (new < 0)
		return how == DG_ALONE;
	DS_SET(d->nonblock, DS_NONBLOCK_UNKNOWN);
	DS_SET(d->train, 0);
	DS_SET(d->trains, false);
	if (d->bound)
		ds_dg_option(d, fd, SOL_SOCKET, SO_RCVBUF, NULL, 0);
	for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
		for (int name = 1; name <= levels[i].most; name++)
			reread(d, fd, new, levels[i].level, name);
	if (!same_peer(d, fd))
		ds_dg_harden(d, DS_WHY_PROGRAM);
	ds_syscall(SYS_close, new);
	ds_dg_was_read(d);
	errno = saved;
	return true;
}

/* Receives on UDP sockets that have flows to them (SPEC 10.3). */
#include "conn/dgram.h"
#include "conn/inner.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/syscall.h>

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum {
	CHECK = 16,    /* receives, after which it is time to look who the senders are */
	FIRST_US = 3,  /* of spinning, before the kernel is asked, */
	STEP_US = 10,  /* and until it is asked again */
	ROW = 4,       /* datagrams in a row, after which it looks less often, */
	GATHER_NS = 600, /* so that the next ones gather, and each line moves once for several */
	YIELDS = 2000, /* ds_dg_moment that the receives of a socket leave to threads which were woken */
};

/* Writes the source of a flow as the kernel does. */
static void name(const struct ds_dgram *d, const struct ds_info *i, struct msghdr *h)
{
	if (d->family == AF_INET) {
		struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(i->port[0])};

		memcpy(&a.sin_addr, i->addr[0] + 12, 4);
		memcpy(h->msg_name, &a, sizeof a);
		h->msg_namelen = sizeof a;
	} else {
		struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(i->port[0])};

		memcpy(&a.sin6_addr, i->addr[0], 16);
		memcpy(h->msg_name, &a, sizeof a);
		h->msg_namelen = sizeof a;
	}
}

/* ---- control data ------------------------------------------------------------------- */

/* Keeps what the kernel says with a datagram of f, but for what only a train has. */
static void sample(struct ds_dg_in *f, const struct msghdr *k)
{
	size_t n = 0;

	if ((k->msg_flags & MSG_CTRUNC) || !k->msg_control || k->msg_controllen == 0)
		return;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(k); c; c = CMSG_NXTHDR((struct msghdr *)k, c)) {
		size_t space = CMSG_ALIGN(c->cmsg_len);

		if (c->cmsg_len < CMSG_LEN(0) || c->cmsg_level == IPPROTO_UDP)
			continue;
		if (n + space > sizeof f->control || (uint8_t *)c + c->cmsg_len > (uint8_t *)k->msg_control + k->msg_controllen)
			return;
		memset(f->control + n, 0, space);
		memcpy(f->control + n, c, c->cmsg_len);
		n += space;
	}
	f->length = (uint16_t)n;
	f->sampled = true;
}

/* Puts what the datagram itself says in the place of the sample's. */
static void adapt(struct cmsghdr *c, const struct ds_dg_meta *m)
{
	int v;

	if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS && c->cmsg_len >= CMSG_LEN(1)))
		*CMSG_DATA(c) = m->tos;
	else if (c->cmsg_len < CMSG_LEN(sizeof v))
		return;
	else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS)
		memcpy(CMSG_DATA(c), &(int){m->tos}, sizeof v);
	else if (m->ttl && ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL) || (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT)))
		memcpy(CMSG_DATA(c), &(int){m->ttl}, sizeof v);
}

/* Writes the control data of a datagram to the program, as the kernel does: the last message that
 * begins in its memory is cut if need be, and one whose memory is not there is left out. */
static void control(struct ds_dg_in *f, const struct ds_dg_meta *m, struct msghdr *h)
{
	size_t room = h->msg_control ? h->msg_controllen : 0, n = 0;

	h->msg_controllen = 0;
	if (!f->sampled)
		return;
	struct msghdr s = {.msg_control = f->control, .msg_controllen = f->length};
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&s); c; c = CMSG_NXTHDR(&s, c)) {
		size_t len = c->cmsg_len, space = CMSG_ALIGN(len), left = room - n;
		struct cmsghdr head = *c;

		if (len > left)
			h->msg_flags |= MSG_CTRUNC;
		if (left < sizeof head)
			break;
		len = len < left ? len : left;
		if (!ds_writable((uint8_t *)h->msg_control + n, len))
			continue;
		adapt(c, m);
		head.cmsg_len = len;
		memcpy((uint8_t *)h->msg_control + n, &head, sizeof head);
		memcpy((uint8_t *)h->msg_control + n + sizeof head, CMSG_DATA(c), len - sizeof head);
		n += space < left ? space : left;
	}
	h->msg_controllen = n;
}

/* ---- a datagram of a flow ----------------------------------------------------------- */

/* Copies it to the program's vectors: how many bytes; -1: their memory is not there. */
static ssize_t scatter(const struct ds_dg_meta *m, const volatile uint8_t *bytes, const struct msghdr *h)
{
	size_t done = 0;

	for (size_t i = 0; i < (size_t)h->msg_iovlen && done < m->len; i++) {
		size_t n = h->msg_iov[i].iov_len < m->len - done ? h->msg_iov[i].iov_len : m->len - done;

		if (!n)
			continue;
		if (!ds_writable(h->msg_iov[i].iov_base, n))
			return -1;
		ds_dg_copy(h->msg_iov[i].iov_base, bytes + done, n);
		done += n;
	}
	return (ssize_t)done;
}

/* Takes the next datagram of f, as recvmsg. False: there is none after all. */
static bool take(struct ds_dgram *d, struct ds_dg_in *f, struct msghdr *h, int flags, ssize_t *rc)
{
	struct ds_dg_meta m;
	const volatile uint8_t *bytes;

	if (!ds_dg_next(&f->seg, &m, &bytes)) {
		if (f->seg.broken)
			ds_dg_in_close(d, f, DS_WHY_BREACH);
		return false;
	}
	ssize_t n = scatter(&m, bytes, h);
	h->msg_flags = (flags & MSG_CMSG_CLOEXEC) | (n >= 0 && (size_t)n < m.len ? MSG_TRUNC : 0);
	if (n < 0) {
		errno = EFAULT;
		*rc = -1;
	} else {
		control(f, &m, h);
		*rc = flags & MSG_TRUNC ? (ssize_t)m.len : n;
		if (h->msg_name)
			name(d, &f->seg.info, h);
	}
	if (flags & MSG_PEEK) {
		ds_dg_show(d, f);
		return true;
	}
	ds_dg_take(&f->seg, &m);
	ds_dg_gave(d, f);
	f->used = true;
	f->early = 0;
	ds_bump(ds_dg_moved, 2, 1);
	ds_bump(f->counters, DS_C_RECEIVED, m.len);
	ds_bump(f->counters, m.len <= DS_DG_SLOT ? DS_C_RX_VELO_LAST : DS_C_RX_INFO, 1);
	return true;
}

/* ---- datagrams of the kernel -------------------------------------------------------- */

/* How many datagrams the kernel has given as one, of rc bytes (UDP_GRO). */
static unsigned cars(const struct msghdr *k, ssize_t rc)
{
	int size = 0;

	for (struct cmsghdr *c = k->msg_control ? CMSG_FIRSTHDR(k) : NULL; c; c = CMSG_NXTHDR((struct msghdr *)k, c))
		if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO && c->cmsg_len == CMSG_LEN(sizeof size))
			memcpy(&size, CMSG_DATA(c), sizeof size);
	return size > 0 && rc > size ? (unsigned)((rc + size - 1) / size) : 1;
}

/* A datagram of the kernel's has come, as k says. */
static void note(struct ds_dgram *d, const struct msghdr *k, ssize_t rc, int flags)
{
	uint8_t addr[16];
	uint16_t port;

	if (flags & MSG_PEEK) {
		ds_dg_show(d, NULL);
		return;
	}
	ds_dg_gave(d, NULL);
	if (!ds_dg_address(d, k->msg_name, k->msg_namelen, addr, &port))
		return;
	struct ds_dg_in *f = ds_dg_from(d, addr, port);
	DS_SET(d->by_kernel, d->by_kernel + 1);
	if (!f)
		return;
	if (d->wants)
		sample(f, k);
	ds_bump(f->counters, DS_C_RECEIVED_SHADOW, (uint64_t)rc);
	ds_bump(ds_dg_moved, 3, 1);
	ds_dg_took(d, f, DS_GET(d->trains) ? cars(k, rc) : 1);
}

/* h is what the program gets of k. */
static void give(struct msghdr *h, const struct msghdr *k)
{
	if (h->msg_name) {
		memcpy(h->msg_name, k->msg_name, k->msg_namelen < sizeof(struct sockaddr_storage) ? k->msg_namelen : sizeof(struct sockaddr_storage));
		h->msg_namelen = k->msg_namelen;
	}
	h->msg_controllen = k->msg_controllen;
	h->msg_flags = k->msg_flags;
}

/* With the lock: receives what the kernel has, without waiting. */
static ssize_t now(struct ds_dgram *d, int fd, struct msghdr *h, int flags)
{
	struct sockaddr_storage from;
	struct msghdr k = *h;

	k.msg_name = &from;
	k.msg_namelen = sizeof from;
	ds_dg_in_check(d);
	ds_dg_before(d);
	ssize_t rc = ds_syscall(SYS_recvmsg, fd, &k, flags | MSG_DONTWAIT); /* not a cancellation point */
	if (rc >= 0) {
		note(d, &k, rc, flags);
		give(h, &k);
	} else if (errno == EAGAIN) {
		ds_dg_found_nothing(d);
	}
	return rc;
}

/* With the lock: it is the kernel's turn, although f has records. True: *rc is what that gave. */
static bool turn(struct ds_dgram *d, int fd, struct ds_dg_in **f, struct msghdr *h, int flags, ssize_t *rc)
{
	int saved = errno, of = ds_dg_turn(d, fd, f);

	*rc = -1;
	if (of == DG_TURN_ERROR)
		return true;
	if (of == DG_TURN_KERNEL) {
		*rc = now(d, fd, h, flags);
		if (*rc >= 0 || errno != EAGAIN)
			return true;
		*f = NULL; /* another thread has it; and the look at the senders may have freed f */
	}
	errno = saved;
	return false;
}

/* With the lock: gives what the program was shown of the kernel's. False: somebody else has it. */
static bool again(struct ds_dgram *d, int fd, struct msghdr *h, int flags, ssize_t *rc)
{
	int saved = errno;

	*rc = now(d, fd, h, flags);
	if (*rc >= 0 || errno != EAGAIN)
		return true;
	ds_dg_gave(d, NULL);
	errno = saved;
	return false;
}

/* ---- receiving ---------------------------------------------------------------------- */

bool ds_dg_nonblocking(struct ds_dgram *d, int fd)
{
	int is = DS_GET(d->nonblock);

	if (is == DS_NONBLOCK_UNKNOWN) {
		int fl = REAL(fcntl, fd, F_GETFL);

		is = fl >= 0 && (fl & O_NONBLOCK) ? DS_NONBLOCK_YES : DS_NONBLOCK_NO;
		DS_SET(d->nonblock, is);
	}
	return is == DS_NONBLOCK_YES;
}

/* With the lock: another thread sleeps in poll or a receive, the kernel has what woke it, and a
 * record follows that. If the caller took that now, the other one would sleep on, over the record:
 * so it leaves it there for a while. Who has a handler of the other thread call it waits in vain:
 * bells end here, and a socket's receives wait no more than YIELDS in all its life. */
static bool yields(struct ds_dgram *d, int fd)
{
	bool early = false;

	if (__builtin_expect(__atomic_load_n(&d->sleepers, __ATOMIC_SEQ_CST) <= 0, 1) || d->yielded >= YIELDS)
		return false;
	if (!d->no_bells && d->nin)
		ds_dg_end_bells(d);
	for (unsigned i = 0; i < d->nlisted; i++)
		early |= ds_dg_early(&d->list[i]->seg);
	if (!early || ds_dg_is_empty(fd))
		return false;
	d->yielded++;
	return true;
}

enum { NOTHING, FOUND, GOT };

uint64_t ds_dg_first_ask(const struct ds_spin *s) { return ds_ticks() + (s->crowded ? 0 : FIRST_US * ds_ticks_us()); }

/* Looks for a while: FOUND, a flow has something; GOT: the kernel had, *rc. It ends when no flow is
 * awake: another thread has armed them, and sleeps, and the bell is for that one. */
static int spin(struct ds_dgram *d, int fd, struct msghdr *h, int flags, ssize_t *rc, struct ds_spin *s)
{
	uint64_t next, t;
	int saved = errno, err;

	ds_spin_begin(s, NULL);
	next = ds_dg_first_ask(s);
	uint64_t gather = DS_GET(d->row) >= ROW ? GATHER_NS * ds_ticks_us() / 1000 : 0;
	do {
		if (gather)
			for (t = ds_ticks(); ds_ticks() - t < gather;)
				ds_pause();
		if (ds_dg_ready(d)) {
			ds_spin_end(s, NULL, true);
			return FOUND;
		}
		t = ds_ticks();
		if (t < next || ds_own_lock(&d->in) == DS_NESTED)
			continue;
		if (!d->awake) {
			ds_own_unlock(&d->in);
			break;
		}
		*rc = now(d, fd, h, flags);
		err = errno;
		ds_own_unlock(&d->in);
		errno = err;
		if (*rc >= 0 || err != EAGAIN) {
			ds_spin_end(s, NULL, true);
			return GOT;
		}
		next = t + STEP_US * ds_ticks_us();
	} while (ds_spin_more(s));
	/* Once at least, for senders that want to know whether all has come (SPEC 10.3). */
	*rc = -1;
	errno = EAGAIN;
	if (ds_own_lock(&d->in) != DS_NESTED) {
		if (d->awake)
			*rc = now(d, fd, h, flags);
		err = errno;
		ds_own_unlock(&d->in);
		errno = err;
	}
	if (*rc >= 0 || errno != EAGAIN) {
		err = errno;
		ds_spin_end(s, NULL, false);
		errno = err;
		return GOT;
	}
	errno = saved;
	return NOTHING;
}

/* A receive that waits in the kernel. It is counted, and so is what it may have taken there. */
struct receiving {
	struct ds_dgram *d; /* NULL: it has ended */
	int slot;
};

/* Its counts end. */
static void uncount(struct ds_dgram *d)
{
	ds_dg_sleeper(d, -1);
	ds_add_shared(&d->uncounted, -1);
}

/* A jump leaves it, and drops the caller's reference. */
static void jumped(void *socket)
{
	uncount(socket);
	ds_dg_put(socket);
}

/* The thread is cancelled there. */
static void cancelled(struct receiving *r)
{
	if (!r->d)
		return;
	ds_critical_begin();
	ds_cleanup_pop(r->slot);
	uncount(r->d);
	ds_critical_end();
}

/* Receives by the kernel, which may wait. With the lock, which it drops, and counted as a
 * sleeper. */
static ssize_t sleeping(struct ds_dgram *d, int fd, struct msghdr *h, int flags)
{
	struct sockaddr_storage from;
	struct msghdr k = *h;
	__attribute__((cleanup(cancelled))) struct receiving r = {.d = d};

	k.msg_name = &from;
	k.msg_namelen = sizeof from;
	ds_critical_begin();
	ds_add_shared(&d->uncounted, 1);
	ds_own_unlock(&d->in);
	r.slot = ds_cleanup_push(jumped, d);
	ds_critical_end();
	ssize_t rc = REAL(recvmsg, fd, &k, flags);
	int saved = errno;
	ds_critical_begin();
	ds_cleanup_pop(r.slot);
	r.d = NULL;
	/* It is a sleeper until it has the lock: one that begins to wait before what came is
	 * counted finds that the bell may be this thread's. */
	bool locked = rc >= 0 && ds_own_lock(&d->in) != DS_NESTED;
	ds_dg_sleeper(d, -1);
	if (locked) {
		note(d, &k, rc, flags);
		ds_own_unlock(&d->in);
	}
	ds_add_shared(&d->uncounted, -1);
	if (rc >= 0)
		give(h, &k);
	ds_critical_end();
	errno = saved;
	return rc;
}

/* In place of sleeping, with the lock, which it drops: a record waits for what the kernel has, or
 * will have. What comes now is left to other threads that sleep, as yields does. False: there is
 * nothing yet. */
static bool instead(struct ds_dgram *d, int fd, struct msghdr *h, int flags, ssize_t *rc)
{
	int before = errno, saved = EAGAIN;

	ds_dg_sleeper(d, -1);
	bool leaves = d->yielded < YIELDS && __atomic_load_n(&d->sleepers, __ATOMIC_SEQ_CST) > 0;
	*rc = -1;
	if (!leaves) {
		*rc = now(d, fd, h, flags);
		saved = errno;
	}
	bool waits = *rc < 0 && saved == EAGAIN && ((leaves && !ds_dg_is_empty(fd)) || (!(flags & MSG_DONTWAIT) && !ds_dg_nonblocking(d, fd)));
	ds_own_unlock(&d->in);
	errno = saved;
	if (!waits)
		return true;
	ds_dg_moment();
	errno = before;
	return false;
}

/* As ds_dg_recvmsg, which tells the sets. */
static ssize_t receive(struct ds_dgram *d, int fd, struct msghdr *h, int flags)
{
	struct ds_spin s;
	enum ds_spun spun = DS_SPUN_NOT;
	unsigned waits = DS_GET(ds_dg_eager);
	ssize_t rc = -1;

	for (;;) {
		if (ds_own_lock(&d->in) == DS_NESTED)
			return REAL(recvmsg, fd, h, flags);
		if (yields(d, fd)) {
			ds_own_unlock(&d->in);
			ds_dg_moment();
			continue;
		}
		if (d->nlisted && d->turn++ % CHECK == 0)
			ds_dg_in_check(d);
		struct ds_dg_in *f = ds_dg_shown(d);
		bool due = !f && d->shown == DG_SHOWN_NOTHING, done = d->shown == DG_SHOWN_KERNEL && again(d, fd, h, flags, &rc);
		if (!f && !done && d->nlisted)
			f = ds_dg_pick(d);
		if (f || done) {
			done = done || (due && ++d->streak > DS_DG_TURN && turn(d, fd, &f, h, flags, &rc));
			done = done || (f && take(d, f, h, flags, &rc));
			int saved = errno;
			ds_own_unlock(&d->in);
			if (spun == DS_SPUN_OPEN)
				ds_spun_slept(&spun, &s);
			errno = saved;
			if (done)
				return rc;
			continue;
		}
		d->row = (d->row + d->streak) / 2;
		d->streak = 0;
		if (d->awake && ((flags & MSG_DONTWAIT) || ds_dg_nonblocking(d, fd))) {
			rc = now(d, fd, h, flags);
			int saved = errno;
			bool overdue = rc < 0 && saved == EAGAIN && ds_dg_overdue(d, fd);
			ds_own_unlock(&d->in);
			if (overdue)
				continue;
			errno = saved;
			return rc;
		}
		if (d->awake && spun == DS_SPUN_NOT) {
			ds_own_unlock(&d->in);
			int how = spin(d, fd, h, flags, &rc, &s);
			if (how == GOT)
				return rc;
			if (how == NOTHING && waits) {
				waits--;
				ds_spin_end(&s, NULL, false);
				ds_dg_moment();
			} else if (how == NOTHING) {
				spun = DS_SPUN_OPEN;
			}
			continue;
		}
		/* Counted first, so that no other thread wakes a flow; then all are armed. */
		ds_dg_sleeper(d, 1);
		ds_dg_in_check(d);
		ds_dg_arm_waiting(d);
		bool early = d->nlisted && ds_dg_await_kernel(d, fd) != DG_RESTS, more = d->nlisted && ds_dg_pick(d);
		if (more) {
			ds_dg_sleeper(d, -1);
			ds_own_unlock(&d->in);
			continue;
		}
		if (early) {
			if (instead(d, fd, h, flags, &rc))
				return rc;
			continue;
		}
		rc = sleeping(d, fd, h, flags);
		ds_spun_slept(&spun, &s);
		return rc;
	}
}

/* Does a thread sleep in a set that d is in? */
static bool in_sets(const struct ds_dgram *d)
{
	bool any = false;

	for (int i = 0; i < DS_DG_SETS; i++) {
		const uint32_t *asleep = __atomic_load_n(&d->sets[i].asleep, __ATOMIC_ACQUIRE);
		any |= asleep && __atomic_load_n(asleep, __ATOMIC_SEQ_CST);
	}
	return any;
}

ssize_t ds_dg_recvmsg(struct ds_dgram *d, int fd, struct msghdr *h, int flags)
{
	uint64_t before = DS_GET(d->by_kernel);
	ssize_t rc = DS_GET(d->nlisted) && ds_dg_failed(d, fd) ? -1 : receive(d, fd, h, flags);

	if (DS_GET(d->by_kernel) != before && DS_GET(d->nlisted) && in_sets(d) && ds_above) {
		int saved = errno;
		ds_above->due(d);
		errno = saved;
	}
	return rc;
}

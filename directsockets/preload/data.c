/* Bytes: send and receive, over the segment or the shadow. */
#include "inner.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

enum { INQ = 0x541B, OUTQ = 0x5411 }; /* SIOCINQ, SIOCOUTQ */

bool ds_nonblock(struct ds_sock *s, int fd)
{
	/* Whoever shares the descriptor may change its flags without our seeing it. */
	if (!s->nonblock || (s->sh && __atomic_load_n(&s->sh->forked, __ATOMIC_RELAXED)))
		s->nonblock = REAL(fcntl)(fd, F_GETFL) & O_NONBLOCK ? 2 : 1;
	return s->nonblock == 2;
}

void ds_flags_changed(struct ds_sock *s) { s->nonblock = 0; }

static bool cursor(struct ds_cursor *c, const struct iovec *iov, int n)
{
	c->v = iov;
	c->n = n;
	c->off = 0;
	c->left = 0;
	for (int i = 0; i < n; i++) {
		if (iov[i].iov_len > (size_t)PTRDIFF_MAX - c->left)
			return false;
		c->left += iov[i].iov_len;
	}
	return true;
}

/* The first vector that a cursor stands at, and at most max of it. */
static struct iovec here(const struct ds_cursor *c, size_t max)
{
	const struct iovec *v = c->v;
	size_t off = c->off;

	while (v->iov_len == off) {
		v++;
		off = 0;
	}
	struct iovec one = {(uint8_t *)v->iov_base + off, v->iov_len - off};
	if (one.iov_len > max)
		one.iov_len = max;
	return one;
}

static void skip(struct ds_cursor *c, size_t n)
{
	c->left -= n;
	while (n) {
		size_t k = c->v->iov_len - c->off;

		if (k > n)
			k = n;
		c->off += k;
		n -= k;
		if (c->off == c->v->iov_len && (n || c->left)) {
			c->v++;
			c->n--;
			c->off = 0;
		}
	}
}

/* ---- calls on the shadow ------------------------------------------------------- */

/* Ends the use of the shadow also when the thread is cancelled in the call. */
static void used(struct ds_sock **s)
{
	if (*s)
		ds_users_end(*s);
}

static ssize_t real_send(int fd, const struct iovec *iov, int n, int flags)
{
	if (n == 1)
		return REAL(send)(fd, iov->iov_base, iov->iov_len, flags);
	struct msghdr h = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
	return REAL(sendmsg)(fd, &h, flags);
}

static ssize_t real_recv(int fd, const struct iovec *iov, int n, int flags)
{
	if (n == 1)
		return REAL(recv)(fd, iov->iov_base, iov->iov_len, flags);
	struct msghdr h = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
	return REAL(recvmsg)(fd, &h, flags);
}

void ds_moved(struct ds_sock *s, size_t sent, size_t received)
{
	/* About right is enough. */
	__atomic_store_n(&s->moved, __atomic_load_n(&s->moved, __ATOMIC_RELAXED) + sent + received, __ATOMIC_RELAXED);
	if (sent)
		__atomic_store_n(&s->sends, __atomic_load_n(&s->sends, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
	if (!s->sh || !ds_has_segment(s))
		return;
	ds_count(&s->seg, DS_C_SENT_SHADOW, sent);
	ds_count(&s->seg, DS_C_RECEIVED_SHADOW, received);
}

static ssize_t shadow_send(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags)
{
	struct ds_sock *guard __attribute__((cleanup(used))) = s;

	ds_users_begin(s);
	ssize_t r = real_send(fd, iov, n, flags);
	if (r > 0)
		ds_moved(s, (size_t)r, 0);
	return r;
}

static ssize_t shadow_recv(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags)
{
	struct ds_sock *guard __attribute__((cleanup(used))) = s;

	ds_users_begin(s);
	ssize_t r = real_recv(fd, iov, n, flags);
	if (r > 0 && !(flags & MSG_PEEK))
		ds_moved(s, 0, (size_t)r);
	return r;
}

/* ---- modes ----------------------------------------------------------------------- */

void ds_say(struct ds_sock *s, uint32_t set, uint32_t clear)
{
	bool alone = ds_alone(s);
	int how = ds_lock(&s->sh->attend, alone);

	ds_attend(&s->seg, &s->sh->attention, set, clear);
	if (how != DS_NESTED)
		ds_unlock(&s->sh->attend, alone);
}

static void say_mode(struct ds_sock *s)
{
	const struct ds_shared *h = s->sh;

	if (h->tx_mode == TX_DIRECT || h->rx_mode == RX_DIRECT)
		ds_stats_say(s->entry, DS_MODE_DIRECT, DS_WHY_NONE);
	else if (h->tx_mode == TX_BACK && h->rx_mode == RX_BACK && s->entry && s->entry->mode == DS_MODE_DIRECT)
		ds_stats_say(s->entry, DS_MODE_DEMOTED, DS_WHY_PEER);
}

void ds_tx_is(struct ds_sock *s, int mode)
{
	__atomic_store_n(&s->sh->tx_mode, mode, __ATOMIC_RELEASE);
	say_mode(s);
}

void ds_rx_is(struct ds_sock *s, int mode)
{
	__atomic_store_n(&s->sh->rx_mode, mode, __ATOMIC_RELEASE);
	if (mode == RX_END)
		ds_count(&s->seg, DS_C_RX_SHUTDOWN, 1);
	say_mode(s);
}

void ds_break(struct ds_sock *s)
{
	__atomic_store_n(&s->sh->tx_mode, TX_BROKEN, __ATOMIC_RELEASE);
	__atomic_store_n(&s->sh->rx_mode, RX_BROKEN, __ATOMIC_RELEASE);
	ds_stats_say(s->entry, DS_MODE_DEMOTED, DS_WHY_BREACH);
	/* The peer finds its doorbell at its end; so does whoever of us sleeps there. */
	syscall(SYS_shutdown, s->seg.bell, SHUT_RDWR);
}

void ds_check_bell(struct ds_sock *s, bool now)
{
	char c;
	int saved = errno;
	uint64_t t = ds_ticks();

	if (s->sh->gone || (!now && t - s->checked < ds_ticks_us() * 10000))
		return;
	s->checked = t;
	ssize_t n = syscall(SYS_recvfrom, s->seg.bell, &c, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		__atomic_store_n(&s->sh->gone, 1, __ATOMIC_RELEASE);
	errno = saved;
}

static inline bool left(struct ds_sock *s)
{
	return __atomic_load_n(&s->sh->gone, __ATOMIC_ACQUIRE) || (ds_seg_peer_attention(&s->seg) & (DS_CLOSED | DS_RESET));
}

static ssize_t to_shadow(void *arg, const void *p, size_t n)
{
	return syscall(SYS_sendto, *(int *)arg, p, n, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

void ds_tx_update(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	bool ended = h->tx_shut;
	int saved = errno;

	if (h->tx_mode <= TX_DIRECT) {
		if (ds_seg_peer_attention(&s->seg) & DS_FROZEN) {
			if (h->tx_mode == TX_SHADOW) {
				ds_say(s, DS_ROLLED, 0);
				ds_tx_is(s, TX_BACK);
			} else if (ds_tx_roll_begin(&s->seg, &h->tx, &h->attention, &h->roll_slot, &h->roll_off) < 0) {
				ds_break(s);
			} else {
				ds_tx_is(s, TX_ROLLING);
			}
		} else if (left(s)) {
			ds_tx_is(s, TX_BACK); /* the shadow says what follows */
		}
	}
	if (h->tx_mode == TX_ROLLING) {
		switch (ds_tx_roll(&s->seg, &h->tx, &h->roll_slot, &h->roll_off, to_shadow, &fd, &ended)) {
		case 0:
			ds_tx_is(s, TX_BACK);
			if (ended)
				REAL(shutdown)(fd, SHUT_WR);
			break;
		case DS_BREACH:
			ds_break(s);
			break;
		default:
			if (errno != EAGAIN && errno != EINTR)
				ds_tx_is(s, TX_BACK); /* and the program will be told */
		}
	}
	errno = saved;
}

static bool shadow_speaks(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};
	struct timespec none = {0, 0};

	return syscall(SYS_ppoll, &p, 1, &none, NULL, 0) > 0;
}

void ds_rx_update(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	uint64_t carried;

	if (h->rx_mode == RX_SHADOW) {
		switch (ds_rx_promoted(&s->seg, &h->rx, &h->attention, &carried)) {
		case 1:
			if (carried < h->rx_read) {
				ds_break(s);
				return;
			}
			h->left = carried - h->rx_read;
			ds_rx_is(s, h->left ? RX_CATCHUP : RX_DIRECT);
			break;
		case DS_BREACH:
			ds_break(s);
			return;
		default:
			if (left(s) && !ds_rx_hint(&s->seg, &h->rx))
				ds_rx_is(s, RX_BACK);
		}
	}
	if (h->rx_mode == RX_UNDECIDED) {
		if (ds_seg_peer_attention(&s->seg) & DS_ROLLED)
			ds_rx_is(s, RX_BACK);
		else if ((ds_seg_peer_attention(&s->seg) & DS_STANDS) || shadow_speaks(fd))
			ds_rx_is(s, ds_seg_peer_attention(&s->seg) & DS_ROLLED ? RX_BACK : RX_DIRECT);
	}
	if (h->rx_mode == RX_DIRECT) {
		int how = ds_rx_look(&s->seg, &h->rx);

		if (how == DS_AGAIN && left(s)) /* what it sent before it left is there by now */
			how = ds_rx_look(&s->seg, &h->rx) == DS_AGAIN ? DS_DEMOTED : 1;
		if (how == DS_DEMOTED)
			ds_rx_is(s, RX_BACK);
		if (how == DS_END)
			ds_rx_is(s, RX_END);
		if (how == DS_BREACH)
			ds_break(s);
	}
}

bool ds_on_shadow_rx(struct ds_sock *s)
{
	return !s->sh || !ds_has_segment(s) || __atomic_load_n(&s->sh->rx_mode, __ATOMIC_ACQUIRE) == RX_BACK;
}

bool ds_on_shadow_tx(struct ds_sock *s)
{
	return !s->sh || !ds_has_segment(s) || __atomic_load_n(&s->sh->tx_mode, __ATOMIC_ACQUIRE) == TX_BACK;
}

/* ---- sending ---------------------------------------------------------------------- */

/* From the shadow to the segment, with the lock of tx. */
static bool promote(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	uint64_t carried;
	bool done = false;

	if (h->tx_shut || !ds_may_promote(s) || !ds_gate_shut(s))
		return false;
	int saved = errno;
	if (ds_kernel_sent(fd, s->side, &carried) && ds_tx_promote(&s->seg, &h->tx, &h->attention, carried) == 0) {
		ds_tx_is(s, TX_DIRECT);
		done = true;
	}
	errno = saved;
	ds_gate_open(s);
	return done;
}

static ssize_t broken_pipe(int flags)
{
	if (!(flags & MSG_NOSIGNAL))
		raise(SIGPIPE);
	errno = EPIPE;
	return -1;
}

/* Moves what it can over the segment: the number of bytes, or -1 and errno; *shadow is set if
 * the rest belongs on the shadow. */
static ssize_t send_direct(struct ds_sock *s, int fd, struct ds_cursor *c, int flags, bool *shadow)
{
	struct ds_shared *h = s->sh;
	bool alone = ds_alone(s);
	ssize_t n = -1, err = 0;

	if (!ds_tx_take(s, alone)) {
		errno = EAGAIN;
		return -1;
	}
	if (h->tx_mode == TX_SHADOW) {
		ds_tx_update(s, fd);
		if (h->tx_mode == TX_SHADOW)
			promote(s, fd);
	}
	switch (h->tx_mode) {
	case TX_DIRECT:
		if (h->tx_shut) {
			err = EPIPE;
			break;
		}
		n = ds_tx_send(&s->seg, &h->tx, &h->attention, c);
		if (n == DS_BREACH) {
			ds_break(s);
			err = ECONNRESET;
		} else if (n == DS_STOPPED || (ds_seg_peer_attention(&s->seg) & (DS_FROZEN | DS_CLOSED | DS_RESET))) {
			ds_tx_update(s, fd);
			*shadow = h->tx_mode == TX_BACK;
			err = n > 0 || *shadow ? 0 : EAGAIN;
		} else if (n < 0) {
			err = EAGAIN;
		}
		break;
	case TX_ROLLING:
		ds_tx_update(s, fd);
		*shadow = h->tx_mode == TX_BACK;
		err = *shadow ? 0 : EAGAIN;
		break;
	case TX_ENDED:
		err = EPIPE;
		break;
	case TX_BROKEN:
		err = ECONNRESET;
		break;
	default:
		*shadow = true;
	}
	ds_unlock(&h->tx_lock, alone);
	if (n >= 0)
		return n;
	if (err == EPIPE)
		return broken_pipe(flags);
	errno = (int)err;
	return err ? -1 : 0;
}

ssize_t ds_send(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags)
{
	struct ds_cursor c;
	int64_t deadline = -1;
	size_t sent = 0;

	if (!s->sh)
		return real_send(fd, iov, n, flags);
	ds_tick(s, fd);
	if (!ds_has_segment(s) || __atomic_load_n(&s->sh->tx_mode, __ATOMIC_RELAXED) == TX_BACK)
		return shadow_send(s, fd, iov, n, flags);
	if (!cursor(&c, iov, n)) {
		errno = EINVAL;
		return -1;
	}
	if (!c.left)
		return __atomic_load_n(&s->sh->tx_mode, __ATOMIC_RELAXED) == TX_ENDED ? broken_pipe(flags) : 0;
	ds_check_bell(s, false);
	if (__builtin_expect(s->sh->gone && s->sh->tx_mode == TX_DIRECT, 0)) {
		bool alone = ds_alone(s);

		if (ds_tx_take(s, alone)) {
			ds_tx_update(s, fd);
			ds_unlock(&s->sh->tx_lock, alone);
		}
	}
	for (;;) {
		bool shadow = false;
		ssize_t r = send_direct(s, fd, &c, sent ? flags | MSG_NOSIGNAL : flags, &shadow);

		if (r > 0)
			sent += (size_t)r;
		if (shadow && c.left) {
			struct iovec one = here(&c, c.left);

			/* Waits in the kernel, if it waits at all, as it would have without us. */
			if (c.n > 1 || sent)
				r = shadow_send(s, fd, &one, 1, sent ? flags | MSG_NOSIGNAL : flags);
			else
				r = shadow_send(s, fd, iov, n, flags);
			if (r > 0) {
				skip(&c, (size_t)r);
				sent += (size_t)r;
				if (c.left)
					continue;
			}
			return sent ? (ssize_t)sent : r;
		}
		if (!c.left)
			return (ssize_t)sent;
		if (r > 0)
			continue;
		if (r == 0 || errno != EAGAIN)
			return sent ? (ssize_t)sent : r;
		if ((flags & MSG_DONTWAIT) || ds_nonblock(s, fd))
			break;
		if (deadline < 0)
			deadline = ds_deadline(fd, SO_SNDTIMEO);
		if (ds_wait(s, fd, POLLOUT, deadline) < 0)
			return sent ? (ssize_t)sent : -1;
	}
	if (sent)
		return (ssize_t)sent;
	ds_check_bell(s, false);
	errno = EAGAIN;
	return -1;
}

/* ---- receiving --------------------------------------------------------------------- */

/* Reads the shadow, as far as what there is belongs before the segment's data. With the lock of rx. */
static ssize_t recv_before(struct ds_sock *s, int fd, struct ds_cursor *c, int flags, size_t peeked)
{
	struct ds_shared *h = s->sh;
	size_t limit = c->left;
	int there = 0;
	ssize_t r;

	if (h->rx_mode == RX_CATCHUP && limit > h->left)
		limit = h->left;
	if (h->rx_mode == RX_SHADOW) {
		/* PROMOTE may arrive between our look and the call, and the sender be back on the shadow: take
		 * only what was there before the look. */
		if (REAL(ioctl)(fd, INQ, &there) < 0)
			return -1;
		ds_rx_update(s, fd);
		if (h->rx_mode != RX_SHADOW) {
			errno = ESTALE; /* look again */
			return -1;
		}
		if (there > 0 && limit > (size_t)there)
			limit = (size_t)there;
	}
	if (peeked) {
		errno = EAGAIN; /* peeking: what is on the shadow was seen */
		return -1;
	}
	struct ds_cursor at = *c;
	struct iovec v[8];
	int n = 0;
	for (size_t sum = 0; n < 8 && sum < limit; sum += v[n++].iov_len) {
		v[n] = here(&at, limit - sum);
		skip(&at, v[n].iov_len);
	}
	struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};
	r = syscall(SYS_recvmsg, fd, &m, (flags & ~MSG_WAITALL) | MSG_DONTWAIT);
	if (r <= 0 && h->rx_mode == RX_SHADOW) {
		int saved = errno;

		ds_rx_update(s, fd); /* its end may be a SHUTDOWN's */
		errno = saved;
		if (h->rx_mode != RX_SHADOW && h->rx_mode != RX_BACK) {
			errno = ESTALE;
			return -1;
		}
	}
	if (r > 0) {
		skip(c, (size_t)r);
		if (!(flags & MSG_PEEK)) {
			h->rx_read += (uint64_t)r;
			ds_moved(s, 0, (size_t)r);
			if (h->rx_mode == RX_CATCHUP && !(h->left -= (uint64_t)r))
				ds_rx_is(s, RX_DIRECT);
		}
	}
	return r;
}

/* Receives what there is: the number of bytes; 0: end of file; -1 and errno, of which ESTALE means
 * look again. *shadow: the rest is the kernel's to say. */
static ssize_t recv_direct(struct ds_sock *s, int fd, struct ds_cursor *c, int flags, bool *shadow)
{
	struct ds_shared *h = s->sh;
	bool alone = ds_alone(s), peek = flags & MSG_PEEK;
	ssize_t n = -1;

	if (!ds_rx_take(s, alone)) {
		errno = EAGAIN;
		return -1;
	}
	if (__builtin_expect(h->rx_mode != RX_DIRECT, 0))
		ds_rx_update(s, fd);
	switch (h->rx_mode) {
	case RX_SHADOW:
	case RX_CATCHUP:
		n = recv_before(s, fd, c, flags, 0);
		/* A program that peeks for more than the shadow has shall see what follows it. */
		if (peek && n > 0 && h->rx_mode == RX_CATCHUP && (uint64_t)n == h->left && c->left) {
			ssize_t more = ds_rx_recv(&s->seg, &h->rx, &h->attention, c, true, flags & MSG_TRUNC);

			if (more > 0)
				n += more;
		}
		break;
	case RX_UNDECIDED:
		errno = EAGAIN;
		break;
	case RX_DIRECT:
		n = ds_rx_recv(&s->seg, &h->rx, &h->attention, c, peek, flags & MSG_TRUNC);
		if (__builtin_expect(n < 0, 0)) {
			errno = EAGAIN;
			if (n == DS_BREACH) {
				ds_break(s);
				errno = ECONNRESET;
			} else if (n != DS_AGAIN || left(s)) {
				ds_rx_update(s, fd);
				errno = ESTALE;
			}
			n = -1;
		}
		break;
	case RX_END:
		n = 0;
		break;
	case RX_BROKEN:
		errno = ECONNRESET;
		break;
	default:
		*shadow = true;
		n = 0;
	}
	ds_unlock(&h->rx_lock, alone);
	return n;
}

/* A connection that may get a segment while a thread waits for it: as recv_direct, without one. */
static ssize_t recv_early(struct ds_sock *s, int fd, struct ds_cursor *c, int flags)
{
	struct iovec one = here(c, c->left);
	ssize_t r = shadow_recv(s, fd, &one, 1, (flags & ~MSG_WAITALL) | MSG_DONTWAIT);

	if (r > 0)
		skip(c, (size_t)r);
	return r;
}

/* Bytes that the call shall not return without, unless it must. */
static size_t target(const struct ds_sock *s, const struct ds_cursor *c, int flags)
{
	if (flags & MSG_WAITALL)
		return c->left;
	size_t low = s->lowat, cap = s->seg.mem ? s->seg.ring / 2 : 65536;
	if (low > cap)
		low = cap;
	return low < c->left ? low : c->left;
}

ssize_t ds_recv(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags)
{
	struct ds_cursor c;
	int64_t deadline = -1;
	size_t got = 0, want;

	if (!s->sh)
		return real_recv(fd, iov, n, flags);
	ds_tick(s, fd);
	if (!ds_has_segment(s) && (ds_plain(s) || ds_alone(s) || (flags & MSG_DONTWAIT)))
		return shadow_recv(s, fd, iov, n, flags);
	if (!cursor(&c, iov, n)) {
		errno = EINVAL;
		return -1;
	}
	if (!c.left || __atomic_load_n(&s->sh->rx_mode, __ATOMIC_RELAXED) == RX_BACK)
		return shadow_recv(s, fd, iov, n, flags);
	struct ds_cursor begin = c;
	want = target(s, &c, flags);
	for (;;) {
		bool shadow = false;
		ssize_t r;

		if (flags & MSG_PEEK) {
			c = begin; /* every look sees all */
			got = 0;
		}
		if (ds_has_segment(s))
			r = recv_direct(s, fd, &c, flags, &shadow);
		else if (ds_plain(s))
			shadow = true, r = 0;
		else
			r = recv_early(s, fd, &c, flags);
		if (shadow) { /* for good */
			if (!got)
				return shadow_recv(s, fd, iov, n, flags);
			struct iovec one = here(&c, c.left);
			r = shadow_recv(s, fd, &one, 1, flags | (got >= want ? MSG_DONTWAIT : 0));
			if (r > 0)
				skip(&c, (size_t)r);
			return (ssize_t)got + (r > 0 ? r : 0);
		}
		if (r > 0)
			got += (size_t)r;
		if (got >= want || r == 0)
			return (ssize_t)got;
		if (r > 0 && !(flags & MSG_PEEK))
			continue;
		if (r < 0 && errno == ESTALE)
			continue;
		if (r < 0 && errno != EAGAIN)
			return got ? (ssize_t)got : -1;
		if ((flags & MSG_DONTWAIT) || ds_nonblock(s, fd)) {
			if (got)
				return (ssize_t)got;
			if (ds_has_segment(s))
				ds_check_bell(s, false);
			errno = EAGAIN;
			return -1;
		}
		if (__atomic_load_n(&s->sh->rx_shut, __ATOMIC_ACQUIRE))
			return (ssize_t)got;
		if (deadline < 0)
			deadline = ds_deadline(fd, SO_RCVTIMEO);
		if (ds_wait(s, fd, POLLIN, deadline) < 0)
			return got ? (ssize_t)got : -1;
		ds_tick(s, fd);
	}
}

void ds_options_changed(struct ds_sock *s, int fd)
{
	int low = 1;
	socklen_t len = sizeof low;
	int saved = errno;

	if (REAL(getsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &low, &len) == 0 && low > 0)
		s->lowat = (unsigned)low;
	errno = saved;
}

int ds_fionread(struct ds_sock *s, int fd, int *n)
{
	struct ds_shared *h = s->sh;
	uint64_t sum = 0;
	int there = 0;

	if (!h || !ds_has_segment(s))
		return REAL(ioctl)(fd, INQ, n);
	bool alone = ds_alone(s);
	if (!ds_rx_take(s, alone)) {
		*n = 0;
		return 0;
	}
	ds_rx_update(s, fd);
	if (h->rx_mode < RX_DIRECT || h->rx_mode == RX_BACK)
		REAL(ioctl)(fd, INQ, &there);
	if (h->rx_mode == RX_CATCHUP && (uint64_t)there >= h->left)
		there = (int)h->left;
	if ((h->rx_mode == RX_CATCHUP && (uint64_t)there == h->left) || h->rx_mode == RX_DIRECT)
		sum = ds_rx_readable(&s->seg, &h->rx);
	ds_unlock(&h->rx_lock, alone);
	*n = there + (sum > (1u << 30) ? 1 << 30 : (int)sum);
	return 0;
}

int ds_outq(struct ds_sock *s, int fd, int *n)
{
	uint64_t sum = 0;

	if (REAL(ioctl)(fd, OUTQ, n) < 0)
		return -1;
	if (!s->sh || !ds_has_segment(s))
		return 0;
	bool alone = ds_alone(s);
	if (ds_tx_take(s, alone)) {
		if (s->sh->tx_mode == TX_DIRECT || s->sh->tx_mode == TX_ENDED)
			sum = ds_tx_queued(&s->seg, &s->sh->tx);
		ds_unlock(&s->sh->tx_lock, alone);
	}
	*n += sum > (1u << 30) ? 1 << 30 : (int)sum;
	return 0;
}

/* Receiving, over the segment or the shadow.
 *
 *   ds_recv ── ds_tick (setup.c) ── is there a segment? ── no ──▶ ds_shadow_recv: the kernel's
 *                                        │ yes
 *      ┌───▶ rx_lock ── where is the direction? (modes.c)
 *      │        RX_SHADOW   the shadow, as far as it has bytes of before PROMOTE
 *      │        RX_CATCH_UP  the shadow, the rest of the bytes that PROMOTE has counted
 *      │        RX_DIRECT   ds_rx_recv (segment/rx.c): copy, give back, ring the peer if it is armed
 *      │        RX_FALLEN_BACK   as before, but nothing of the segment, until the peer has said who has the rest
 *      │        RX_RETURNING  the shadow     RX_REST  the segment: what the shadow did not give (returning.c)
 *      │        RX_BACK     the shadow, for good
 *      │        RX_ENDED      0            RX_BROKEN  ECONNRESET or ETIMEDOUT, once; then 0
 *      │     unlock ── enough? ── yes ──▶ return
 *      │        │ no
 *      └── ds_wait for a message (sleep.c), unless the call shall not wait: EAGAIN
 */
#include "conn/inner.h"

#include <errno.h>
#include <sys/syscall.h>

/* Peeks at the shadow, where the direction continues after the n bytes of the queue that were seen:
 * how many bytes more. Without it, a program that peeks until it sees enough would wait for ever.
 * With the lock of rx. */
static ssize_t peek_behind(struct ds_sock *s, int fd, struct ds_cursor *c, int flags, ssize_t n)
{
	struct iovec v[DS_VECTORS];
	struct msghdr m = {.msg_iov = v};
	int saved = errno;
	ssize_t r;

	if (!c->left || !ds_rx_over(&s->seg, &s->sh->rx) || ds_rx_readable(&s->seg, &s->sh->rx) != (uint64_t)n || ds_shadow_at_mark(fd))
		return 0;
	m.msg_iovlen = (size_t)ds_vectors(c, c->left, v);
	r = ds_syscall(SYS_recvmsg, fd, &m, (flags & ~MSG_WAITALL) | MSG_DONTWAIT);
	if (r > 0)
		ds_skip(c, (size_t)r);
	errno = saved;
	return r > 0 ? r : 0;
}

/* A read that has room left has got all that there was where the direction was before: may there be
 * more where it is now? A short read would deny it to a program that reads on edges and has been
 * told about all. With the lock of rx. */
static bool moved_on(struct ds_sock *s, int before)
{
	if (before == RX_DIRECT)
		return s->sh->rx.next == DS_DEMOTED;
	return ds_rx_from_segment(s);
}

/* Receives what there is: the number of bytes; 0: end of file; -1 and errno, where ESTALE means
 * look again, and EDEADLK that this handler has interrupted a receive. *shadow: the kernel answers
 * for the rest. *more: call again, or the read would be short. */
static ssize_t recv_direct(struct ds_sock *s, int fd, struct ds_cursor *c, int flags, bool *shadow, bool *more)
{
	struct ds_shared *h = s->sh;
	bool alone = ds_alone(s), peek = flags & MSG_PEEK;
	ssize_t n = -1;

	if (!ds_rx_take(s, alone)) {
		errno = EDEADLK;
		return -1;
	}
	int before = ds_mode(&h->rx_mode);
	if (__builtin_expect(before != RX_DIRECT, 0)) {
		fd = ds_still(s, fd);
		ds_rx_update(s, fd);
	}
	switch (ds_mode(&h->rx_mode)) {
	case RX_SHADOW:
	case RX_CATCH_UP:
	case RX_FALLEN_BACK:
	case RX_RETURNING:
		n = ds_recv_before(s, fd, c, flags);
		if (n > 0 && c->left && ds_mode(&h->rx_mode) == RX_RETURNING)
			ds_rx_update(s, fd);
		/* A program that peeks for more than the shadow has shall see what follows it. */
		if (peek && n > 0 && ds_mode(&h->rx_mode) == RX_CATCH_UP && (uint64_t)n == ds_rx_ahead(h) && c->left) {
			ssize_t next = ds_rx_recv(&s->seg, &h->rx, &h->attention, c, true, flags & MSG_TRUNC);

			if (next > 0)
				n += next;
		}
		break;
	case RX_DIRECT:
	case RX_REST:
		n = ds_rx_recv(&s->seg, &h->rx, &h->attention, c, peek, flags & MSG_TRUNC);
		if (__builtin_expect(n < 0, 0)) {
			errno = EAGAIN;
			if (n == DS_BREACH) {
				ds_break(s);
				errno = ESTALE;
			} else if (n == DS_FAULT) {
				errno = EFAULT;
			} else if (n != DS_AGAIN || ds_mode(&h->rx_mode) == RX_REST || ds_left(s)) {
				ds_rx_update(s, ds_still(s, fd));
				errno = ESTALE;
			}
			n = -1;
		}
		if (peek && n > 0)
			n += peek_behind(s, ds_still(s, fd), c, flags, n);
		break;
	case RX_ENDED:
		n = 0;
		break;
	case RX_BROKEN:
		errno = ds_tell_error(s, ds_take_error(s, fd));
		n = errno ? -1 : 0;
		break;
	default:
		*shadow = true;
		n = 0;
	}
	*more = n > 0 && c->left && !peek && moved_on(s, before);
	ds_unlock(&h->rx_lock, alone);
	return n;
}

/* A connection that may get a segment while a thread waits for it: as recv_direct, without one. */
static ssize_t recv_early(struct ds_sock *s, int fd, struct ds_cursor *c, int flags)
{
	struct iovec v[DS_VECTORS];
	ssize_t r = ds_shadow_recv(s, fd, v, ds_vectors(c, c->left, v), (flags & ~MSG_WAITALL) | MSG_DONTWAIT, true);

	if (r == DS_CHANGED) {
		errno = ESTALE;
		return -1;
	}
	if (r > 0)
		ds_skip(c, (size_t)r);
	return r;
}

/* How many bytes the call waits for. */
static size_t target(const struct ds_sock *s, const struct ds_cursor *c, int flags)
{
	if (flags & MSG_WAITALL)
		return c->left;
	size_t low = DS_GET(s->lowat), cap = ds_has_segment(s) ? s->seg.ring / 2 : 65536;
	if (low > cap)
		low = cap;
	return low < c->left ? low : c->left;
}

/* True if the peer has nothing more to say about what we have sent. If it has, a reader of the
 * shadow must hear the bell: the peer may have fallen back, and wait for what we return to TCP
 * before it answers. */
static bool settled(struct ds_sock *s)
{
	return !ds_has_segment(s) || __atomic_load_n(&s->sh->tx_mode, __ATOMIC_RELAXED) >= TX_BACK || ds_mode(&s->sh->gone);
}

/* Receives from the shadow, to which the direction has returned, into what is left of c, and moves
 * c past it. Returns what the kernel's call returns. got: the call has received something
 * before. */
static ssize_t recv_shadow(struct ds_sock *s, int fd, struct ds_cursor *c, int flags, bool got)
{
	struct iovec v[DS_VECTORS];
	ssize_t r = ds_shadow_recv(s, fd, v, ds_vectors(c, c->left, v), flags, false);

	if (r > 0)
		ds_skip(c, (size_t)r);
	else if (r < 0 && got)
		ds_owe(s, errno); /* the call tells what it has got; the next one tells this */
	return r;
}

/* What a call returns that has got bytes, or none and errno. The error is the next call's, then. */
static ssize_t got_or_error(struct ds_sock *s, size_t got)
{
	if (got)
		ds_owe(s, errno);
	return got ? (ssize_t)got : -1;
}

/* One look at where the direction is now: as recv_direct. */
static ssize_t recv_once(struct ds_sock *s, int fd, struct ds_cursor *c, int flags, bool *shadow, bool *more)
{
	if (ds_has_segment(s))
		return recv_direct(s, fd, c, flags, shadow, more);
	*shadow = ds_plain(s);
	return *shadow ? 0 : recv_early(s, fd, c, flags);
}

/* What a call returns that has less than it waits for, and does not wait. */
static ssize_t recv_less(struct ds_sock *s, int fd, size_t got)
{
	if (got)
		return (ssize_t)got;
	if (ds_has_segment(s))
		ds_check_peer(s, fd, false);
	errno = EAGAIN;
	return -1;
}

/* How long a call that has got something sleeps, in ns, at most. SO_RCVLOWAT holds for what it has
 * and what comes together, but readiness, the kernel's too, knows only what is there. */
enum { BLIND = DS_FOLLOW_MS * 1000000 };

/* Until when it sleeps, deadline (0: none) at the latest. */
static int64_t sleep_until(const struct ds_sock *s, size_t got, int64_t deadline)
{
	int64_t soon = got && DS_GET(s->lowat) > 1 ? ds_now() + BLIND : 0;

	return soon && (!deadline || soon < deadline) ? soon : deadline;
}

/* Does the kernel have the next byte, not the segment? */
static bool by_kernel(const struct ds_sock *s)
{
	int mode = ds_has_segment(s) ? ds_mode(&s->sh->rx_mode) : RX_BACK;

	return mode == RX_SHADOW || mode == RX_CATCH_UP || mode == RX_RETURNING || mode == RX_BACK;
}

/* What comes next for a call that has got something. As in the kernel, which knows only of what it
 * copies itself, such a call ends before urgent data. */
enum next { NEXT_BYTES, NEXT_NOTHING, NEXT_STOPS };

/* Looks, where by_kernel(s): what reads after NEXT_BYTES stops before urgent data. */
static enum next look_ahead(struct ds_sock *s, int fd)
{
	bool last = !ds_has_segment(s) || ds_mode(&s->sh->rx_mode) == RX_BACK;
	ssize_t n = 1;
	int at = 0;
	char c;

	if (last) /* elsewhere the segment has to be looked at, too */
		n = ds_shadow_recv(s, fd, &(struct iovec){&c, 1}, 1, MSG_PEEK | MSG_DONTWAIT, false);
	bool nothing = n < 0 && (errno == EAGAIN || errno == EINTR);
	if (n < 0 && !nothing)
		ds_owe(s, errno);
	ds_at_mark(s, ds_still(s, fd), &at);
	if (at || (n <= 0 && !nothing))
		return NEXT_STOPS;
	return nothing ? NEXT_NOTHING : NEXT_BYTES;
}

/* Receives into c, until the call has all that it waits for; c is at the beginning of iov, or after
 * the bytes that the call has got already. */
static ssize_t recv_on(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags, struct ds_cursor *c, size_t got)
{
	struct ds_cursor begin = *c;
	int64_t deadline = -1;
	size_t want = target(s, c, flags);
	bool peek = flags & MSG_PEEK;

	for (;;) {
		bool shadow = false, more = false, kernel = by_kernel(s);
		ssize_t r = -1;

		if (peek) {
			*c = begin; /* every look sees all */
			got = 0;
		}
		enum next next = got && kernel ? look_ahead(s, fd) : NEXT_BYTES;
		if (next == NEXT_STOPS)
			return (ssize_t)got;
		if (next == NEXT_BYTES)
			r = recv_once(s, fd, c, flags, &shadow, &more);
		else
			errno = EAGAIN;
		if (shadow && got && !kernel)
			continue; /* it has come there now */
		if (shadow && !got && settled(s)) /* and it stays there: the kernel waits, too */
			return ds_shadow_recv(s, fd, iov, n, flags, false);
		if (shadow) {
			if (ds_has_segment(s))
				ds_tx_attend(s, fd);
			r = recv_shadow(s, fd, c, (flags & ~MSG_WAITALL) | MSG_DONTWAIT, got);
		}
		if (got && r < 0 && errno == EAGAIN && !(flags & MSG_WAITALL) && (shadow || (next == NEXT_NOTHING && (ds_has_segment(s) || ds_plain(s)))))
			return (ssize_t)got; /* a sleep would wait for SO_RCVLOWAT bytes once more */
		if (r > 0)
			got += (size_t)r;
		if (more || (r < 0 && errno == ESTALE))
			continue;
		if (got >= want || r == 0)
			return (ssize_t)got;
		if (r > 0 && !peek)
			continue;
		bool handler = r < 0 && errno == EDEADLK;
		if (r < 0 && errno != EAGAIN && !handler)
			return got_or_error(s, got);
		if (r < 0 && !handler && ds_reads_nothing(s, fd))
			return (ssize_t)got;
		if ((flags & MSG_DONTWAIT) || handler || ds_nonblock(s, fd))
			return recv_less(s, fd, got);
		if (deadline < 0)
			deadline = ds_deadline(fd, SO_RCVTIMEO);
		int64_t until = sleep_until(s, got, deadline);
		if (ds_wait(s, fd, got && !peek && by_kernel(s) ? POLLIN | POLLPRI : POLLIN, until, deadline != 0) < 0 && (errno != EAGAIN || until == deadline))
			return got_or_error(s, got);
		fd = ds_still(s, fd);
		if (peek && deadline > 0 && ds_now() >= deadline) { /* what it peeks at is there, and not enough */
			errno = EAGAIN;
			return got_or_error(s, got);
		}
		ds_tick(s, fd);
	}
}

/* As ds_recv, but a call that succeeds may change errno. */
static ssize_t recv_any(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags)
{
	struct ds_cursor c;

	if (!s->sh)
		return ds_still_recv(s, fd, iov, n, flags);
	ds_tick(s, fd);
	if (!ds_has_segment(s) && (ds_plain(s) || ds_alone(s) || (flags & MSG_DONTWAIT))) {
		ssize_t r = ds_shadow_recv(s, fd, iov, n, flags, true);

		if (r != DS_CHANGED)
			return r;
	}
	if (!ds_cursor(&c, iov, n))
		return -1;
	if (!c.left || (__atomic_load_n(&s->sh->rx_mode, __ATOMIC_RELAXED) == RX_BACK && settled(s)))
		return ds_shadow_recv(s, fd, iov, n, flags, false);
	return recv_on(s, fd, iov, n, flags, &c, 0);
}

/* What most calls do: takes what the segment has into c, if that is all the call waits for. The
 * number of bytes, *more as recv_direct; 0: nothing was done that recv_any does not do again. */
static inline size_t recv_there(struct ds_sock *s, struct ds_cursor *c, bool *more)
{
	struct ds_shared *h = s->sh;
	bool alone = ds_alone(s);
	ssize_t r = 0;

	if (__builtin_expect(!ds_rx_take(s, alone), 0))
		return 0;
	ds_seg_heed(&s->seg, &h->attention);
	if (__builtin_expect(ds_mode(&h->rx_mode) == RX_DIRECT, 1))
		r = ds_rx_recv(&s->seg, &h->rx, &h->attention, c, false, false);
	*more = r > 0 && c->left && moved_on(s, RX_DIRECT);
	ds_unlock(&h->rx_lock, alone);
	return r > 0 ? (size_t)r : 0;
}

/* May the call be made by recv_there? */
static inline bool is_plain(const struct ds_sock *s, int n, int flags)
{
	return n == 1 && !(flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL)) && ds_state_of(s) == CONN_UP && ds_mode(&s->sh->rx_mode) == RX_DIRECT &&
	       DS_GET(s->lowat) <= 1;
}

ssize_t ds_recv(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags)
{
	int before = errno;
	struct ds_cursor c;
	bool more = false;
	size_t got = 0;
	ssize_t r;

	if (is_plain(s, n, flags) && ds_cursor(&c, iov, n) && c.left)
		got = recv_there(s, &c, &more);
	if (__builtin_expect(got && !more, 1))
		return (ssize_t)got;
	if (got)
		r = recv_on(s, fd, iov, n, flags, &c, got);
	else
		r = recv_any(s, fd, iov, n, flags);

	if (r >= 0)
		errno = before;
	return r;
}

ssize_t ds_recv_by(struct ds_sock *s, int fd, size_t n, ds_put *put, void *to)
{
	struct ds_shared *h = s->sh;
	struct iovec v[DS_VECTORS];
	ssize_t done = -1;
	int k = 0, why = EAGAIN;

	if (h)
		ds_tick(s, fd);
	bool alone = ds_alone(s);
	if (h && ds_has_segment(s) && ds_rx_take(s, alone)) {
		if (ds_rx_from_segment(s))
			k = ds_rx_vectors(&s->seg, &h->rx, v, DS_VECTORS, n);
		if (k && (done = put(to, v, k)) > 0) {
			struct iovec all = {NULL, (size_t)done};
			struct ds_cursor c = {.v = &all, .n = 1, .left = (size_t)done};
			ds_rx_recv(&s->seg, &h->rx, &h->attention, &c, false, true);
		}
		why = k ? errno : EAGAIN;
		ds_unlock(&h->rx_lock, alone);
	}
	if (done < 0)
		errno = why;
	return done;
}

int ds_fionread(struct ds_sock *s, int fd, int *n)
{
	struct ds_shared *h = s->sh;
	uint64_t sum = 0;
	int there = 0;

	ds_sharer_use(s, fd);
	if (!h || !ds_has_segment(s))
		return REAL(ioctl, fd, DS_INQ, n);
	bool alone = ds_alone(s);
	if (!ds_rx_take(s, alone)) {
		*n = 0;
		return 0;
	}
	ds_rx_update(s, fd);
	int mode = ds_mode(&h->rx_mode), before = mode == RX_FALLEN_BACK ? h->rx_before : mode;
	if (before < RX_DIRECT || mode == RX_BACK || mode == RX_RETURNING ||
	    (mode == RX_DIRECT && ds_rx_over(&s->seg, &h->rx))) /* it goes on there */
		REAL(ioctl, fd, DS_INQ, &there);
	if (before == RX_CATCH_UP && (uint64_t)there >= ds_rx_ahead(h))
		there = (int)ds_rx_ahead(h);
	if ((mode == RX_CATCH_UP && (uint64_t)there == ds_rx_ahead(h)) || ds_rx_from_segment(s))
		sum = ds_rx_readable(&s->seg, &h->rx);
	ds_unlock(&h->rx_lock, alone);
	*n = there + (sum > (1u << 30) ? 1 << 30 : (int)sum);
	return 0;
}

int ds_at_mark(struct ds_sock *s, int fd, int *at)
{
	ds_sharer_use(s, fd);
	if (REAL(ioctl, fd, DS_ATMARK, at) < 0)
		return -1;
	if (!*at || !s->sh || !ds_has_segment(s))
		return 0;
	struct ds_shared *h = s->sh;
	bool alone = ds_alone(s);
	if (ds_rx_take(s, alone)) {
		ds_rx_update(s, fd);
		if (ds_mode(&h->rx_mode) == RX_FALLEN_BACK || (ds_mode(&h->rx_mode) == RX_DIRECT && ds_rx_readable(&s->seg, &h->rx)))
			*at = 0; /* bytes before it are unread */
		ds_unlock(&h->rx_lock, alone);
	}
	return 0;
}

int ds_outq(struct ds_sock *s, int fd, int *n)
{
	uint64_t sum = 0;

	ds_sharer_use(s, fd);
	if (REAL(ioctl, fd, DS_OUTQ, n) < 0)
		return -1;
	if (!s->sh || !ds_has_segment(s))
		return 0;
	bool alone = ds_alone(s);
	if (ds_tx_take(s, alone)) {
		if (ds_mode(&s->sh->tx_mode) == TX_DIRECT || ds_mode(&s->sh->tx_mode) == TX_ENDED)
			sum = ds_tx_queued(&s->seg, &s->sh->tx);
		ds_unlock(&s->sh->tx_lock, alone);
	}
	*n += sum > (1u << 30) ? 1 << 30 : (int)sum;
	return 0;
}

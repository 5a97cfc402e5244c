/* Sending, over the segment or the shadow.
 *
 *   ds_send ── ds_tick (setup.c) ── is there a segment? ── no ──▶ ds_shadow_send: the kernel's
 *                                        │ yes
 *      ┌───▶ tx_lock ── where is the direction? (modes.c)
 *      │        TX_SHADOW   promote: then TX_DIRECT
 *      │        TX_PAUSED   the shadow, until the peer has consumed PAUSE: then TX_SHADOW
 *      │        TX_DIRECT   ds_tx_send (segment/tx.c): copy, publish, ring the peer if it is armed
 *      │        TX_RETURNING  to the shadow with what the peer has left, then TX_BACK
 *      │        TX_BACK     the rest goes by ds_shadow_send
 *      │        TX_ENDED    EPIPE        TX_BROKEN  ECONNRESET or ETIMEDOUT, once; then EPIPE
 *      │     unlock ── all of it? ── yes ──▶ return
 *      │        │ no
 *      └── ds_wait for room (sleep.c), unless the call shall not wait: EAGAIN
 */
#include "conn/inner.h"

#include <errno.h>
#include <sys/syscall.h>

int ds_take_error(struct ds_sock *s, int fd)
{
	int err = 0;
	socklen_t n = sizeof err;

	if ((ds_has_segment(s) && !ds_left(s)) || REAL(getsockopt, fd, SOL_SOCKET, SO_ERROR, &err, &n) < 0)
		return 0;
	return err;
}

int ds_tell_error(struct ds_sock *s, int shadow)
{
	int owed = s->sh ? __atomic_exchange_n(&s->sh->owed, 0, __ATOMIC_RELAXED) : 0;

	if (!owed)
		return ds_has_segment(s) && ds_mode(&s->sh->rx_mode) == RX_BROKEN ? 0 : shadow;
	return shadow && shadow != EPIPE ? shadow : owed;
}

/* A call that has sent something tells that; the next one tells the error. */
static ssize_t sent_or_error(struct ds_sock *s, size_t sent)
{
	if (sent)
		ds_owe(s, errno);
	return sent ? (ssize_t)sent : -1;
}

/* -1 and EPIPE, with SIGPIPE unless flags forbid it. As in the kernel, an error that was not told
 * yet comes first. */
static ssize_t broken_pipe(struct ds_sock *s, int fd, int flags)
{
	int err = ds_tell_error(s, ds_take_error(s, fd));

	if (err && err != EPIPE) {
		errno = err;
		return -1;
	}
	if (!(flags & MSG_NOSIGNAL))
		raise(SIGPIPE);
	errno = EPIPE;
	return -1;
}

/* With the lock of tx: are the bytes of c to be sent all or none? The kernel lets go of a socket in
 * the middle of a record only where its buffer ends, once in 64 KiB; so the records of writers who
 * share a connection seldom tear each other. */
static bool is_whole(struct ds_sock *s, int fd, const struct ds_cursor *c, int flags)
{
	const struct ds_tx *t = &s->sh->tx;

	return ds_tx_whole(&s->seg, t, c->left, false) ||
	       (!(flags & MSG_DONTWAIT) && ds_tx_whole(&s->seg, t, c->left, true) && !ds_nonblock(s, fd));
}

/* Moves what it can over the segment: the number of bytes, or -1 and errno, where EDEADLK means
 * that this handler has interrupted a send; *shadow is set if the rest belongs on the shadow.
 * *later: nothing of the call has been sent; false afterwards, unless all of it is to wait for
 * room. */
static ssize_t send_direct(struct ds_sock *s, int fd, struct ds_cursor *c, int flags, bool *later, bool *shadow)
{
	struct ds_shared *h = s->sh;
	bool alone = ds_alone(s);
	ssize_t n = -1, err = 0;

	if (!ds_tx_take(s, alone)) {
		errno = EDEADLK;
		return -1;
	}
	if (__builtin_expect(ds_mode(&h->tx_mode) <= TX_PAUSED || ds_mode(&h->gone), 0)) {
		fd = ds_still(s, fd);
		ds_tx_update(s, fd);
		if (ds_mode(&h->tx_mode) == TX_SHADOW)
			ds_promote(s, fd, false);
	}
	switch (ds_mode(&h->tx_mode)) {
	case TX_DIRECT:
		if (ds_mode(&h->tx_shut)) {
			err = EPIPE;
			break;
		}
		uint32_t rings = __atomic_load_n(&ds_rings, __ATOMIC_ACQUIRE);
		if (__builtin_expect(rings != s->rang, 0)) {
			s->rang = rings;
			ds_seg_rang(&s->seg, rings);
		}
		*later = *later && !alone && !ds_tx_fits(&s->seg, &h->tx, c->left) && is_whole(s, fd, c, flags);
		n = *later ? DS_AGAIN : ds_tx_send(&s->seg, &h->tx, &h->attention, c);
		if (n == DS_BREACH) {
			ds_break(s);
			err = EPIPE;
		} else if (n == DS_STOPPED || (ds_seg_peer_attention(&s->seg) & (DS_FALLEN_BACK | DS_CLOSED | DS_RESET))) {
			ds_tx_update(s, ds_still(s, fd));
			*shadow = ds_goes_by_shadow(ds_mode(&h->tx_mode));
			err = n > 0 || *shadow ? 0 : EAGAIN;
		} else if (n < 0) {
			err = n == DS_FAULT ? EFAULT : EAGAIN;
		}
		break;
	case TX_RETURNING:
		ds_tx_update(s, ds_still(s, fd));
		*shadow = ds_mode(&h->tx_mode) == TX_BACK;
		err = *shadow ? 0 : EAGAIN;
		break;
	case TX_ENDED:
	case TX_BROKEN:
		err = EPIPE;
		break;
	default:
		*shadow = true;
	}
	ds_unlock(&h->tx_lock, alone);
	if (n >= 0)
		return n;
	if (err == EPIPE)
		return broken_pipe(s, fd, flags);
	errno = (int)err;
	return err ? -1 : 0;
}

/* Until when to sleep for room, deadline at the latest. Takes the lock of tx. */
static int64_t stall(struct ds_sock *s, int fd, int64_t deadline)
{
	int64_t t = ds_now() + DS_STALL;
	bool alone = ds_alone(s);
	uint64_t queued = DS_FEW;

	if (ds_tx_take(s, alone)) {
		if (ds_mode(&s->sh->tx_mode) == TX_DIRECT)
			queued = ds_tx_queued(&s->seg, &s->sh->tx);
		ds_unlock(&s->sh->tx_lock, alone);
	}
	return (queued >= DS_FEW && !ds_user_timeout(fd)) || (deadline && deadline < t) ? deadline : t;
}

/* Back to the shadow, if there is still no room, and now says so or ds_tx_gives_up: true. Takes the
 * lock of tx. Without a segment it is on the shadow. */
static bool give_up(struct ds_sock *s, int fd, bool now)
{
	bool alone = ds_alone(s), shadow;

	if (!ds_has_segment(s) || !ds_tx_take(s, alone))
		return false;
	fd = ds_still(s, fd);
	ds_tx_update(s, fd);
	if (ds_mode(&s->sh->tx_mode) == TX_DIRECT && !ds_tx_room(&s->seg, &s->sh->tx))
		ds_tx_gives_up(s, fd, now);
	shadow = ds_goes_by_shadow(ds_mode(&s->sh->tx_mode));
	ds_unlock(&s->sh->tx_lock, alone);
	return shadow;
}

/* Before a sender sleeps for want of room in the ring, it fills the queue (thesis 5.5.3.2). */
struct filler {
	struct ds_sock *s;
	struct ds_cursor *c;
	size_t *sent;
};

/* Sends what fits into the queue: arg is a struct filler *. True: that moved bytes. Takes the lock
 * of tx. */
static bool fill(void *arg)
{
	struct filler *f = arg;
	struct ds_sock *s = f->s;
	bool alone = ds_alone(s);
	ssize_t n = 0;

	if (!ds_has_segment(s) || !ds_tx_take(s, alone))
		return false;
	if (ds_mode(&s->sh->tx_mode) == TX_DIRECT && !ds_mode(&s->sh->tx_shut))
		n = ds_tx_fill(&s->seg, &s->sh->tx, &s->sh->attention, f->c);
	ds_unlock(&s->sh->tx_lock, alone);
	if (n > 0)
		*f->sent += (size_t)n;
	return n > 0;
}

/* A connection that can still become direct sends no more than this at a time, so that it does
 * while a large send goes on. */
enum { PIECE = 1 << 18 };

/* Shall a send on the shadow be made in pieces? One that is large, or would sleep in the kernel
 * where another thread, which has an offer to make or to take, cannot wake it. */
static bool in_pieces(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags)
{
	size_t sum = 0;

	if (ds_plain(s) || ds_mode(&s->sh->tx_mode) == TX_BACK || (flags & MSG_DONTWAIT))
		return false;
	for (int i = 0; i < n && sum <= PIECE; i++)
		sum += iov[i].iov_len < PIECE ? iov[i].iov_len : PIECE + 1;
	return (sum > PIECE || !ds_alone(s)) && !ds_nonblock(s, fd);
}

/* Sends a piece on the shadow of a connection without a segment, and does not sleep: the number of
 * bytes, or -1 and errno, of which ESTALE means look again. */
static ssize_t send_early(struct ds_sock *s, int fd, struct ds_cursor *c, int flags)
{
	struct iovec v[DS_VECTORS];
	ssize_t r = ds_shadow_send(s, fd, v, ds_vectors(c, c->left < PIECE ? c->left : PIECE, v), flags | MSG_DONTWAIT);

	if (r == DS_CHANGED) {
		errno = ESTALE;
		return -1;
	}
	if (r > 0) {
		ds_skip(c, (size_t)r);
		ds_tick(s, fd);
	}
	return r;
}

/* Sends on the shadow what follows the cursor; all of iov, if nothing was sent before. As
 * ds_shadow_send; *asked: how many bytes that was to send. The first time it waits in the kernel,
 * if it waits at all, as it would have without us: if the kernel takes less, the error that stopped
 * it is the next call's. Later flags has MSG_DONTWAIT. */
static ssize_t send_shadow(struct ds_sock *s, int fd, const struct iovec *iov, int n, const struct ds_cursor *c, size_t sent, int flags, size_t *asked)
{
	bool piece = c->left > PIECE && ds_mode(&s->sh->tx_mode) == TX_SHADOW && !ds_plain(s);
	struct iovec one = ds_here(c, piece ? PIECE : c->left);
	ssize_t r;

	*asked = !sent && !piece ? c->left : one.iov_len;
	if (!sent && !piece)
		return ds_shadow_send(s, fd, iov, n, flags);
	r = ds_shadow_send(s, fd, &one, 1, sent ? flags | MSG_NOSIGNAL : flags);
	if (r > 0)
		ds_tick(s, fd);
	return r;
}

/* Sends all of it in one call on the shadow, if it goes there whole. Returns what the call does, or
 * DS_CHANGED: nothing is sent, and the direction goes another way. */
static inline ssize_t send_whole(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags)
{
	ds_tick(s, fd);
	if (__builtin_expect(ds_config.wait != 0, 0))
		ds_test_wait(s, fd);
	if ((!ds_has_segment(s) || ds_mode(&s->sh->tx_mode) == TX_BACK) && !in_pieces(s, fd, iov, n, flags))
		return ds_shadow_send(s, fd, iov, n, flags);
	return DS_CHANGED;
}

/* Before a send, with no lock of a direction, and not often: is the peer there, and the broker? */
static inline uint64_t look_around(struct ds_sock *s, int fd)
{
	uint64_t t = ds_ticks();

	if (t - DS_GET(s->checked) >= ds_ticks_us() * 10000) {
		ds_check_peer_at(s, fd, t);
		ds_broker_follow();
	}
	return t;
}

/* Sends on the shadow, whatever it is in. */
static ssize_t send_plain(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags)
{
	DS_BY_NUMBER(kernel);

	ds_by_number_begin(&kernel, &s->life->numbered, flags & MSG_DONTWAIT);
	return ds_real_send(ds_still(s, fd), iov, n, flags);
}

/* As ds_send, but a call that succeeds may change errno. */
static inline ssize_t send_any(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags)
{
	struct ds_cursor c;
	int64_t deadline = -1, until = -1;
	size_t sent = 0;

	if (!s->sh)
		return send_plain(s, fd, iov, n, flags);
	ssize_t whole = send_whole(s, fd, iov, n, flags);
	if (whole != DS_CHANGED)
		return whole;
	if (!ds_cursor(&c, iov, n))
		return -1;
	if (!c.left)
		return __atomic_load_n(&s->sh->tx_mode, __ATOMIC_RELAXED) == TX_DIRECT && !ds_left(s) ? 0 : send_plain(s, fd, iov, n, flags);
	c.at = look_around(s, fd);
	for (bool first = true;; first = false) {
		bool shadow = false, later = !sent;
		int quiet = sent ? flags | MSG_NOSIGNAL : flags;
		ssize_t r = 0;

		if (ds_has_segment(s))
			r = send_direct(s, fd, &c, quiet, &later, &shadow);
		else if (ds_plain(s))
			shadow = true;
		else
			r = send_early(s, fd, &c, quiet);
		if (r < 0 && errno == ESTALE)
			continue;
		if (r > 0)
			sent += (size_t)r;
		if (shadow && c.left) {
			size_t asked = 0;

			first = first && !sent;
			r = send_shadow(s, fd, iov, n, &c, sent, first ? flags : flags | MSG_DONTWAIT, &asked);
			if (r > 0) {
				ds_skip(&c, (size_t)r);
				sent += (size_t)r;
			}
			if (r == DS_CHANGED)
				continue;
			if (first && ((size_t)r != asked || !c.left))
				return r;
		}
		if (!c.left)
			return (ssize_t)sent;
		if (r > 0) {
			until = -1;
			continue;
		}
		if (r == 0 || (errno != EAGAIN && errno != EDEADLK))
			return r == 0 ? (ssize_t)sent : sent_or_error(s, sent);
		if (errno == EDEADLK) /* nothing to wait for */
			break;
		struct filler f = {s, &c, &sent};
		if ((flags & MSG_DONTWAIT) || ds_nonblock(s, fd)) {
			if (!sent && !later && !fill(&f) && give_up(s, fd, ds_user_timeout(fd) != 0))
				continue;
			break;
		}
		if (deadline < 0)
			deadline = ds_deadline(fd, SO_SNDTIMEO);
		if (until < 0)
			until = stall(s, fd, deadline);
		int woken = ds_wait_or(s, fd, POLLOUT, until, deadline != 0, later ? NULL : fill, &f);
		fd = ds_still(s, fd);
		c.at = 0;
		if (woken == 0)
			continue;
		if (errno != EAGAIN || until == deadline)
			return sent ? (ssize_t)sent : -1;
		give_up(s, fd, true);
		until = -1;
	}
	if (sent)
		return (ssize_t)sent;
	ds_check_peer(s, fd, false);
	errno = EAGAIN;
	return -1;
}

ssize_t ds_send(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags)
{
	int before = errno;
	ssize_t r = send_any(s, fd, iov, n, flags);

	if (r >= 0)
		errno = before;
	return r;
}

bool ds_written(struct ds_sock *s, int fd, int flags)
{
	int64_t deadline = -1;

	while (s->sh && ds_has_segment(s)) {
		ds_tx_attend(s, fd);
		if (ds_mode(&s->sh->tx_mode) != TX_RETURNING)
			break;
		if ((flags & MSG_DONTWAIT) || ds_nonblock(s, fd)) {
			errno = EAGAIN;
			return false;
		}
		if (deadline < 0)
			deadline = ds_deadline(fd, SO_SNDTIMEO);
		if (ds_wait(s, fd, POLLOUT, deadline, deadline != 0) < 0)
			return false;
	}
	return true;
}

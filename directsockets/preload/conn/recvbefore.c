/* Receiving what the shadow has before the data of the segment, and what its end means there. */
#include "conn/inner.h"

#include <errno.h>
#include <sys/syscall.h>

/* How many bytes of the shadow come before the segment's data, if this side has fallen back before
 * it has found PROMOTE: at most n. With the lock of rx. */
static size_t before_promote(struct ds_sock *s, size_t n)
{
	struct ds_shared *h = s->sh;
	uint64_t carried = 0, left;

	if (ds_rx_left(&s->seg, &h->rx, &carried, &left) != 1)
		return n;
	return carried <= h->rx_read ? 0 : carried - h->rx_read < n ? (size_t)(carried - h->rx_read) : n;
}

/* How many bytes ds_recv_before may read, at most want: those that come before the segment's data.
 * -1 and errno; ESTALE: the direction has changed, look again. With the lock of rx. */
static ssize_t limit_before(struct ds_sock *s, int fd, int mode, int before, size_t want)
{
	struct ds_shared *h = s->sh;
	size_t limit = want;
	int there = 0;

	if (before == RX_DIRECT)
		return 0;
	if (before == RX_CATCH_UP)
		return (ssize_t)(want < ds_rx_ahead(h) ? want : ds_rx_ahead(h));
	/* Bytes that an earlier look found need no new one; but a larger read gets all that
	 * there is now. */
	if (before != RX_SHADOW || (mode != RX_FALLEN_BACK && h->rx_read + want <= h->rx_sure))
		return (ssize_t)want;
	/* PROMOTE may arrive between our look and the call, and the sender be back on the shadow:
	 * take only what was there before the look. */
	if (REAL(ioctl, fd, DS_INQ, &there) < 0)
		return -1;
	/* The kernel says 0 before urgent data, whatever follows it. A peer that has sent urgent
	 * data never promotes again. */
	bool urgent = !there && ds_shadow_at_mark(fd);

	ds_rx_update(s, fd);
	if (ds_mode(&h->rx_mode) != mode) {
		errno = ESTALE;
		return -1;
	}
	h->rx_sure = urgent ? UINT64_MAX : h->rx_read + (uint64_t)there;
	if (there > 0 && limit > (size_t)there)
		limit = (size_t)there;
	return (ssize_t)(mode == RX_FALLEN_BACK ? before_promote(s, limit) : limit);
}

/* The program takes n bytes of the shadow that come before the segment's data. With the lock of
 * rx. */
static void took_before(struct ds_sock *s, int before, size_t n)
{
	struct ds_shared *h = s->sh;

	DS_SET(h->rx_read, h->rx_read + n);
	ds_moved(s, 0, n);
	if (before == RX_CATCH_UP && !ds_rx_ahead(h))
		ds_rx_caught_up(s);
}

/* The shadow gave no byte: is this the direction's end, or its error in errno? False, with ESTALE:
 * the direction has changed, look again. failed: it gave an error, and no end of file. With the
 * lock of rx. */
static bool over_before(struct ds_sock *s, int fd, int mode, int before, bool failed)
{
	struct ds_shared *h = s->sh;
	int saved = errno;

	if (before == RX_SHADOW || before == RX_RETURNING) {
		ds_rx_update(s, fd); /* its end may be that of a SHUTDOWN, or come before the rest */
		if (ds_mode(&h->rx_mode) != mode && ds_mode(&h->rx_mode) != RX_BACK) {
			if (failed)
				ds_owe(s, saved);
			errno = ESTALE;
			return false;
		}
		errno = saved;
	}
	if (mode != RX_CATCH_UP)
		return true;
	if (failed) {
		if (errno == ECONNRESET || errno == ETIMEDOUT || errno == EPIPE)
			ds_on_rx(s, ON_FAILED); /* the program is told, and TCP has nothing more */
		return true;
	}
	if (!ds_rx_ahead(h) || ds_mode(&h->rx_shut))
		return true;
	ds_on_rx(s, ON_CUT); /* the peer has promised more on the shadow */
	errno = ESTALE;
	return false;
}

ssize_t ds_recv_before(struct ds_sock *s, int fd, struct ds_cursor *c, int flags)
{
	struct ds_shared *h = s->sh;
	int mode = ds_mode(&h->rx_mode), before = mode == RX_FALLEN_BACK ? h->rx_before : mode;
	ssize_t r, limit = limit_before(s, fd, mode, before, c->left);

	if (limit <= 0) {
		if (!limit)
			errno = EAGAIN;
		return -1;
	}
	struct iovec v[DS_VECTORS];
	struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)ds_vectors(c, (size_t)limit, v)};
	flags = (flags & ~MSG_WAITALL) | MSG_DONTWAIT;
	if (before == RX_SHADOW && h->rx_read == h->rx_sure) {
		/* Nothing had come before the segment was looked at. What has come since may follow
		 * the segment's data: the peer has promoted and gone back meanwhile. */
		char first;

		r = ds_syscall(SYS_recvfrom, fd, &first, sizeof first, MSG_PEEK | MSG_DONTWAIT, NULL, NULL);
		if (r > 0) {
			errno = ESTALE;
			return -1;
		}
	} else if (m.msg_iovlen == 1) {
		r = ds_syscall(SYS_recvfrom, fd, v->iov_base, v->iov_len, flags, NULL, NULL);
	} else {
		r = ds_syscall(SYS_recvmsg, fd, &m, flags, false);
	}
	if (r > 0) {
		ds_skip(c, (size_t)r);
		if (!(flags & MSG_PEEK))
			took_before(s, before, (size_t)r);
		return r;
	}
	if (!over_before(s, fd, mode, before, r < 0))
		return -1;
	return r < 0 ? r : ds_end(s, v, (int)m.msg_iovlen);
}

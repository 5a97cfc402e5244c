/* Calls that send. */
#include "hooks/dgram.h"
#include "hooks/hooks.h"
#include "hooks/vectors.h"

#include <string.h>

/* The result of a send on a UDP socket, or if its number is another file's, of again. */
#define ANEW(send, again) \
	({ \
		ssize_t rc_ = (send); \
		__builtin_expect(rc_ == DS_DG_ANEW, 0) ? (again) : rc_; \
	})

/* True for flags that the kernel handles: urgent data, a connect with data. */
static inline bool odd_send(int flags)
{
	return (flags & (MSG_OOB | MSG_FASTOPEN)) != 0;
}

/* Moves what a call with MSG_OOB sends back to TCP. False and errno: what has to be sent before is
 * not. */
static bool odd(struct call *k, int fd, int flags)
{
	if (flags & MSG_OOB) {
		ds_send_back(k->c->life.s, fd);
		if (!ds_written(k->c->life.s, fd, flags))
			return false;
	}
	return true;
}

/* If a send did not take all of want, sets that wait for edges are told. Returns rc. */
static inline ssize_t sent(struct call *k, ssize_t rc, size_t want)
{
	if (__builtin_expect(rc < 0 || (size_t)rc < want, 0))
		ep_blocked(k->c);
	return rc;
}

/* Sends the vectors, which have want bytes: as sendmsg. */
static inline ssize_t send_vectors(struct call *k, int fd, const struct iovec *iov, int n, int flags, size_t want)
{
	if (__builtin_expect((flags & MSG_ZEROCOPY) && want, 0)) {
		ssize_t rc = ds_send_zerocopy(k->c->life.s, fd, iov, n, flags);
		if (rc > 0 && k->c->members)
			ep_news(k->c);
		return sent(k, rc, want);
	}
	return sent(k, ds_send(k->c->life.s, fd, iov, n, flags & ~MSG_ZEROCOPY), want);
}

/* Sends n bytes at p: as send. No lock. */
static inline ssize_t send_one(struct call *k, int fd, const void *p, size_t n, int flags)
{
	return send_vectors(k, fd, &(struct iovec){(void *)(uintptr_t)p, capped(n)}, 1, flags, capped(n));
}

/* write to a descriptor of ours, whose word is w. */
OURS ssize_t write_ours(int fd, const void *p, size_t n, uintptr_t w)
{
	if (__builtin_expect(word_dgram(w) != NULL, 0))
		return n <= DS_MAX_RW ? ANEW(dg_sendto(fd, p, n, 0, NULL, 0), write(fd, p, n)) : REAL(write, fd, p, n);
	QUICK(q, fd, w);
	if (q.c)
		return quick_sent(&q, REAL(write, fd, p, n));
	CALL_OF(k, fd, w, call_send, n, 0);
	if (!k.c)
		return KERNEL_SENDS(k, fd, REAL(write, fd, p, n), write(fd, p, n));
	return range_fine(p, n) ? send_one(&k, fd, p, n, 0) : -1;
}

EXPORT ssize_t write(int fd, const void *p, size_t n)
{
	uintptr_t w = fd_word(fd);

	PASS(w, write, fd, p, n);
	if (dg_alone(w, NULL, 0, 0))
		return REAL(write, fd, p, n);
	return write_ours(fd, p, n, w);
}
ALIAS(__write, write);

/* As write_ours. */
OURS ssize_t send_ours(int fd, const void *p, size_t n, int flags, uintptr_t w)
{
	if ((flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE)) == 0) {
		QUICK(q, fd, w);
		if (q.c)
			return quick_sent(&q, REAL(send, fd, p, n, flags));
	}
	CALL_OF(k, fd, w, call_send, n, flags);
	if (k.c && odd_send(flags) && !odd(&k, fd, flags))
		return -1;
	if (!k.c || odd_send(flags))
		return KERNEL_SENDS(k, fd, REAL(send, fd, p, n, flags), send(fd, p, n, flags));
	return send_one(&k, fd, p, n, flags);
}

EXPORT ssize_t send(int fd, const void *p, size_t n, int flags)
{
	uintptr_t w = fd_word(fd);

	PASS(w, send, fd, p, n, flags);
	if (dg_alone(w, NULL, 0, flags))
		return REAL(send, fd, p, n, flags);
	if (word_dgram(w))
		return ANEW(dg_sendto(fd, p, n, flags, NULL, 0), send(fd, p, n, flags));
	return send_ours(fd, p, n, flags, w);
}
ALIAS(__send, send);

/* As write_ours. An address is ignored, as by a connected TCP socket. */
OURS ssize_t sendto_ours(int fd, const void *p, size_t n, int flags, const struct sockaddr *addr, socklen_t len)
{
	CALL_SEND(k, fd, n, flags);
	if (!k.c || odd_send(flags) || !name_there(addr, len)) {
		if (k.c && !odd(&k, fd, flags))
			return -1;
		return KERNEL_SENDS(k, fd, REAL(sendto, fd, p, n, flags, addr, len), sendto(fd, p, n, flags, addr, len));
	}
	return send_one(&k, fd, p, n, flags);
}

EXPORT ssize_t sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *addr, socklen_t len)
{
	uintptr_t w = fd_word(fd);

	PASS(w, sendto, fd, p, n, flags, addr, len);
	if (dg_alone(w, addr, len, flags))
		return REAL(sendto, fd, p, n, flags, addr, len);
	if (word_dgram(w))
		return ANEW(dg_sendto(fd, p, n, flags, addr, len), sendto(fd, p, n, flags, addr, len));
	return addr ? sendto_ours(fd, p, n, flags, addr, len) : send_ours(fd, p, n, flags, w);
}

/* As call_send, of n vectors. */
static inline struct call call_sendv(int fd, uintptr_t w, const struct iovec *iov, int n)
{
	return call_send(fd, w, n < 0 || !iov_there(iov, (size_t)n) ? SIZE_MAX : iov_total(iov, (size_t)n), 0);
}

/* As write_ours. */
OURS ssize_t writev_ours(int fd, const struct iovec *iov, int n, uintptr_t w)
{
	if (__builtin_expect(word_dgram(w) != NULL, 0))
		return ANEW(dg_writev(fd, iov, n, 0), writev(fd, iov, n));
	QUICK(q, fd, w);
	if (q.c)
		return quick_sent(&q, REAL(writev, fd, iov, n));
	CALL_OF(k, fd, w, call_sendv, iov, n);
	if (!k.c || n < 0 || !iov_there(iov, (size_t)n))
		return KERNEL_SENDS(k, fd, REAL(writev, fd, iov, n), writev(fd, iov, n));
	return sent(&k, ds_send(k.c->life.s, fd, iov, n, 0), iov_total(iov, (size_t)n));
}

EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
	uintptr_t w = fd_word(fd);

	PASS(w, writev, fd, iov, n);
	if (dg_alone(w, NULL, 0, 0))
		return REAL(writev, fd, iov, n);
	return writev_ours(fd, iov, n, w);
}

EXPORT ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	if (off != -1 || (flags & ~RWF_FINE)) /* the kernel refuses it */
		return REAL(pwritev2, fd, iov, n, off, flags);
	if (word_dgram(fd_word(fd)))
		return ANEW(dg_writev(fd, iov, n, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0), pwritev2(fd, iov, n, off, flags));
	CALL_WAITING(k, fd, !(flags & RWF_NOWAIT));
	if (!k.c || n < 0 || !iov_there(iov, (size_t)n))
		return KERNEL_SENDS(k, fd, REAL(pwritev2, fd, iov, n, off, flags), pwritev2(fd, iov, n, off, flags));
	return sent(&k, ds_send(k.c->life.s, fd, iov, n, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0), iov_total(iov, (size_t)n));
}
ALIAS(pwritev64v2, pwritev2);

/* sendmsg on the connection of call k. No lock. */
static ssize_t do_sendmsg(struct call *k, int fd, const struct msghdr *m, int flags)
{
	bool there = msg_there(m);

	if (!there || odd_send(flags) || !name_there(m->msg_name, capped_name(m->msg_namelen))) {
		if (there && !odd(k, fd, flags))
			return -1;
		return KERNEL_SENDS(*k, fd, REAL(sendmsg, fd, m, flags), -1);
	}
	/* Only the kernel can judge control data, and direct bytes carry none. */
	if (m->msg_controllen > 0) {
		ds_send_back(k->c->life.s, fd);
		if (ds_on_shadow_tx(k->c->life.s)) {
			ssize_t rc = KERNEL_SENDS(*k, fd, REAL(sendmsg, fd, m, flags), -1);
			if (rc > 0)
				ds_moved(k->c->life.s, (size_t)rc, 0);
			return rc;
		}
	}
	return send_vectors(k, fd, m->msg_iov, (int)m->msg_iovlen, flags, iov_total(m->msg_iov, m->msg_iovlen));
}

/* As call_send. */
static inline struct call call_sendmsg(int fd, uintptr_t w, const struct msghdr *m, int flags)
{
	return call_send(fd, w, msg_there(m) ? iov_total(m->msg_iov, m->msg_iovlen) : SIZE_MAX, flags);
}

/* As write_ours. */
OURS ssize_t sendmsg_ours(int fd, const struct msghdr *m, int flags)
{
	CALL_BY(k, fd, call_sendmsg, m, flags);
	if (k.c)
		return do_sendmsg(&k, fd, m, flags);
	rights_demote(m);
	return KERNEL_SENDS(k, fd, REAL(sendmsg, fd, m, flags), sendmsg(fd, m, flags));
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	uintptr_t w = fd_word(fd);

	if (word_dgram(w) && ds_readable(m, sizeof *m) && dg_alone(w, m->msg_name, m->msg_namelen, flags))
		return REAL(sendmsg, fd, m, flags);
	if (word_dgram(w))
		return ANEW(dg_sendmsg(fd, m, flags), sendmsg(fd, m, flags));
	return sendmsg_ours(fd, m, flags);
}

EXPORT int sendmmsg(int fd, struct mmsghdr *v, unsigned n, ds_mmflags flags)
{
	if (word_dgram(fd_word(fd)))
		return (int)ANEW(dg_sendmmsg(fd, v, n, (int)flags), sendmmsg(fd, v, n, flags));
	CALL_WAITING(k, fd, !((int)flags & MSG_DONTWAIT));
	if (n > UIO_MAXIOV)
		n = UIO_MAXIOV;
	if (!k.c) {
		for (unsigned i = 0; i < n && rights_demote(msg_of(v, i)); i++)
			;
		return (int)KERNEL_SENDS(k, fd, REAL(sendmmsg, fd, v, n, flags), sendmmsg(fd, v, n, flags));
	}
	for (unsigned i = 0; i < n; i++) {
		ssize_t rc = do_sendmsg(&k, fd, msg_of(v, i), flags);
		if (rc >= 0 && !ds_writable(&v[i].msg_len, sizeof v[i].msg_len)) {
			errno = EFAULT;
			rc = -1;
		}
		if (rc < 0)
			return i > 0 ? (int)i : -1;
		v[i].msg_len = (unsigned)rc;
		fd = conn_still(k.c, fd);
		if ((size_t)rc < iov_total(v[i].msg_hdr.msg_iov, v[i].msg_hdr.msg_iovlen))
			return (int)i + 1;
	}
	return (int)n;
}

/* Moves fd, which is passed on, back to TCP if it is ours, and what is unread with it. */
static void demote_fd(int fd)
{
	struct conn *c = conn_peek(fd);
	int end = -1;

	dg_native(fd, DS_WHY_PROGRAM);
	if (!c)
		return;
	if (conn_is(c) == CONN_KNOWN)
		hand_over(c, fd, TAKER_EXEC, &end);
	else
		conn_demote(c, fd);
	conn_put(c);
	if (end >= 0)
		REAL(close, end);
}

bool rights_demote(const struct msghdr *m)
{
	if (!ds_readable(m, sizeof *m))
		return false;
	struct msghdr copy = *m;
	if (copy.msg_controllen == 0 || copy.msg_controllen > INT_MAX || !ds_readable(copy.msg_control, copy.msg_controllen))
		return true;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&copy); c; c = CMSG_NXTHDR(&copy, c)) {
		const unsigned char *end = (unsigned char *)copy.msg_control + copy.msg_controllen;
		if (c->cmsg_len < CMSG_LEN(0) || c->cmsg_len > (size_t)(end - (unsigned char *)c))
			break;
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			demote_fd(fd);
		}
	}
	return true;
}

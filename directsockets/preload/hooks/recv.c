/* Calls that receive. */
#include "hooks/dgram.h"
#include "hooks/hooks.h"
#include "hooks/vectors.h"

/* True for flags that the kernel handles: its error queue, urgent data. */
static inline bool odd_recv(int flags)
{
	return (flags & (MSG_ERRQUEUE | MSG_OOB)) != 0;
}

/* rc is what the kernel's error queue answered. If it is empty, a completion of ours (MSG_ZEROCOPY)
 * may be there for m. */
static ssize_t told(struct call *k, int fd, ssize_t rc, struct msghdr *m, int flags)
{
	if (rc >= 0 || errno != EAGAIN || !(flags & MSG_ERRQUEUE) || !ds_zerocopy_done(k->c->life.s))
		return rc;
	if (m && !ds_writable(m, sizeof *m)) {
		errno = EFAULT;
		return -1;
	}
	return ds_zerocopy_read(k->c->life.s, fd, m, flags) ? 0 : rc;
}

/* The call of a receive with these flags: as call_uncounted, if it may be that. No lock. */
static inline struct call call_recvmsg(int fd, uintptr_t w, int flags)
{
	bool fine = (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_PEEK | MSG_WAITALL)) == 0;

	return fine ? call_uncounted(fd, w, !(flags & MSG_DONTWAIT)) : call_waiting(fd, w, !(flags & (MSG_DONTWAIT | MSG_ERRQUEUE)));
}

#define CALL_RECV(k, fd, flags) CALL_BY(k, fd, call_recv, flags)
/* The call of CALL_RECV, after which comes call_wait: no error is due before that. A receive that
 * waits for all of what is to come does not wait there, since that may take long. No lock. */
static inline struct call call_recv(int fd, uintptr_t w, int flags)
{
	bool fine = (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_PEEK)) == 0;

	return fine ? call_uncounted_in(fd, w, !(flags & MSG_DONTWAIT)) : call_recvmsg(fd, w, flags);
}

/* What a real receive returned. */
static inline ssize_t received(const struct call *k, ssize_t rc, int flags) { return flags & MSG_PEEK ? rc : call_received(k, rc); }

/* recv of no bytes waits as recv of one would, and takes none. */
static ssize_t recv_none(struct call *k, int fd, int flags)
{
	char c;
	ssize_t rc = ds_recv(k->c->life.s, fd, &(struct iovec){&c, 1}, 1, (flags & ~MSG_WAITALL) | MSG_PEEK);

	return rc > 0 ? 0 : rc;
}

/* recv of n bytes with flags that are not odd. */
static inline ssize_t recv_one(struct call *k, int fd, void *p, size_t n, int flags)
{
	return n == 0 ? recv_none(k, fd, flags) : ds_recv(k->c->life.s, fd, &(struct iovec){p, capped(n)}, 1, flags);
}

/* A read of a UDP socket is a call that other files do not have: another thread may have given the
 * number to one by dup2. */
#define OR_FILE(call, file) \
	({ \
		ssize_t rc_ = (call); \
		__builtin_expect(rc_ == -1 && errno == ENOTSOCK, 0) ? (file) : rc_; \
	})

/* read of a descriptor of ours, whose word is w. */
OURS ssize_t read_ours(int fd, void *p, size_t n, uintptr_t w)
{
	if (__builtin_expect(word_dgram(w) != NULL, 0))
		return n && n <= DS_MAX_RW ? OR_FILE(dg_recvfrom(fd, p, n, 0, NULL, NULL), REAL(read, fd, p, n)) : REAL(read, fd, p, n);
	QUICK(q, fd, w);
	if (q.c)
		return quick_received(&q, REAL(read, fd, p, n));
	CALL_OF(k, fd, w, call_uncounted_in, n > 0);
	if (!call_wait(&k, &fd))
		return -1;
	if (k.dgram)
		return read(fd, p, n);
	if (!k.c)
		return call_received(&k, REAL(read, fd, p, n));
	if (!range_fine(p, n))
		return -1;
	if (n == 0)
		return 0;
	return ds_recv(k.c->life.s, fd, &(struct iovec){p, capped(n)}, 1, 0);
}

EXPORT ssize_t read(int fd, void *p, size_t n)
{
	uintptr_t w = fd_word(fd);

	PASS(w, read, fd, p, n);
	return read_ours(fd, p, n, w);
}
ALIAS(__read, read);

/* As read_ours. */
OURS ssize_t recv_ours(int fd, void *p, size_t n, int flags, uintptr_t w)
{
	if ((flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL)) == 0) {
		QUICK(q, fd, w);
		if (q.c)
			return quick_received(&q, REAL(recv, fd, p, n, flags));
	}
	CALL_OF(k, fd, w, call_recv, flags);
	if (!call_wait(&k, &fd))
		return -1;
	if (k.dgram)
		return recv(fd, p, n, flags);
	if (!k.c)
		return received(&k, REAL(recv, fd, p, n, flags), flags);
	if (odd_recv(flags))
		return told(&k, fd, REAL(recv, fd, p, n, flags), NULL, flags);
	return recv_one(&k, fd, p, n, flags);
}

EXPORT ssize_t recv(int fd, void *p, size_t n, int flags)
{
	uintptr_t w = fd_word(fd);

	PASS(w, recv, fd, p, n, flags);
	if (word_dgram(w))
		return dg_recvfrom(fd, p, n, flags, NULL, NULL);
	return recv_ours(fd, p, n, flags, w);
}

/* A TCP socket names no address: the kernel sets the length to 0. It does so after the bytes, which
 * an error here loses. */
static ssize_t no_name(ssize_t rc, socklen_t *len)
{
	int err = !ds_readable(len, sizeof *len) ? EFAULT : (int)*len < 0 ? EINVAL : !ds_writable(len, sizeof *len) ? EFAULT : 0;

	if (!err) {
		*len = 0;
		return rc;
	}
	errno = err;
	return -1;
}

/* As read_ours. */
OURS ssize_t recvfrom_ours(int fd, void *p, size_t n, int flags, struct sockaddr *addr, socklen_t *len)
{
	CALL_RECV(k, fd, flags);
	if (!call_wait(&k, &fd))
		return -1;
	if (k.dgram)
		return recvfrom(fd, p, n, flags, addr, len);
	if (!k.c)
		return received(&k, REAL(recvfrom, fd, p, n, flags, addr, len), flags);
	if (odd_recv(flags)) {
		ssize_t rc = REAL(recvfrom, fd, p, n, flags, addr, len);
		if (rc >= 0)
			return rc;
		rc = told(&k, fd, rc, NULL, flags);
		return rc >= 0 ? no_name(rc, len) : rc;
	}
	ssize_t rc = recv_one(&k, fd, p, n, flags);
	return rc >= 0 ? no_name(rc, len) : rc;
}

EXPORT ssize_t recvfrom(int fd, void *p, size_t n, int flags, struct sockaddr *addr, socklen_t *len)
{
	uintptr_t w = fd_word(fd);

	PASS(w, recvfrom, fd, p, n, flags, addr, len);
	if (word_dgram(w))
		return dg_recvfrom(fd, p, n, flags, addr, len);
	return addr ? recvfrom_ours(fd, p, n, flags, addr, len) : recv_ours(fd, p, n, flags, w);
}

/* As read_ours. */
OURS ssize_t readv_ours(int fd, const struct iovec *iov, int n, uintptr_t w)
{
	if (__builtin_expect(word_dgram(w) != NULL, 0))
		return OR_FILE(dg_readv(fd, iov, n, 0), REAL(readv, fd, iov, n));
	QUICK(q, fd, w);
	if (q.c)
		return quick_received(&q, REAL(readv, fd, iov, n));
	CALL_OF(k, fd, w, call_uncounted, true);
	if (k.dgram)
		return readv(fd, iov, n);
	if (!k.c || n < 0 || !iov_there(iov, (size_t)n))
		return call_received(&k, REAL(readv, fd, iov, n));
	return iov_total(iov, (size_t)n) == 0 ? 0 : ds_recv(k.c->life.s, fd, iov, n, 0);
}

EXPORT ssize_t readv(int fd, const struct iovec *iov, int n)
{
	uintptr_t w = fd_word(fd);

	PASS(w, readv, fd, iov, n);
	return readv_ours(fd, iov, n, w);
}

/* For a socket preadv2 with the offset -1 is readv with flags; any other is ESPIPE. */
EXPORT ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	if (off == -1 && (flags & ~RWF_FINE) == 0 && word_dgram(fd_word(fd)))
		return OR_FILE(dg_readv(fd, iov, n, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0), REAL(preadv2, fd, iov, n, off, flags));
	CALL_WAITING(k, fd, !(flags & RWF_NOWAIT));
	if (off == -1 && (flags & ~RWF_FINE) == 0 && k.dgram)
		return preadv2(fd, iov, n, off, flags);
	if (!k.c || off != -1 || n < 0 || !iov_there(iov, (size_t)n) || (flags & ~RWF_FINE))
		return REAL(preadv2, fd, iov, n, off, flags);
	return iov_total(iov, (size_t)n) == 0 ? 0 : ds_recv(k.c->life.s, fd, iov, n, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0);
}
ALIAS(preadv64v2, preadv2);

bool await_data(struct call *k, int *fd, bool *waited)
{
	char byte;

	*waited = false;
	if (ds_one_thread() || ds_life_nonblock(&k->c->life) || !ds_on_shadow_rx(k->c->life.s))
		return true;
	ssize_t have = ds_recv(k->c->life.s, *fd, &(struct iovec){&byte, 1}, 1, MSG_PEEK);
	*fd = conn_still(k->c, *fd);
	*waited = true;
	return have >= 0;
}

/* Control data (time stamps) comes from the kernel as long as the bytes do: true if it has made the
 * call. */
static bool with_control(struct call *k, int fd, struct msghdr *m, int flags, ssize_t *rc)
{
	bool kernel, waited = false;
	DS_BY_NUMBER(brief);

	if (!ds_on_shadow_rx(k->c->life.s))
		return false;
	if (!(flags & (MSG_DONTWAIT | MSG_ERRQUEUE)) && !await_data(k, &fd, &waited))
		return true;
	ds_tick(k->c->life.s, fd);
	DS_USE(use);
	ds_use_begin(&use, k->c->life.s); /* only now the answer stays true */
	kernel = ds_on_shadow_rx(k->c->life.s) && ds_bell(k->c->life.s) < 0;
	if (kernel && waited && !(flags & MSG_WAITALL))
		ds_by_number_begin(&brief, &k->c->life.numbered, true);
	if (kernel)
		*rc = REAL(recvmsg, conn_still(k->c, fd), m, flags);
	ds_use_end(&use);
	if (kernel && *rc > 0 && !(flags & MSG_PEEK))
		ds_moved(k->c->life.s, 0, (size_t)*rc);
	return kernel;
}

/* recvmsg on the connection of call k. No lock. */
static ssize_t do_recvmsg(struct call *k, int fd, struct msghdr *m, int flags)
{
	ssize_t rc = -1;

	if (odd_recv(flags) || !msg_there(m))
		return told(k, fd, REAL(recvmsg, fd, m, flags), m, flags);
	if (m->msg_controllen > 0 && with_control(k, fd, m, flags, &rc))
		return rc;
	rc = iov_total(m->msg_iov, m->msg_iovlen) == 0 ? recv_none(k, fd, flags)
		: ds_recv(k->c->life.s, fd, m->msg_iov, (int)m->msg_iovlen, flags & ~MSG_CMSG_CLOEXEC);
	if (rc < 0)
		return rc;
	if (!ds_writable(m, sizeof *m)) {
		errno = EFAULT;
		return -1;
	}
	if (m->msg_name)
		m->msg_namelen = 0;
	m->msg_controllen = 0;
	m->msg_flags = flags & MSG_CMSG_CLOEXEC;
	return rc;
}

/* As read_ours. */
OURS ssize_t recvmsg_ours(int fd, struct msghdr *m, int flags)
{
	CALL_BY(k, fd, call_recvmsg, flags & ~MSG_CMSG_CLOEXEC);
	if (k.dgram)
		return recvmsg(fd, m, flags);
	if (!k.c)
		return received(&k, REAL(recvmsg, fd, m, flags), flags);
	return do_recvmsg(&k, fd, m, flags);
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	uintptr_t w = fd_word(fd);

	PASS(w, recvmsg, fd, m, flags);
	if (word_dgram(w))
		return dg_recvmsg(fd, m, flags);
	return recvmsg_ours(fd, m, flags);
}

/* Messages 0..n-1 until one fails or the deadline, if there is one, has passed: how many, or -1. */
static int recv_many(struct call *k, int fd, struct mmsghdr *v, unsigned n, int flags, const struct timespec *deadline)
{
	struct timespec left;
	int f = flags & ~MSG_WAITFORONE;

	for (unsigned i = 0; i < n; i++) {
		ssize_t rc = do_recvmsg(k, fd, msg_of(v, i), f);
		if (rc >= 0 && !ds_writable(&v[i].msg_len, sizeof v[i].msg_len)) {
			errno = EFAULT;
			rc = -1;
		}
		if (rc < 0 && i > 0 && !ds_plain(k->c->life.s))
			ds_owe(k->c->life.s, errno); /* the next call's */
		if (rc < 0)
			return i > 0 ? (int)i : -1;
		v[i].msg_len = (unsigned)rc;
		if (flags & MSG_WAITFORONE)
			f |= MSG_DONTWAIT;
		fd = conn_still(k->c, fd);
		/* As in the kernel, the time is checked only after each message. */
		if (deadline && !deadline_left(deadline, &left))
			return (int)i + 1;
	}
	return (int)n;
}

EXPORT int recvmmsg(int fd, struct mmsghdr *v, unsigned n, ds_mmflags flags, struct timespec *timeout)
{
	DGRAM_CALL(fd, dg_recvmmsg, v, n, (int)flags, timeout);
	CALL_WAITING(k, fd, !((int)flags & (MSG_DONTWAIT | MSG_ERRQUEUE)));
	if (k.dgram)
		return recvmmsg(fd, v, n, flags, timeout);
	if (!k.c || ds_plain(k.c->life.s) || (timeout && !time_fine(timeout)))
		return REAL(recvmmsg, fd, v, n, flags, timeout);
	struct timespec deadline;

	/* As in the kernel, which looks for an error before the bytes. */
	int err = flags & MSG_ERRQUEUE ? 0 : ds_tell_error(k.c->life.s, ds_take_error(k.c->life.s, fd));
	if (err) {
		errno = err;
		return -1;
	}
	if (timeout)
		deadline_set(&deadline, timeout);
	int rc = recv_many(&k, fd, v, n < UIO_MAXIOV ? n : UIO_MAXIOV, flags, timeout ? &deadline : NULL);
	if (rc > 0 && timeout) {
		if (!ds_writable(timeout, sizeof *timeout)) {
			errno = EFAULT;
			return -1;
		}
		deadline_left(&deadline, timeout);
	}
	return rc;
}

EXPORT ssize_t __read_chk(int fd, void *p, size_t n, size_t size)
{
	if (n > size)
		return REAL(__read_chk, fd, p, n, size); /* ends the program */
	return read(fd, p, n);
}

EXPORT ssize_t __recv_chk(int fd, void *p, size_t n, size_t size, int flags)
{
	if (n > size)
		return REAL(__recv_chk, fd, p, n, size, flags);
	return recv(fd, p, n, flags);
}

EXPORT ssize_t __recvfrom_chk(int fd, void *p, size_t n, size_t size, int flags, struct sockaddr *addr, socklen_t *len)
{
	if (n > size)
		return REAL(__recvfrom_chk, fd, p, n, size, flags, addr, len);
	return recvfrom(fd, p, n, flags, addr, len);
}

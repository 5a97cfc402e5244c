/* Calls that move bytes. */
#include "hooks/hooks.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/uio.h>

/* Flags with which receiving is the kernel's: its error queue, urgent data. */
static inline bool odd_recv(int flags)
{
	return (flags & (MSG_ERRQUEUE | MSG_OOB)) != 0;
}

/* Urgent data and the kernel's own zero copy travel on the shadow. */
static inline bool odd_send(int flags)
{
	return (flags & (MSG_OOB | MSG_ZEROCOPY | MSG_FASTOPEN)) != 0;
}

static void odd(struct call *k, int fd, int flags)
{
	if (flags & (MSG_OOB | MSG_ZEROCOPY))
		ds_freeze_demote(k->c->s, fd);
}

/* A send that could not take all: room will be news. */
static inline ssize_t sent(struct call *k, ssize_t rc, size_t want)
{
	if (__builtin_expect(rc < 0 || (size_t)rc < want, 0) && k->c->members)
		__atomic_fetch_add(&k->c->blocked, 1, __ATOMIC_RELAXED);
	return rc;
}

static size_t total(const struct iovec *iov, size_t n)
{
	size_t t = 0;

	for (size_t i = 0; i < n; i++)
		t += iov[i].iov_len;
	return t;
}

/* recv of no bytes waits as recv of one would, and takes none. */
static ssize_t recv_none(struct call *k, int fd, int flags)
{
	char c;
	ssize_t rc = ds_recv(k->c->s, fd, &(struct iovec){&c, 1}, 1, (flags & ~MSG_WAITALL) | MSG_PEEK);

	return rc > 0 ? 0 : rc;
}

/* ---- receiving ------------------------------------------------------------ */

EXPORT ssize_t read(int fd, void *p, size_t n)
{
	CALL(k, fd);
	if (!k.c)
		return REAL(read)(fd, p, n);
	if (n == 0)
		return 0;
	return ds_recv(k.c->s, fd, &(struct iovec){p, n}, 1, 0);
}
ALIAS(__read, read);

EXPORT ssize_t recv(int fd, void *p, size_t n, int flags)
{
	CALL(k, fd);
	if (!k.c)
		return REAL(recv)(fd, p, n, flags);
	if (odd_recv(flags)) {
		odd(&k, fd, flags);
		return REAL(recv)(fd, p, n, flags);
	}
	if (n == 0)
		return recv_none(&k, fd, flags);
	return ds_recv(k.c->s, fd, &(struct iovec){p, n}, 1, flags);
}

EXPORT ssize_t recvfrom(int fd, void *p, size_t n, int flags, struct sockaddr *addr, socklen_t *len)
{
	CALL(k, fd);
	if (!k.c)
		return REAL(recvfrom)(fd, p, n, flags, addr, len);
	if (odd_recv(flags)) {
		odd(&k, fd, flags);
		return REAL(recvfrom)(fd, p, n, flags, addr, len);
	}
	ssize_t rc = n == 0 ? recv_none(&k, fd, flags) : ds_recv(k.c->s, fd, &(struct iovec){p, n}, 1, flags);
	if (rc >= 0 && addr && len)
		*len = 0; /* as TCP does */
	return rc;
}

static bool bad_iov(const struct iovec *iov, int n)
{
	size_t sum = 0;

	if (n < 0 || n > IOV_MAX)
		return true;
	for (int i = 0; i < n; i++) {
		if (iov[i].iov_len > SSIZE_MAX - sum)
			return true;
		sum += iov[i].iov_len;
	}
	return false;
}

EXPORT ssize_t readv(int fd, const struct iovec *iov, int n)
{
	CALL(k, fd);
	if (!k.c || bad_iov(iov, n))
		return REAL(readv)(fd, iov, n);
	return total(iov, (size_t)n) == 0 ? 0 : ds_recv(k.c->s, fd, iov, n, 0);
}

/* For a socket preadv2 with the offset -1 is readv with flags; any other is ESPIPE. */
EXPORT ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	CALL(k, fd);
	if (!k.c || off != -1 || bad_iov(iov, n) || (flags & ~(RWF_NOWAIT | RWF_HIPRI)))
		return REAL(preadv2)(fd, iov, n, off, flags);
	return ds_recv(k.c->s, fd, iov, n, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0);
}
ALIAS(preadv64v2, preadv2);

static ssize_t do_recvmsg(struct call *k, int fd, struct msghdr *m, int flags)
{
	if (!m || odd_recv(flags) || m->msg_iovlen > IOV_MAX || bad_iov(m->msg_iov, (int)m->msg_iovlen)) {
		odd(k, fd, flags);
		return REAL(recvmsg)(fd, m, flags);
	}
	/* Control data (time stamps) comes from the kernel as long as the bytes do. */
	if (m->msg_controllen > 0 && ds_on_shadow_rx(k->c->s)) {
		ds_tick(k->c->s, fd);
		ds_wait_begin(k->c->s); /* only now the answer stays true */
		if (ds_on_shadow_rx(k->c->s) && ds_bell(k->c->s) < 0) {
			ssize_t rc = REAL(recvmsg)(fd, m, flags);
			ds_wait_end(k->c->s);
			if (rc > 0 && !(flags & MSG_PEEK))
				ds_moved(k->c->s, 0, (size_t)rc);
			return rc;
		}
		ds_wait_end(k->c->s);
	}
	ssize_t rc = total(m->msg_iov, m->msg_iovlen) == 0 ? recv_none(k, fd, flags)
		: ds_recv(k->c->s, fd, m->msg_iov, (int)m->msg_iovlen, flags & ~MSG_CMSG_CLOEXEC);
	if (rc >= 0) {
		m->msg_namelen = 0;
		m->msg_controllen = 0;
		m->msg_flags = flags & MSG_CMSG_CLOEXEC;
	}
	return rc;
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	CALL(k, fd);
	if (!k.c)
		return REAL(recvmsg)(fd, m, flags);
	return do_recvmsg(&k, fd, m, flags);
}

EXPORT int recvmmsg(int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout)
{
	CALL(k, fd);
	if (!k.c || odd_recv(flags))
		return REAL(recvmmsg)(fd, v, n, flags, timeout);
	struct timespec deadline, left;
	int f = flags & ~MSG_WAITFORONE;
	unsigned i;

	if (timeout)
		deadline_set(&deadline, timeout);
	for (i = 0; i < n && i < UIO_MAXIOV; i++) {
		ssize_t rc = do_recvmsg(&k, fd, &v[i].msg_hdr, f);
		if (rc < 0)
			return i > 0 ? (int)i : -1;
		v[i].msg_len = (unsigned)rc;
		if (flags & MSG_WAITFORONE)
			f |= MSG_DONTWAIT;
		/* The time is looked at after each message only, as the kernel does. */
		if (timeout && !deadline_left(&deadline, &left)) {
			i++;
			break;
		}
	}
	if (timeout)
		deadline_left(&deadline, timeout);
	return (int)i;
}

EXPORT ssize_t __read_chk(int fd, void *p, size_t n, size_t size)
{
	if (n > size)
		return REAL(__read_chk)(fd, p, n, size); /* ends the program */
	return read(fd, p, n);
}

EXPORT ssize_t __recv_chk(int fd, void *p, size_t n, size_t size, int flags)
{
	if (n > size)
		return REAL(__recv_chk)(fd, p, n, size, flags);
	return recv(fd, p, n, flags);
}

EXPORT ssize_t __recvfrom_chk(int fd, void *p, size_t n, size_t size, int flags, struct sockaddr *addr, socklen_t *len)
{
	if (n > size)
		return REAL(__recvfrom_chk)(fd, p, n, size, flags, addr, len);
	return recvfrom(fd, p, n, flags, addr, len);
}

/* ---- sending --------------------------------------------------------------- */

EXPORT ssize_t write(int fd, const void *p, size_t n)
{
	CALL(k, fd);
	if (!k.c)
		return REAL(write)(fd, p, n);
	return sent(&k, ds_send(k.c->s, fd, &(struct iovec){(void *)(uintptr_t)p, n}, 1, 0), n);
}
ALIAS(__write, write);

EXPORT ssize_t send(int fd, const void *p, size_t n, int flags)
{
	CALL(k, fd);
	if (!k.c)
		return REAL(send)(fd, p, n, flags);
	if (odd_send(flags)) {
		odd(&k, fd, flags);
		return REAL(send)(fd, p, n, flags);
	}
	return sent(&k, ds_send(k.c->s, fd, &(struct iovec){(void *)(uintptr_t)p, n}, 1, flags), n);
}
ALIAS(__send, send);

/* The address is ignored, as a connected TCP socket does. */
EXPORT ssize_t sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *addr, socklen_t len)
{
	CALL(k, fd);
	if (!k.c || odd_send(flags)) {
		if (k.c)
			odd(&k, fd, flags);
		return REAL(sendto)(fd, p, n, flags, addr, len);
	}
	return sent(&k, ds_send(k.c->s, fd, &(struct iovec){(void *)(uintptr_t)p, n}, 1, flags), n);
}

EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
	CALL(k, fd);
	if (!k.c || bad_iov(iov, n))
		return REAL(writev)(fd, iov, n);
	return sent(&k, ds_send(k.c->s, fd, iov, n, 0), total(iov, (size_t)n));
}

EXPORT ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	CALL(k, fd);
	if (!k.c || off != -1 || bad_iov(iov, n) || (flags & ~(RWF_NOWAIT | RWF_HIPRI)))
		return REAL(pwritev2)(fd, iov, n, off, flags);
	return sent(&k, ds_send(k.c->s, fd, iov, n, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0), total(iov, (size_t)n));
}
ALIAS(pwritev64v2, pwritev2);

static ssize_t do_sendmsg(struct call *k, int fd, const struct msghdr *m, int flags)
{
	if (!m || odd_send(flags) || m->msg_iovlen > IOV_MAX || bad_iov(m->msg_iov, (int)m->msg_iovlen)) {
		odd(k, fd, flags);
		return REAL(sendmsg)(fd, m, flags);
	}
	/* Control data is the kernel's to judge: none of it goes with direct bytes. */
	if (m->msg_controllen > 0) {
		ds_freeze_demote(k->c->s, fd);
		if (ds_on_shadow_tx(k->c->s)) {
			ssize_t rc = REAL(sendmsg)(fd, m, flags);
			if (rc > 0)
				ds_moved(k->c->s, (size_t)rc, 0);
			return rc;
		}
	}
	return sent(k, ds_send(k->c->s, fd, m->msg_iov, (int)m->msg_iovlen, flags), total(m->msg_iov, m->msg_iovlen));
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	CALL(k, fd);
	if (k.c)
		return do_sendmsg(&k, fd, m, flags);
	if (m && m->msg_controllen > 0)
		rights_demote(m);
	return REAL(sendmsg)(fd, m, flags);
}

EXPORT int sendmmsg(int fd, struct mmsghdr *v, unsigned n, int flags)
{
	CALL(k, fd);
	if (!k.c) {
		for (unsigned i = 0; v && i < n && i < UIO_MAXIOV; i++)
			if (v[i].msg_hdr.msg_controllen > 0)
				rights_demote(&v[i].msg_hdr);
		return REAL(sendmmsg)(fd, v, n, flags);
	}
	unsigned i;
	for (i = 0; i < n && i < UIO_MAXIOV; i++) {
		ssize_t rc = do_sendmsg(&k, fd, &v[i].msg_hdr, flags);
		if (rc < 0)
			return i > 0 ? (int)i : -1;
		v[i].msg_len = (unsigned)rc;
		if ((size_t)rc < total(v[i].msg_hdr.msg_iov, v[i].msg_hdr.msg_iovlen))
			return (int)i + 1;
	}
	return (int)i;
}

void rights_demote(const struct msghdr *m)
{
	struct msghdr copy = *m;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(&copy); c; c = CMSG_NXTHDR(&copy, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(0))
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			struct conn *n = conn_get(fd);
			if (!n)
				continue;
			conn_demote(n, fd);
			conn_put(n);
		}
	}
}

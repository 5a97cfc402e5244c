/* Calls on UDP sockets. What conn/ leaves to the kernel goes there with the program's own
 * arguments. */
#include "hooks/dgram.h"
#include "hooks/vectors.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>

/* The end of a call, also if the thread is cancelled in it. */
static void put(struct ds_dgram **d)
{
	if (*d)
		ds_dg_put(*d);
}

#define DGRAM(name, fd) __attribute__((cleanup(put))) struct ds_dgram *name = dgram_get(fd, fd_word(fd))

static bool is_hard(const struct ds_dgram *d) { return !d || __atomic_load_n(&d->hard, __ATOMIC_RELAXED); }

/* ---- the mode for tests ------------------------------------------------------------- */

/* All sockets of the process are announced, and take what is offered to them. */
static void tick_all(void)
{
	for (unsigned fd = 0; fd < fd_tab_end; fd++) {
		DGRAM(d, (int)fd);
		if (d && !is_hard(d))
			ds_dg_eager_tick(d, (int)fd);
	}
}

/* Before a send to an address; NULL: the peer. */
OURS void eager_send(struct ds_dgram *d, int fd, const struct sockaddr *to, socklen_t len)
{
	enum { VAIN_MOST = 1000 };
	struct sockaddr_storage own;
	socklen_t n = sizeof own;
	uint8_t addr[16];
	uint16_t port;
	int saved = errno;
	static unsigned vain; /* milliseconds that the process has waited, about */

	if (is_hard(d) || !name_there(to, len) || (to ? !ds_dg_address(d, to, len, addr, &port) : !d->connected))
		return;
	if (!to) {
		memcpy(addr, d->peer.addr, sizeof addr);
		port = d->peer.port;
	}
	if (kernel_getsockname(fd, (struct sockaddr *)&own, &n) == 0 && ((struct sockaddr_in *)&own)->sin_port == 0) /* as its first send would */
		ds_syscall(SYS_bind, fd, &own, n);
	tick_all();
	for (unsigned i = 0; i < __atomic_load_n(&ds_dg_eager, __ATOMIC_RELAXED) && !ds_dg_eager_flow(d, fd, addr, port); i++) {
		if (__atomic_fetch_add(&vain, 1, __ATOMIC_RELAXED) >= VAIN_MOST)
			break;
		for (int k = 0; k < 20; k++) {
			ds_dg_moment();
			tick_all();
		}
	}
	errno = saved;
}

/* Before a receive. */
OURS void eager_receive(struct ds_dgram *d, int fd, int flags)
{
	int saved = errno;

	if (is_hard(d))
		return;
	ds_dg_eager_tick(d, fd);
	for (unsigned i = 0; i < __atomic_load_n(&ds_dg_eager, __ATOMIC_RELAXED) && !(flags & MSG_DONTWAIT) && !ds_dg_nonblocking(d, fd) && !ds_dg_inward(d); i++) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (ds_syscall(SYS_ppoll, &p, 1, &(struct timespec){.tv_nsec = 1000000}, NULL, 0) != 0)
			break;
		ds_dg_eager_tick(d, fd);
	}
	errno = saved;
}

static bool eager(const struct ds_dgram *d) { return d && __builtin_expect(__atomic_load_n(&ds_dg_eager, __ATOMIC_RELAXED), 0); }

/* ---- sends -------------------------------------------------------------------------- */

/* How many datagrams n bytes are. */
static unsigned datagrams(size_t train, size_t n)
{
	return train && n ? (unsigned)((n + train - 1) / train) : 1;
}

/* A send on d, which is the UDP socket of its number; NULL: it is not, or this is a child of
 * vfork. */
struct sending {
	struct ds_dgram *d;
	struct ds_dg_sent s;
};

/* The kernel shall send, without a look at the flows. False: the number is another file's by now,
 * and the hook begins anew. */
static inline bool by_kernel(struct sending *s)
{
	return s->d ? ds_by_number_same(&s->s.kernel, &s->d->numbered, s->s.number) : fd_vforked();
}

/* The kernel has returned rc. */
static ssize_t sent(struct sending *s, ssize_t rc)
{
	if (__builtin_expect(!s->s.to, 1)) {
		ds_by_number_end(&s->s.kernel);
	} else {
		int saved = errno;
		ds_dg_has_sent(s->d, &s->s, rc >= 0 ? datagrams(s->s.train, (size_t)rc) : 0, rc >= 0 ? (size_t)rc : 0);
		errno = saved;
	}
	return rc;
}

/* Its end, also if the thread is cancelled in the kernel. */
static void ends(struct sending *s)
{
	if (__builtin_expect(s->s.to != NULL, 0))
		ds_dg_cancelled(&s->s);
	else
		ds_by_number_end(&s->s.kernel);
}

#define SENDING(name, d, fd) __attribute__((cleanup(ends))) struct sending name = {d, {.number = dgram_number(fd, d)}}

ssize_t dg_sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_storage to;
	struct iovec v = {(void *)(uintptr_t)p, n};
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
	struct ds_dgram *plain = dg_plain(fd_word(fd), addr, len, flags);

	if (plain) {
		SENDING(s, plain, fd);
		return by_kernel(&s) ? REAL(sendto, fd, p, n, flags, addr, len) : DS_DG_ANEW;
	}
	DGRAM(d, fd);
	SENDING(s, d, fd);
	if (eager(d))
		eager_send(d, fd, addr, len);
	if (is_hard(d) || !name_there(addr, len))
		return by_kernel(&s) ? REAL(sendto, fd, p, n, flags, addr, len) : DS_DG_ANEW;
	if (addr) {
		memcpy(&to, addr, len);
		h.msg_name = &to;
		h.msg_namelen = len;
	}
	ssize_t rc = ds_dg_sendmsg(d, fd, &h, flags, &s.s);
	return rc != DS_DG_KERNEL ? rc : sent(&s, REAL(sendto, fd, p, n, flags, addr, len));
}

/* writev, or with MSG_DONTWAIT pwritev2 with RWF_NOWAIT. */
static ssize_t kernel_writev(int fd, const struct iovec *iov, int n, int flags)
{
	return flags ? REAL(pwritev2, fd, iov, n, -1, RWF_NOWAIT) : REAL(writev, fd, iov, n);
}

ssize_t dg_writev(int fd, const struct iovec *iov, int n, int flags)
{
	struct msghdr h = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n};
	struct ds_dgram *plain = dg_plain(fd_word(fd), NULL, 0, 0);

	if (plain) {
		SENDING(s, plain, fd);
		return by_kernel(&s) ? kernel_writev(fd, iov, n, flags) : DS_DG_ANEW;
	}
	DGRAM(d, fd);
	SENDING(s, d, fd);
	if (eager(d))
		eager_send(d, fd, NULL, 0);
	if (is_hard(d) || n < 0 || !iov_there(iov, (size_t)n))
		return by_kernel(&s) ? kernel_writev(fd, iov, n, flags) : DS_DG_ANEW;
	ssize_t rc = ds_dg_sendmsg(d, fd, &h, flags, &s.s);
	return rc != DS_DG_KERNEL ? rc : sent(&s, kernel_writev(fd, iov, n, flags));
}

/* As dg_sendmsg, on d. */
static ssize_t send_one(struct ds_dgram *d, int fd, const struct msghdr *m, int flags)
{
	struct sockaddr_storage to;
	SENDING(s, d, fd);

	if (eager(d) && msg_there(m))
		eager_send(d, fd, m->msg_name, m->msg_namelen);
	if (is_hard(d) || !msg_there(m))
		return by_kernel(&s) ? REAL(sendmsg, fd, m, flags) : DS_DG_ANEW;
	struct msghdr h = *m;
	h.msg_namelen = capped_name(h.msg_namelen);
	if (h.msg_namelen == 0) /* it goes to the peer */
		h.msg_name = NULL;
	if (!name_there(h.msg_name, h.msg_namelen))
		return by_kernel(&s) ? REAL(sendmsg, fd, m, flags) : DS_DG_ANEW;
	if (h.msg_name) {
		memcpy(&to, h.msg_name, h.msg_namelen);
		h.msg_name = &to;
	}
	ssize_t rc = ds_dg_sendmsg(d, fd, &h, flags, &s.s);
	return rc != DS_DG_KERNEL ? rc : sent(&s, REAL(sendmsg, fd, m, flags));
}

ssize_t dg_sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct ds_dgram *plain = ds_readable(m, sizeof *m) ? dg_plain(fd_word(fd), m->msg_name, m->msg_namelen, flags) : NULL;

	if (plain) {
		SENDING(s, plain, fd);
		return by_kernel(&s) ? REAL(sendmsg, fd, m, flags) : DS_DG_ANEW;
	}
	DGRAM(d, fd);
	return send_one(d, fd, m, flags);
}

int dg_sendmmsg(int fd, struct mmsghdr *v, unsigned n, int flags)
{
	enum { COUNTED = 4 };
	DGRAM(d, fd);

	if (d && (flags & MSG_MORE))
		ds_dg_harden(d, DS_WHY_UNSUPPORTED_CALL);
	if (is_hard(d) || (!__atomic_load_n(&d->nout, __ATOMIC_RELAXED) && !eager(d))) { /* no flow: all of them are the kernel's */
		SENDING(s, d, fd);
		if (!by_kernel(&s))
			return DS_DG_ANEW;
		int rc = (int)sent(&s, REAL(sendmmsg, fd, v, n, flags)), saved = errno;
		for (int i = 0; !is_hard(d) && i < rc && i < COUNTED; i++) {
			const struct msghdr *m = msg_of(v, (unsigned)i);
			if (name_there(m->msg_name, m->msg_namelen) && !ds_dg_plain(d, m->msg_name, m->msg_namelen))
				ds_dg_counted(d, fd, m->msg_name, m->msg_namelen);
		}
		errno = saved;
		return rc;
	}
	if (n > UIO_MAXIOV)
		n = UIO_MAXIOV;
	for (unsigned i = 0; i < n; i++) {
		ssize_t rc = i > 0 && word_dgram(fd_word(fd)) != d ? DS_DG_ANEW : send_one(d, fd, msg_of(v, i), flags);
		if (rc >= 0 && !ds_writable(&v[i].msg_len, sizeof v[i].msg_len)) {
			errno = EFAULT;
			rc = -1;
		}
		if (rc < 0)
			return i > 0 ? (int)i : (int)rc;
		v[i].msg_len = (unsigned)rc;
	}
	return (int)n;
}

/* ---- receives ----------------------------------------------------------------------- */

/* A receive that the kernel makes, of a socket without flows; .d NULL: it has flows, or there is no
 * socket of ours. It is counted, so that no flow becomes awake meanwhile. */
struct plain {
	struct ds_dgram *d;
	int slot;
};

/* Its end. */
static void awoke(struct plain *p)
{
	if (p->d)
		ds_dg_awoke(p->d, p->slot);
}

/* Begins one, if d has no flows. */
static inline struct plain without_flows(struct ds_dgram *d, int fd, int flags)
{
	if (eager(d))
		eager_receive(d, fd, flags);
	if (!d || ds_dg_inward(d))
		return (struct plain){.d = NULL};
	int slot = ds_dg_asleep(d);
	if (__builtin_expect(!ds_dg_inward(d), 1))
		return (struct plain){d, slot};
	ds_dg_awoke(d, slot); /* one has come between the two */
	return (struct plain){.d = NULL};
}

#define PLAIN(name, d) __attribute__((cleanup(awoke))) struct plain name = without_flows(d, fd, flags)

/* rc is what a receive with these flags returned. */
static ssize_t received(struct ds_dgram *d, int fd, ssize_t rc, int flags)
{
	if (rc >= 0 && !(flags & MSG_PEEK))
		ds_dg_tick(d, fd);
	return rc;
}

/* Does the kernel make a receive with these flags? */
static bool odd(int flags) { return flags & (MSG_ERRQUEUE | MSG_OOB); }

/* Writes the source as the kernel does, after the bytes, which an error here loses. */
static ssize_t named(ssize_t rc, const struct msghdr *h, struct sockaddr *addr, socklen_t *len)
{
	int room;

	if (!ds_readable(len, sizeof *len)) {
		errno = EFAULT;
		return -1;
	}
	memcpy(&room, len, sizeof room);
	if (room < 0) {
		errno = EINVAL;
		return -1;
	}
	size_t n = (size_t)room < h->msg_namelen ? (size_t)room : h->msg_namelen;
	if (!ds_writable(addr, n) || !ds_writable(len, sizeof *len)) {
		errno = EFAULT;
		return -1;
	}
	memcpy(addr, h->msg_name, n);
	*len = h->msg_namelen;
	return rc;
}

/* As dg_recvfrom, of a socket that has flows. */
OURS ssize_t recvfrom_flows(struct ds_dgram *d, int fd, void *p, size_t n, int flags, struct sockaddr *addr, socklen_t *len)
{
	struct sockaddr_storage from;
	struct iovec v = {p, capped(n)};
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};

	if (addr) {
		h.msg_name = &from;
		h.msg_namelen = sizeof from;
	}
	ssize_t rc = received(d, fd, ds_dg_recvmsg(d, fd, &h, flags), flags);
	return rc >= 0 && addr ? named(rc, &h, addr, len) : rc;
}

ssize_t dg_recvfrom(int fd, void *p, size_t n, int flags, struct sockaddr *addr, socklen_t *len)
{
	DGRAM(d, fd);

	if (!d || odd(flags))
		return REAL(recvfrom, fd, p, n, flags, addr, len);
	PLAIN(plain, d);
	if (plain.d)
		return received(d, fd, REAL(recvfrom, fd, p, n, flags, addr, len), flags);
	return recvfrom_flows(d, fd, p, n, flags, addr, len);
}

ssize_t dg_readv(int fd, const struct iovec *iov, int n, int flags)
{
	struct msghdr h = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n};
	DGRAM(d, fd);

	if (!d)
		return REAL(readv, fd, iov, n);
	bool fine = n >= 0 && iov_there(iov, (size_t)n) && iov_total(iov, (size_t)n);
	PLAIN(plain, d);
	if (plain.d || !fine) {
		ssize_t rc = flags ? REAL(preadv2, fd, iov, n, -1, RWF_NOWAIT) : REAL(readv, fd, iov, n);
		return received(d, fd, rc, rc > 0 ? 0 : MSG_PEEK);
	}
	return received(d, fd, ds_dg_recvmsg(d, fd, &h, flags), flags);
}

/* recvmsg into m on d, which has flows. */
static ssize_t recv_one(struct ds_dgram *d, int fd, struct msghdr *m, int flags)
{
	struct sockaddr_storage from;

	if (!msg_there(m))
		return REAL(recvmsg, fd, m, flags);
	struct msghdr h = *m;
	h.msg_name = m->msg_name ? &from : NULL;
	h.msg_namelen = m->msg_name ? sizeof from : 0;
	ssize_t rc = ds_dg_recvmsg(d, fd, &h, flags);
	if (rc < 0)
		return rc;
	if (!ds_writable(m, sizeof *m)) {
		errno = EFAULT;
		return -1;
	}
	if (m->msg_name) {
		size_t n = m->msg_namelen < h.msg_namelen ? m->msg_namelen : h.msg_namelen;
		if (!ds_writable(m->msg_name, n)) {
			errno = EFAULT;
			return -1;
		}
		memcpy(m->msg_name, &from, n);
		m->msg_namelen = h.msg_namelen;
	}
	m->msg_controllen = h.msg_controllen;
	m->msg_flags = h.msg_flags;
	return rc;
}

ssize_t dg_recvmsg(int fd, struct msghdr *m, int flags)
{
	DGRAM(d, fd);

	if (!d || odd(flags))
		return REAL(recvmsg, fd, m, flags);
	PLAIN(plain, d);
	if (plain.d)
		return received(d, fd, REAL(recvmsg, fd, m, flags), flags);
	return received(d, fd, recv_one(d, fd, m, flags), flags);
}

/* May the next message of a recvmmsg, which has some, be received? The kernel keeps an error that
 * comes after the first one for the next call, so none is taken here: false. Waits for a message
 * before that one would. */
OURS bool has_next(struct ds_dgram *d, int fd, int flags)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct timeval limit = {0, 0};
	socklen_t len = sizeof limit;
	int saved = errno;

	if ((flags & MSG_DONTWAIT) || ds_dg_nonblocking(d, fd)) {
		p.events = 0;
		bool fails = __atomic_load_n(&d->asks, __ATOMIC_RELAXED) && REAL(ppoll, &p, 1, &(struct timespec){0, 0}, NULL) > 0;
		errno = saved;
		return !fails;
	}
	REAL(getsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &limit, &len);
	struct timespec t = {limit.tv_sec, limit.tv_usec * 1000L};
	return wait_poll(&p, 1, limit.tv_sec || limit.tv_usec ? &t : NULL, NULL, NULL) > 0 && !(p.revents & POLLERR);
}

int dg_recvmmsg(int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout)
{
	struct timespec deadline, left;
	int f = flags & ~MSG_WAITFORONE;
	DGRAM(d, fd);

	if (!d || odd(flags))
		return REAL(recvmmsg, fd, v, n, flags, timeout);
	PLAIN(plain, d);
	if (plain.d || (timeout && !time_fine(timeout)))
		return (int)received(d, fd, REAL(recvmmsg, fd, v, n, flags, timeout), flags);
	if (timeout)
		deadline_set(&deadline, timeout);
	unsigned i = 0;
	n = n < UIO_MAXIOV ? n : UIO_MAXIOV;
	while (i < n && (i == 0 || word_dgram(fd_word(fd)) == d)) { /* as in dg_sendmmsg */
		if (i > 0 && !has_next(d, fd, f))
			break;
		ssize_t rc = received(d, fd, recv_one(d, fd, msg_of(v, i), f), flags);
		if (rc >= 0 && !ds_writable(&v[i].msg_len, sizeof v[i].msg_len)) {
			errno = EFAULT;
			rc = -1;
		}
		if (rc < 0)
			break;
		v[i++].msg_len = (unsigned)rc;
		if (flags & MSG_WAITFORONE)
			f |= MSG_DONTWAIT;
		if (timeout && !deadline_left(&deadline, &left)) /* as in the kernel, only after each message */
			break;
	}
	if (i == 0 && n > 0)
		return -1;
	if (timeout) {
		if (!ds_writable(timeout, sizeof *timeout)) {
			errno = EFAULT;
			return -1;
		}
		deadline_left(&deadline, timeout);
	}
	return (int)i;
}

/* ---- other programs ----------------------------------------------------------------- */

void dg_native(int fd, int why)
{
	DGRAM(d, fd);

	if (d)
		ds_dg_harden(d, why);
}

void dg_inherited(void)
{
	int saved = errno;

	for (unsigned fd = 0; fd < fd_tab_end; fd++) {
		struct ds_dgram *d = word_dgram(fd_word((int)fd));
		int fl = d ? REAL(fcntl, (int)fd, F_GETFD) : -1;

		if (fl < 0 || (fl & FD_CLOEXEC))
			continue;
		ds_dg_harden(d, DS_WHY_PROGRAM);
		ds_dg_inherited(d);
	}
	errno = saved;
}

/* For tests: how many datagrams this process has sent through flows, sent by the kernel to
 * receivers to which it has flows, received through flows, and received by the kernel from senders
 * of flows. */
extern void exnds_datagrams(uint64_t n[4]) EXPORT;
void exnds_datagrams(uint64_t n[4])
{
	for (int i = 0; i < 4; i++)
		n[i] = __atomic_load_n(&ds_dg_moved[i], __ATOMIC_RELAXED);
}

/* For tests: how many steps of flows' ends there were that no table has. */
extern unsigned exnds_missteps(void) EXPORT;
unsigned exnds_missteps(void) { return __atomic_load_n(&ds_dg_missteps, __ATOMIC_RELAXED); }

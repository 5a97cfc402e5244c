/* The shadow: the program's TCP socket. Calls on it, what the kernel has counted, and places in
 * iovecs. */
#include "conn/inner.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/syscall.h>

bool ds_address(const struct sockaddr_storage *a, uint8_t *to, uint16_t *port)
{
	if (a->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)a;

		memset(to, 0, 10);
		to[10] = to[11] = 0xff;
		memcpy(to + 12, &in->sin_addr, 4);
		*port = ntohs(in->sin_port);
		return true;
	}
	if (a->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const void *)a;

		memcpy(to, &in->sin6_addr, 16);
		*port = ntohs(in->sin6_port);
		return true;
	}
	return false;
}

bool ds_is_tcp(int fd)
{
	int protocol = 0;
	socklen_t len = sizeof protocol;

	return REAL(getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 && protocol == IPPROTO_TCP;
}

enum { ECN_BITS = 2, CLASS_MASK = 63 };

/* Is end an IPv4 address, so that the packets of its connections are IPv4's, whatever the socket
 * is? */
static bool is_ip4(const uint8_t end[16])
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(end, v4, sizeof v4) == 0;
}

unsigned ds_class(int fd, const uint8_t end[16])
{
	int tos = 0;
	socklen_t len = sizeof tos;
	bool ip4 = is_ip4(end);

	if (REAL(getsockopt, fd, ip4 ? IPPROTO_IP : IPPROTO_IPV6, ip4 ? IP_TOS : IPV6_TCLASS, &tos, &len) != 0)
		return 0;
	return (unsigned)tos >> ECN_BITS & CLASS_MASK;
}

unsigned ds_user_timeout(int fd)
{
	unsigned ms = 0;
	socklen_t len = sizeof ms;

	return REAL(getsockopt, fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, &len) == 0 ? ms : 0;
}

void ds_class_set(int fd, const uint8_t end[16], unsigned class)
{
	int tos = (int)(class << ECN_BITS);
	bool ip4 = is_ip4(end);

	REAL(setsockopt, fd, ip4 ? IPPROTO_IP : IPPROTO_IPV6, ip4 ? IP_TOS : IPV6_TCLASS, &tos, sizeof tos);
}

bool ds_addresses(int fd, int side, struct ds_info *info)
{
	struct sockaddr_storage own, peer;
	socklen_t n = sizeof own;

	if (kernel_getsockname(fd, (struct sockaddr *)&own, &n) < 0 || !ds_address(&own, info->addr[side], &info->port[side]))
		return false;
	n = sizeof peer;
	return kernel_getpeername(fd, (struct sockaddr *)&peer, &n) == 0 && ds_address(&peer, info->addr[!side], &info->port[!side]) &&
	       ds_is_tcp(fd);
}

/* Of the kernel's TCP states. */
enum { ESTABLISHED = 1, FIN_WAIT_1 = 4, FIN_WAIT_2 = 5, TIME_WAIT = 6, CLOSED = 7, CLOSE_WAIT = 8, LAST_ACK = 9, CLOSING = 11 };

/* TCP_INFO of fd, with its counts of bytes. False: the kernel has none. */
static bool tcp_info(int fd, struct tcp_info *t)
{
	socklen_t len = sizeof *t;

	memset(t, 0, sizeof *t);
	return REAL(getsockopt, fd, IPPROTO_TCP, TCP_INFO, t, &len) == 0 &&
	       len >= offsetof(struct tcp_info, tcpi_bytes_received) + sizeof t->tcpi_bytes_received;
}

/* How often the kernel's counts are read, until nothing moves meanwhile. Whoever asks holds up the
 * direction, so what is under way soon ends. */
enum { LOOKS = 1000 };

bool ds_kernel_sent(int fd, int side, uint64_t *n)
{
	struct tcp_info t;
	int before, after;

	for (int i = 0; i < LOOKS; i++) {
		if (REAL(ioctl, fd, DS_OUTQ, &before) < 0 || !tcp_info(fd, &t) || REAL(ioctl, fd, DS_OUTQ, &after) < 0)
			return false;
		if (t.tcpi_state != ESTABLISHED && t.tcpi_state != CLOSE_WAIT)
			return false;
		if (before != after)
			continue;
		*n = t.tcpi_bytes_acked + (uint64_t)after;
		if (side == 0 && (*n)-- == 0) /* the SYN counts: it was another's */
			return false;
		return true;
	}
	return false;
}

bool ds_shadow_at_mark(int fd)
{
	int at = 0;

	return REAL(ioctl, fd, DS_ATMARK, &at) == 0 && at;
}

bool ds_kernel_read(int fd, uint64_t *n)
{
	struct tcp_info t;
	int before, after;

	for (int i = 0; i < LOOKS; i++) {
		if (REAL(ioctl, fd, DS_INQ, &before) < 0 || !tcp_info(fd, &t) || REAL(ioctl, fd, DS_INQ, &after) < 0)
			return false;
		if (t.tcpi_state != ESTABLISHED && t.tcpi_state != CLOSE_WAIT && t.tcpi_state != FIN_WAIT_1 && t.tcpi_state != FIN_WAIT_2)
			return false;
		if (before != after)
			continue;
		*n = t.tcpi_bytes_received - (uint64_t)after - (t.tcpi_state == CLOSE_WAIT ? 1 : 0); /* the FIN counts */
		return true;
	}
	return false;
}

bool ds_shadow_given(int fd, uint64_t read, uint64_t *n, bool *ended)
{
	struct tcp_info t;
	int unread;

	if (!tcp_info(fd, &t) || REAL(ioctl, fd, DS_INQ, &unread) < 0)
		return false;
	*n = t.tcpi_bytes_received;
	switch (t.tcpi_state) {
	case CLOSE_WAIT:
	case LAST_ACK:
	case CLOSING:
	case TIME_WAIT:
		*n -= 1; /* the FIN counts */
		*ended = true;
		return true;
	case CLOSED:
		/* Whether a FIN came before the reset the kernel does not say, but who has read all
		 * knows. */
		*ended = true;
		if (*n == read + (uint64_t)unread + 1)
			*n -= 1;
		return *n == read + (uint64_t)unread;
	}
	*ended = false;
	return true;
}

bool ds_shadow_read(int fd, uint64_t noted, uint64_t *n)
{
	uint64_t given;
	bool ended;
	int unread;

	if (ds_kernel_read(fd, n))
		return true;
	if (!ds_shadow_given(fd, noted, &given, &ended) || !ended || REAL(ioctl, fd, DS_INQ, &unread) < 0)
		return false;
	*n = given - (uint64_t)unread; /* nothing more comes */
	return true;
}

bool ds_shadow_read_up_to(int fd, uint64_t carried, uint64_t *n)
{
	struct tcp_info t;
	int unread;

	if (!tcp_info(fd, &t) || t.tcpi_state != CLOSED || REAL(ioctl, fd, DS_INQ, &unread) < 0)
		return false;
	*n = t.tcpi_bytes_received - (t.tcpi_bytes_received > carried) - (uint64_t)unread; /* the FIN counts */
	return true;
}

bool ds_shadow_failed(int fd, uint64_t read)
{
	struct tcp_info t;
	int unread;

	/* A FIN would count as a byte. */
	return tcp_info(fd, &t) && t.tcpi_state == CLOSED && REAL(ioctl, fd, DS_INQ, &unread) == 0 &&
	       t.tcpi_bytes_received == read + (uint64_t)unread;
}

uint64_t ds_kernel_ended(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};
	struct timespec soon = {0, 2000000}, jiffy;
	struct tcp_info t;

	/* A process that ends closes one descriptor after the other. */
	if (ds_syscall(SYS_ppoll, &p, 1, &soon, NULL, 0) <= 0 || !tcp_info(fd, &t) || clock_getres(CLOCK_MONOTONIC_COARSE, &jiffy) < 0)
		return 0;
	uint64_t us = (uint64_t)t.tcpi_last_ack_recv * 1000, doubt = (uint64_t)jiffy.tv_nsec / 1000 + us / 500;
	return ds_ticks() - (us + doubt) * ds_ticks_us();
}

/* ---- the calls ------------------------------------------------------------------- */

bool ds_nonblock(struct ds_sock *s, int fd)
{
	/* Another process that has the socket may change its flags without our seeing it. Once it
	 * has gone, what the kernel says stays true. */
	bool shared = s->sh && !ds_single(s);
	uint8_t known = DS_GET(s->life->nonblock), asked = DS_NONBLOCK_ASKED;

	if ((known == DS_NONBLOCK_NO || known == DS_NONBLOCK_YES) && !shared)
		return known == DS_NONBLOCK_YES;
	__atomic_store_n(&s->life->nonblock, asked, __ATOMIC_SEQ_CST);
	bool on = REAL(fcntl, fd, F_GETFL) & O_NONBLOCK;
	if (!shared) /* unless another thread has changed it meanwhile */
		__atomic_compare_exchange_n(&s->life->nonblock, &asked, on ? DS_NONBLOCK_YES : DS_NONBLOCK_NO, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	return on;
}

bool ds_cursor_of(struct ds_cursor *c, const struct iovec *iov, int n)
{
	size_t sum = 0;

	for (int i = 0; i < n; i++) {
		size_t len = iov[i].iov_len;

		if (__builtin_expect((ssize_t)len < 0 || !ds_user_range(iov[i].iov_base, len), 0)) {
			errno = (ssize_t)len < 0 ? EINVAL : EFAULT;
			return false;
		}
		sum += len < DS_MAX_RW - sum ? len : DS_MAX_RW - sum;
	}
	*c = (struct ds_cursor){.v = iov, .n = n, .left = sum};
	return true;
}

struct iovec ds_here(const struct ds_cursor *c, size_t max)
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

void ds_skip(struct ds_cursor *c, size_t n)
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

int ds_vectors(const struct ds_cursor *c, size_t limit, struct iovec v[DS_VECTORS])
{
	struct ds_cursor at = *c;
	int n = 0;

	for (size_t sum = 0; n < DS_VECTORS && sum < limit; sum += v[n++].iov_len) {
		v[n] = ds_here(&at, limit - sum);
		ds_skip(&at, v[n].iov_len);
	}
	return n;
}

ssize_t ds_real_send(int fd, const struct iovec *iov, int n, int flags)
{
	if (n == 1 && iov->iov_len <= PTRDIFF_MAX) /* a vector may not be longer */
		return REAL(send, fd, iov->iov_base, iov->iov_len, flags);
	struct msghdr h = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
	return REAL(sendmsg, fd, &h, flags);
}

ssize_t ds_real_recv(int fd, const struct iovec *iov, int n, int flags)
{
	if (n == 1 && iov->iov_len <= PTRDIFF_MAX)
		return REAL(recv, fd, iov->iov_base, iov->iov_len, flags);
	struct msghdr h = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
	return REAL(recvmsg, fd, &h, flags);
}

void ds_options_changed(struct ds_sock *s, int fd)
{
	int low = 1;
	socklen_t len = sizeof low;
	int saved = errno;

	if (REAL(getsockopt, fd, SOL_SOCKET, SO_RCVLOWAT, &low, &len) == 0 && low > 0)
		DS_SET(s->lowat, (unsigned)low);
	errno = saved;
}

void ds_moved(struct ds_sock *s, size_t sent, size_t received)
{
	/* Approximate: threads may overwrite each other's sums. */
	__atomic_store_n(&s->moved, __atomic_load_n(&s->moved, __ATOMIC_RELAXED) + sent + received, __ATOMIC_RELAXED);
	if (sent)
		__atomic_store_n(&s->sends, __atomic_load_n(&s->sends, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
	uint64_t *counters = ds_stats_counters(s->entry);
	if (sent)
		ds_bump(counters, DS_C_SENT_SHADOW, sent);
	if (received)
		ds_bump(counters, DS_C_RECEIVED_SHADOW, received);
}

void ds_owe(struct ds_sock *s, int error)
{
	if (error != EAGAIN && error != EINTR && error != EFAULT && error != EPIPE)
		__atomic_store_n(&s->sh->owed, (uint8_t)error, __ATOMIC_RELAXED);
}

ssize_t ds_end(struct ds_sock *s, const struct iovec *iov, int n)
{
	size_t room = 0;

	if (!DS_GET(s->sh->owed))
		return 0;
	for (int i = 0; i < n; i++)
		room += iov[i].iov_len;
	int error = room ? __atomic_exchange_n(&s->sh->owed, 0, __ATOMIC_RELAXED) : 0;
	if (!error)
		return 0;
	errno = error;
	return -1;
}

/* MSG_ZEROCOPY: sends whose completion the kernel reports on the error queue. A direct send has
 * copied its data when it returns, so it is complete at once and is reported as the kernel reports
 * a send that it copied: SO_EE_CODE_ZEROCOPY_COPIED.
 *
 *   without a segment   the kernel numbers them 0..k-1
 *   from then on        this file does, k.. whichever way the bytes go, also back on TCP: no number is left out
 *
 * Unreported completions are always one range, zc_told..zc_next-1: the kernel merges adjacent
 * ranges, too.
 */
#include "conn/inner.h"
#include "conn/fds.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/syscall.h>

/* Has the program set SO_ZEROCOPY? */
static bool wanted(int fd)
{
	int on = 0, saved = errno;
	socklen_t n = sizeof on;

	if (REAL(getsockopt, fd, SOL_SOCKET, SO_ZEROCOPY, &on, &n) < 0)
		errno = saved;
	return on;
}

/* Has this process set SO_ZEROCOPY on any socket? A connection may have it from its listener, so
 * the kernel is asked about each, but only then. */
static bool used;

void ds_zerocopy_used(void) { __atomic_store_n(&used, true, __ATOMIC_RELAXED); }

void ds_lead_listen(struct ds_sock *s, int fd, unsigned events)
{
	uint64_t count;
	int saved = errno;

	if (ds_leadfd(s) < 0) {
		bool low = DS_GET(s->lowat) > 1; /* ds_options_set */
		if (ds_one_thread() || (!(events & TX_EVENTS) && !low && (!__atomic_load_n(&used, __ATOMIC_RELAXED) || !wanted(fd))))
			return;
		ds_eventfd_make(&s->leadfd);
	}
	if (ds_leadfd(s) >= 0)
		ds_syscall(SYS_read, ds_leadfd(s), &count, sizeof count);
	errno = saved;
}

ssize_t ds_send_zerocopy(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags)
{
	struct ds_shared *h = s->sh;
	int copied = flags & ~MSG_ZEROCOPY;
	ssize_t r;

	if (!h || !wanted(fd)) /* without SO_ZEROCOPY the flag means nothing */
		return ds_send(s, fd, iov, n, h ? copied : flags);
	ds_tick(s, fd);
	if (!ds_has_segment(s) && !__atomic_load_n(&h->zc_own, __ATOMIC_ACQUIRE)) {
		__atomic_fetch_add(&h->zc_next, 1, __ATOMIC_ACQ_REL);
		r = ds_shadow_send(s, fd, iov, n, flags);
		if (r > 0)
			return r;
		__atomic_fetch_sub(&h->zc_next, 1, __ATOMIC_ACQ_REL);
		if (r != DS_CHANGED)
			return r;
	}
	r = ds_send(s, fd, iov, n, copied);
	if (r > 0) {
		uint32_t number = __atomic_fetch_add(&h->zc_next, 1, __ATOMIC_ACQ_REL), no = 0;

		if (!__atomic_load_n(&h->zc_own, __ATOMIC_ACQUIRE)) {
			__atomic_store_n(&h->zc_told, number, __ATOMIC_RELEASE);
			__atomic_compare_exchange_n(&h->zc_own, &no, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
		}
		ds_zerocopy_used();
		ds_nudge(s);
	}
	return r;
}

bool ds_zerocopy_done(const struct ds_sock *s) { return ds_zerocopy_left(s); }

/* Takes the range that was not reported yet. False: there is none. */
static bool take(struct ds_sock *s, uint32_t *low, uint32_t *high)
{
	struct ds_shared *h = s->sh;
	uint32_t told, next;

	do {
		told = __atomic_load_n(&h->zc_told, __ATOMIC_ACQUIRE);
		next = __atomic_load_n(&h->zc_next, __ATOMIC_ACQUIRE);
		if (told == next)
			return false;
	} while (!__atomic_compare_exchange_n(&h->zc_told, &told, next, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
	*low = told;
	*high = next - 1;
	return true;
}

/* As the kernel's put_cmsg: n bytes of data, as far as there is room. */
static void put_control(struct msghdr *m, int level, int type, const void *data, size_t n)
{
	struct cmsghdr c = {.cmsg_level = level, .cmsg_type = type};
	size_t room = m->msg_controllen, len = CMSG_LEN(n);

	m->msg_controllen = 0;
	if (!m->msg_control || room < sizeof c) {
		m->msg_flags |= MSG_CTRUNC;
		return;
	}
	if (room < len) {
		m->msg_flags |= MSG_CTRUNC;
		len = room;
	}
	if (!ds_writable(m->msg_control, len))
		return;
	c.cmsg_len = len;
	memcpy(m->msg_control, &c, sizeof c);
	memcpy((char *)m->msg_control + sizeof c, data, len - sizeof c);
	m->msg_controllen = CMSG_SPACE(n) < room ? CMSG_SPACE(n) : room;
}

bool ds_zerocopy_read(struct ds_sock *s, int fd, struct msghdr *m, int flags)
{
	struct {
		struct sock_extended_err ee;
		struct sockaddr_in6 offender;
	} e = {.ee = {.ee_origin = SO_EE_ORIGIN_ZEROCOPY, .ee_code = SO_EE_CODE_ZEROCOPY_COPIED}};
	int domain = AF_INET, saved = errno;
	socklen_t n = sizeof domain;

	if (!ds_zerocopy_done(s) || !take(s, &e.ee.ee_info, &e.ee.ee_data))
		return false;
	if (!m)
		return true;
	if (REAL(getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) < 0)
		errno = saved;
	m->msg_flags = (flags & MSG_CMSG_CLOEXEC) | MSG_ERRQUEUE;
	if (m->msg_name)
		m->msg_namelen = 0;
	if (domain == AF_INET6)
		put_control(m, SOL_IPV6, IPV6_RECVERR, &e, sizeof e.ee + sizeof(struct sockaddr_in6));
	else
		put_control(m, SOL_IP, IP_RECVERR, &e, sizeof e.ee + sizeof(struct sockaddr_in));
	return true;
}

/* Calls that wait for readiness. */
#include "hooks/hooks.h"

#include <errno.h>
#include <limits.h>

static struct timespec *from_ms(struct timespec *t, int ms)
{
	if (ms < 0)
		return NULL;
	*t = (struct timespec){ms / 1000, ms % 1000 * 1000000L};
	return t;
}

static inline bool any_ours(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (fd_word(fds[i].fd) != 0)
			return true;
	return false;
}

EXPORT int poll(struct pollfd *fds, nfds_t n, int ms)
{
	struct timespec t;

	if (!fds || !any_ours(fds, n))
		return REAL(poll)(fds, n, ms);
	return wait_poll(fds, n, from_ms(&t, ms), NULL);
}
ALIAS(__poll, poll);

EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	if (!fds || !any_ours(fds, n) || (timeout && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec > 999999999)))
		return REAL(ppoll)(fds, n, timeout, mask);
	return wait_poll(fds, n, timeout, mask);
}

EXPORT int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t size)
{
	if (size / sizeof *fds < n && REAL(__poll_chk))
		return REAL(__poll_chk)(fds, n, ms, size); /* ends the program */
	return poll(fds, n, ms);
}

EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t size)
{
	if (size / sizeof *fds < n && REAL(__ppoll_chk))
		return REAL(__ppoll_chk)(fds, n, timeout, mask, size);
	return ppoll(fds, n, timeout, mask);
}

static inline bool any_in(const fd_set *s, int n)
{
	for (int fd = 0; s && fd < n; fd += NFDBITS) {
		unsigned long w = (unsigned long)s->fds_bits[fd / NFDBITS];
		for (; w; w &= w - 1)
			if (fd_word(fd + __builtin_ctzl(w)) != 0)
				return true;
	}
	return false;
}

static inline bool select_ours(int n, const fd_set *in, const fd_set *out, const fd_set *except)
{
	return n > 0 && n <= 1 << 20 && (any_in(in, n) || any_in(out, n) || any_in(except, n));
}

EXPORT int select(int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
	struct timespec t, left = {0, 0};

	if (!select_ours(n, in, out, except) || (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0)))
		return REAL(select)(n, in, out, except, timeout);
	if (timeout)
		t = (struct timespec){timeout->tv_sec + timeout->tv_usec / 1000000, timeout->tv_usec % 1000000 * 1000};
	int rc = wait_select(n, in, out, except, timeout ? &t : NULL, NULL, &left);
	if (timeout)
		*timeout = (struct timeval){left.tv_sec, left.tv_nsec / 1000};
	return rc;
}
ALIAS(__select, select);

EXPORT int pselect(int n, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout, const sigset_t *mask)
{
	if (!select_ours(n, in, out, except) || (timeout && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec > 999999999)))
		return REAL(pselect)(n, in, out, except, timeout, mask);
	return wait_select(n, in, out, except, timeout, mask, NULL);
}

/* ---- epoll ---------------------------------------------------------------- */

static int created(int fd)
{
	if (fd >= 0) {
		int saved = errno;
		epi_new(fd);
		errno = saved;
	}
	return fd;
}

EXPORT int epoll_create(int size)
{
	return created(REAL(epoll_create)(size));
}

EXPORT int epoll_create1(int flags)
{
	return created(REAL(epoll_create1)(flags));
}

EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	return ep_ctl(epfd, op, fd, ev);
}

EXPORT int epoll_wait(int epfd, struct epoll_event *ev, int max, int ms)
{
	struct timespec t;
	return ep_wait(epfd, ev, max, from_ms(&t, ms), NULL);
}

EXPORT int epoll_pwait(int epfd, struct epoll_event *ev, int max, int ms, const sigset_t *mask)
{
	struct timespec t;
	return ep_wait(epfd, ev, max, from_ms(&t, ms), mask);
}

EXPORT int epoll_pwait2(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout, const sigset_t *mask)
{
	if (timeout && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec > 999999999)) {
		errno = EINVAL;
		return -1;
	}
	return ep_wait(epfd, ev, max, timeout, mask);
}

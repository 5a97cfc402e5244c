/* Calls that wait for readiness. */
#include "hooks/hooks.h"

#include <errno.h>
#include <limits.h>

/* ms as a time, in *t; negative: NULL, for ever. No lock. */
static struct timespec *from_ms(struct timespec *t, int ms)
{
	if (ms < 0)
		return NULL;
	*t = (struct timespec){ms / 1000, ms % 1000 * 1000000L};
	return t;
}

/* Can the set be read and written, and has it sockets of ours? The kernel handles any other. */
bool poll_ours(struct pollfd *fds, nfds_t n)
{
	if (n > 2 * (nfds_t)fd_tab_size || !ds_writable(fds, n * sizeof *fds))
		return false;
	for (nfds_t i = 0; i < n; i++)
		if (word_waits(fd_word(fds[i].fd)))
			return true;
	return false;
}

/* May the kernel wait for all of fds? w gets the uncounted ones. */
static bool poll_uncounted(struct waits *w, const struct pollfd *fds, nfds_t n)
{
	enum { MANY = 32 };
	bool all = n <= MANY;

	for (nfds_t i = 0, most = all ? n : 0; i < most; i++)
		all &= waits_add(w, fds[i].fd);
	return all;
}

/* poll of a set that has sockets of ours: apart, so that any other goes to the kernel by a jump. */
OURS int poll_set(struct pollfd *fds, nfds_t n, int ms)
{
	struct timespec t;
	WAITS(uncounted);
	bool all = poll_uncounted(&uncounted, fds, n), alone = ds_one_thread();
	if (all && (alone || (ms >= 0 && ms <= CALL_WAIT_MS)))
		return REAL(poll, fds, n, ms);
	if (all) {
		int got = REAL(poll, fds, n, CALL_WAIT_MS);
		if (got != 0)
			return got;
		ms = ms < 0 ? ms : ms - CALL_WAIT_MS;
	}
	if (!alone)
		waits_end(&uncounted);
	return wait_poll(fds, n, from_ms(&t, ms), NULL, &uncounted);
}

EXPORT int poll(struct pollfd *fds, nfds_t n, int ms)
{
	return poll_ours(fds, n) ? poll_set(fds, n, ms) : REAL(poll, fds, n, ms);
}
ALIAS(__poll, poll);

EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	WAITS(uncounted);

	if (!poll_ours(fds, n) || (timeout && !time_fine(timeout)) || !ds_readable(mask, mask ? DS_SIGSET : 0) ||
	    (ds_one_thread() && poll_uncounted(&uncounted, fds, n)))
		return REAL(ppoll, fds, n, timeout, mask);
	return wait_poll(fds, n, timeout, mask, &uncounted);
}

EXPORT int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t size)
{
	if (size / sizeof *fds < n && REAL_FN(__poll_chk))
		return REAL(__poll_chk, fds, n, ms, size); /* ends the program */
	return poll(fds, n, ms);
}

EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t size)
{
	if (size / sizeof *fds < n && REAL_FN(__ppoll_chk))
		return REAL(__ppoll_chk, fds, n, timeout, mask, size);
	return ppoll(fds, n, timeout, mask);
}

/* The kernel looks at whole words. */
static inline bool set_there(fd_set *s, int n)
{
	return !s || ds_writable(s, (size_t)(n + NFDBITS - 1) / NFDBITS * sizeof s->fds_bits[0]);
}

/* As poll_ours. */
static inline bool any_in(fd_set *s, int n)
{
	if (!set_there(s, n))
		return false;
	for (int fd = 0; s && fd < n; fd += NFDBITS) {
		unsigned long w = (unsigned long)s->fds_bits[fd / NFDBITS];
		for (; w; w &= w - 1)
			if (word_waits(fd_word(fd + __builtin_ctzl(w))))
				return true;
	}
	return false;
}

bool select_ours(int n, fd_set *in, fd_set *out, fd_set *except)
{
	return n > 0 && n <= 1 << 20 && (any_in(in, n) || any_in(out, n) || any_in(except, n)) && set_there(in, n) && set_there(out, n) &&
	       set_there(except, n);
}

/* May the kernel wait for all of s? w gets the uncounted ones. */
static bool set_uncounted(struct waits *w, const fd_set *s, int n)
{
	bool all = true;

	for (int fd = 0; s && fd < n; fd += NFDBITS)
		for (unsigned long bits = (unsigned long)s->fds_bits[fd / NFDBITS]; bits; bits &= bits - 1)
			all &= waits_add(w, fd + __builtin_ctzl(bits));
	return all;
}

/* The same of three sets. */
static bool select_uncounted(struct waits *w, int n, const fd_set *in, const fd_set *out, const fd_set *except)
{
	if (!ds_one_thread())
		return false;
	bool all = set_uncounted(w, in, n);
	all &= set_uncounted(w, out, n);
	return set_uncounted(w, except, n) && all;
}

/* As poll_set. */
OURS int select_set(int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
	struct timespec t, left = {0, 0};
	WAITS(uncounted);

	if ((timeout && (!ds_writable(timeout, sizeof *timeout) || timeout->tv_sec < 0 || timeout->tv_usec < 0)) ||
	    select_uncounted(&uncounted, n, in, out, except))
		return REAL(select, n, in, out, except, timeout);
	if (timeout)
		t = (struct timespec){timeout->tv_sec + timeout->tv_usec / 1000000, timeout->tv_usec % 1000000 * 1000};
	int rc = wait_select(n, in, out, except, timeout ? &t : NULL, NULL, &left, &uncounted);
	if (timeout)
		*timeout = (struct timeval){left.tv_sec, left.tv_nsec / 1000};
	return rc;
}

EXPORT int select(int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
	return select_ours(n, in, out, except) ? select_set(n, in, out, except, timeout) : REAL(select, n, in, out, except, timeout);
}
ALIAS(__select, select);

EXPORT int pselect(int n, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout, const sigset_t *mask)
{
	WAITS(uncounted);

	if (!select_ours(n, in, out, except) || (timeout && !time_fine(timeout)) || !ds_readable(mask, mask ? DS_SIGSET : 0) ||
	    select_uncounted(&uncounted, n, in, out, except))
		return REAL(pselect, n, in, out, except, timeout, mask);
	return wait_select(n, in, out, except, timeout, mask, NULL, &uncounted);
}

/* ---- epoll ---------------------------------------------------------------- */

/* Makes the instance of a new epoll descriptor; fd, or -1, is the result. Takes ep_lock. */
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
	return created(REAL(epoll_create, size));
}

EXPORT int epoll_create1(int flags)
{
	return created(REAL(epoll_create1, flags));
}

EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	if (op != EPOLL_CTL_DEL && !ds_readable(ev, sizeof *ev))
		return REAL(epoll_ctl, epfd, op, fd, ev);
	return ep_ctl(epfd, op, fd, ev);
}

/* ep_wait into memory that cannot hold all of max events: they are written one by one, as the
 * kernel does. */
static int wait_bounced(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout, const sigset_t *mask)
{
	struct epoll_event own[16];
	int n = ep_wait(epfd, own, max < 16 ? max : 16, timeout, mask);

	for (int i = 0; i < n; i++) {
		if (!ds_writable(&ev[i], sizeof *ev)) {
			errno = EFAULT;
			return i > 0 ? i : -1;
		}
		ev[i] = own[i];
	}
	return n;
}

/* Passes what the kernel refuses to it, for its error. */
static int wait_refused(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout, const sigset_t *mask)
{
	if (timeout && REAL_FN(epoll_pwait2))
		return REAL(epoll_pwait2, epfd, ev, max, timeout, mask);
	return REAL(epoll_pwait, epfd, ev, max, 0, mask);
}

/* epoll_wait with a time and a mask: checks the arguments as the kernel does. No lock. */
static int wait_events(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout, const sigset_t *mask)
{
	enum { LOTS = 1024 }; /* the next call reports the rest of what is ready */

	if ((timeout && !time_fine(timeout)) || !ds_readable(mask, mask ? DS_SIGSET : 0) || max <= 0 ||
	    (size_t)max > INT_MAX / sizeof *ev || (uintptr_t)ev > DS_USER_END - (size_t)max * sizeof *ev)
		return wait_refused(epfd, ev, max, timeout, mask);
	if (max > LOTS)
		max = LOTS;
	if (!ds_writable(ev, (size_t)max * sizeof *ev))
		return wait_bounced(epfd, ev, max, timeout, mask);
	return ep_wait(epfd, ev, max, timeout, mask);
}

EXPORT int epoll_wait(int epfd, struct epoll_event *ev, int max, int ms)
{
	struct timespec t;
	int n;

	if (ep_none())
		return REAL(epoll_wait, epfd, ev, max, ms);
	if (ep_wait_plain(epfd, ev, max, &ms, &n))
		return n;
	return wait_events(epfd, ev, max, from_ms(&t, ms), NULL);
}

EXPORT int epoll_pwait(int epfd, struct epoll_event *ev, int max, int ms, const sigset_t *mask)
{
	struct timespec t;

	if (ep_none())
		return REAL(epoll_pwait, epfd, ev, max, ms, mask);
	return wait_events(epfd, ev, max, from_ms(&t, ms), mask);
}

EXPORT int epoll_pwait2(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout, const sigset_t *mask)
{
	return wait_events(epfd, ev, max, timeout, mask);
}

/* Is a goroutine that found nothing to read on fd to yield and read again, rather than to sleep? On
 * the thread's own stack. */
int ds_go_yields(int fd) DS_HIDDEN;
int ds_go_yields(int fd)
{
	int saved = errno;
	bool yields;
	DS_MARK(before);

	{
		CALL(k, fd);
		yields = k.c && ds_yields(k.c->life.s);
	}
	errno = saved;
	return yields;
}

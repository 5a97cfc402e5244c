/* Calls that make, name and close sockets; their options are in options.c. */
#include "hooks/dgram.h"
#include "hooks/hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <linux/sockios.h>

/* ---- sockets ------------------------------------------------------------- */

EXPORT int socket(int domain, int type, int protocol)
{
	int fd = REAL(socket, domain, type, protocol);

	if (fd >= 0 && (domain == AF_INET || domain == AF_INET6) && (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM &&
	    (protocol == 0 || protocol == IPPROTO_TCP)) {
		conn_new(fd, CONN_ON_SOCKET, type & SOCK_NONBLOCK ? DS_NONBLOCK_YES : DS_NONBLOCK_NO);
	} else if (fd >= 0 && (domain == AF_INET || domain == AF_INET6) && (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_DGRAM &&
		   (protocol == 0 || protocol == IPPROTO_UDP)) {
		fd_set_dgram(fd, domain, type & SOCK_NONBLOCK ? DS_NONBLOCK_YES : DS_NONBLOCK_NO);
	} else if (fd >= 0 && fd_word(fd) != 0)
		fd_was_closed(fd);
	return fd;
}

/* connect on the UDP socket fd has returned rc. */
static void dgram_connected(int fd, int rc, const struct sockaddr *addr, socklen_t len)
{
	struct ds_dgram *d = rc == 0 ? dgram_get(fd, fd_word(fd)) : NULL;

	if (!d)
		return;
	ds_dg_connected(d, addr, len);
	ds_dg_put(d);
}

/* The program has disconnected fd, which is c: the connection ends, and whatever comes next is
 * plain. */
static void disconnected(struct conn *c, int fd)
{
	ds_life_settle(&c->life, fd);
	if (conn_is(c) != CONN_KNOWN) {
		conn_demote(c, fd);
		return;
	}
	ds_disconnected(c->life.s, fd);
	if (fd_vforked())
		return;
	fd_numbers_lock();
	fd_disconnected(c);
	fd_numbers_unlock();
}

EXPORT int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	int rc = REAL(connect, fd, addr, len);
	int err = errno;

	if (__builtin_expect(word_dgram(fd_word(fd)) != NULL, 0)) {
		dgram_connected(fd, rc, addr, len);
		errno = err;
		return rc;
	}
	if (fd_kind(fd) != FD_CONN) {
		/* A socket that we did not see being made. */
		int protocol = 0, saved = errno;
		socklen_t n = sizeof protocol;
		if ((rc != 0 && err != EINPROGRESS) || fd_word(fd) != 0 || fd_is_sealed() || (addr->sa_family != AF_INET && addr->sa_family != AF_INET6))
			return rc;
		if (REAL(getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) != 0 || protocol != IPPROTO_TCP || !conn_new(fd, CONN_ON_SOCKET, DS_NONBLOCK_UNKNOWN)) {
			errno = saved;
			return rc;
		}
	}
	struct conn *c = conn_peek(fd);
	if (!c)
		return rc;
	if (rc == 0 && addr->sa_family == AF_UNSPEC) {
		disconnected(c, fd);
	} else if (rc == 0 || err == EINPROGRESS || err == EINTR || err == EISCONN) {
		if (ds_life_connect(&c->life, (rc == 0 || err == EINPROGRESS) && ds_may_defer()))
			ds_classify(fd, 0, addr, len);
		if (conn_is(c) != CONN_CONNECTING)
			; /* it can wait */
		else if (rc == 0)
			ds_life_connected(&c->life, fd);
		else if (err == EISCONN)
			conn_completed(c, fd);
	}
	conn_put(c);
	errno = err;
	return rc;
}
ALIAS(__connect, connect);

EXPORT int listen(int fd, int backlog)
{
	int rc = REAL(listen, fd, backlog);

	if (rc == 0 && !fd_listens(fd) && !fd_is_sealed() && !fd_vforked()) {
		int saved = errno;
		if (ds_listen(fd))
			fd_set_listener(fd);
		errno = saved;
	}
	return rc;
}

/* May what the listener fd accepts next stay uncounted? From the kernel's accept on, a handler of a
 * signal finds a connection that the program does not know of yet. If it ends the process, as those
 * of pre-forked workers do, the connection is lost. So what takes time comes before, the broker's
 * greeting above all, or at the next call. */
static bool may_wait(int fd)
{
	if (!ds_may_wait() && fd_listens(fd) && !fd_is_sealed() && !fd_vforked())
		ds_connect_broker();
	return ds_may_wait() || ds_tests_wait();
}

/* fd, or -1, is what accept4 with these flags returned: makes a connection of it, uncounted if that
 * may wait. Keeps errno. */
static int accepted(int fd, int flags, bool wait)
{
	int saved = errno;

	if (fd < 0)
		return fd;
	if (fd_word(fd) != 0)
		fd_was_closed(fd);
	if (!fd_is_stream(fd) && !fd_is_sealed() && !fd_vforked()) {
		ds_classify(fd, 1, NULL, 0);
		struct conn *c = conn_new(fd, CONN_ON_ACCEPT, flags & SOCK_NONBLOCK ? DS_NONBLOCK_YES : DS_NONBLOCK_NO);
		if (c && !wait)
			ds_life_connected(&c->life, fd);
	}
	errno = saved;
	return fd;
}

EXPORT int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	bool wait = may_wait(fd);

	return accepted(REAL(accept4, fd, addr, len, flags), flags, wait);
}

EXPORT int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
	bool wait = may_wait(fd);

	return accepted(REAL(accept, fd, addr, len), 0, wait);
}

EXPORT int shutdown(int fd, int how)
{
	CALL_BY(k, fd, call_uncounted_any);
	if (k.c && how >= SHUT_RD && how <= SHUT_RDWR)
		return ds_shutdown(k.c->life.s, fd, how);
	if (k.early)
		ds_life_shuts(&k.early->life, how);
	int rc = REAL(shutdown, fd, how);
	if (k.early)
		ds_life_has_shut(&k.early->life);
	if (rc == 0 && fd_listens(fd))
		fd_closing(fd);
	else if (rc == 0)
		dg_native(fd, DS_WHY_PROGRAM);
	return rc;
}

/* ---- descriptors ----------------------------------------------------------- */

/* How a descriptor and its word in the table change together: no handler sees one half of that, or
 * leaves it by a jump. */
enum together { ALONE, CRITICAL, NUMBERS };

/* Ends it. */
static void leave_together(enum together *how)
{
	if (*how == CRITICAL)
		ds_critical_end();
	else if (*how == NUMBERS)
		fd_numbers_unlock();
}

/* Begins it. */
static enum together together(enum together how)
{
	if (how == CRITICAL)
		ds_critical_begin();
	else if (how == NUMBERS)
		fd_numbers_lock();
	return how;
}

#define TOGETHER(how) __attribute__((cleanup(leave_together))) enum together together_ = together(how); (void)together_

/* How a duplicate is made of, or in the place of, a descriptor of ours. A child of vfork has
 * numbers of its own. */
static enum together duplicating(void) { return fd_vforked() ? CRITICAL : NUMBERS; }

/* fd, which the table knows, is about to be closed or replaced. */
static void going(int fd)
{
	if (fd_vforked())
		conn_note(fd);
	else
		fd_closing(fd);
}

/* As close, of a descriptor that the table knows. */
static int close_ours(int fd)
{
	TOGETHER(CRITICAL);
	going(fd);
	return REAL(close, fd);
}

EXPORT int close(int fd)
{
	if (__builtin_expect(fd_word(fd) != 0, 0) && fd_settled(fd))
		return close_ours(fd);
	if (fd >= 0 && ds_own_fd(fd)) {
		errno = EBADF;
		return -1;
	}
	return REAL(close, fd);
}
ALIAS(__close, close);

/* newfd, or -1, is what dup of oldfd returned. */
static int dupped(int oldfd, int newfd)
{
	if (newfd < 0)
		return newfd;
	if (fd_word(newfd) != 0)
		fd_was_closed(newfd);
	fd_dup(oldfd, newfd);
	return newfd;
}

/* The same, where newfd may be a duplicate of another socket. */
static int dupped_maybe(int oldfd, int newfd)
{
	uint64_t cookie = newfd < 0 || fd_word(oldfd) == 0 ? 0 : fd_cookie(newfd);

	if (cookie && cookie == fd_cookie(oldfd))
		return dupped(oldfd, newfd);
	if (newfd >= 0 && fd_word(newfd) != 0)
		fd_was_closed(newfd);
	return newfd;
}

/* dup of fd, whose word is 0: newfd, or -1, is the result. It waits for no lock: a program may
 * hold one that its handlers of fork take, while fork holds that of the numbers. Another thread may
 * have given the number fd to a socket of ours meanwhile. */
static int dupped_other(int fd, int newfd)
{
	if (newfd < 0 || (fd_word(fd) | fd_word(newfd)) == 0)
		return newfd;
	TOGETHER(duplicating());
	return dupped_maybe(fd, newfd);
}

EXPORT int dup(int fd)
{
	if (fd_word(fd) == 0)
		return dupped_other(fd, REAL(dup, fd));
	TOGETHER(duplicating());
	return dupped(fd, REAL(dup, fd));
}

/* A copy of target, if it is this process that pidfd names: then both are the same socket. */
EXPORT int pidfd_getfd(int pidfd, int target, unsigned flags)
{
	TOGETHER(fd_word(target) != 0 ? duplicating() : ALONE);
	return dupped_maybe(target, (int)ds_syscall(SYS_pidfd_getfd, pidfd, target, flags));
}

enum { DUP2 = -1 };

/* dup3 of oldfd to newfd, or dup2. */
static int kernel_dup(int oldfd, int newfd, int flags)
{
	return flags == DUP2 ? REAL(dup2, oldfd, newfd) : REAL(dup3, oldfd, newfd, flags);
}

/* May a descriptor have the number fd? */
static bool may_be(int fd)
{
	struct rlimit l;

	return fd >= 0 && (ds_syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &l) != 0 || (rlim_t)fd < l.rlim_cur);
}

/* With the lock of the numbers, where there are threads: dup2 is about to give the number newfd to
 * the connection of oldfd. was: the one that has it. Calls on any other file, or on a connection
 * that is not direct, are the kernel's, by that number: one that has begun, and comes to the kernel
 * after dup2, finds the new one, which has to be on TCP. */
static void demote_onto(int oldfd, int newfd, struct conn *was)
{
	struct conn *c = conn_peek(oldfd);

	if (!c)
		return;
	bool ours = was && conn_is(was) == CONN_KNOWN && ds_direct(was->life.s) == 3;
	if (was != c && !ours && REAL(fcntl, newfd, F_GETFD) >= 0)
		conn_demote(c, oldfd);
	conn_put(c);
}

/* The same of, or to, a descriptor of ours. */
OURS int dup_onto(int oldfd, int newfd, int flags)
{
	struct conn *ends = NULL, *was = NULL;
	int rc;

	if (oldfd == newfd || (flags & ~O_CLOEXEC && flags != DUP2) || !may_be(newfd) || REAL(fcntl, oldfd, F_GETFD) < 0)
		return kernel_dup(oldfd, newfd, flags); /* the kernel answers */
	{
		TOGETHER(duplicating());
		bool changes = !ds_one_thread() && !fd_vforked() && (unsigned)newfd < fd_tab_size;

		if (fd_word(newfd) == 0 && !fd_vforked() && !ds_fd_give_up(newfd)) /* one of the library's own moves away */
			return -1;
		if (changes) {
			was = conn_peek(newfd);
			demote_onto(oldfd, newfd, was);
			ends = fd_changes(newfd);
		} else if (fd_word(newfd) != 0) {
			going(newfd);
		}
		rc = kernel_dup(oldfd, newfd, flags);
		if (rc >= 0)
			fd_dup(oldfd, rc);
		if (changes)
			fd_changed(newfd);
		if (ends || was) /* until conn_put: a jump out of a handler would leave it to nobody */
			ds_critical_begin();
	}
	if (!ends && !was)
		return rc;
	if (was)
		conn_put(was);
	if (ends)
		conn_put(ends);
	ds_critical_end();
	return rc;
}

EXPORT int dup2(int oldfd, int newfd)
{
	if (__builtin_expect((fd_word(oldfd) | fd_word(newfd) | ds_own_fd(newfd)) == 0, 1))
		return REAL(dup2, oldfd, newfd);
	return dup_onto(oldfd, newfd, DUP2);
}
ALIAS(__dup2, dup2);

EXPORT int dup3(int oldfd, int newfd, int flags)
{
	if (__builtin_expect((fd_word(oldfd) | fd_word(newfd) | ds_own_fd(newfd)) == 0, 1))
		return REAL(dup3, oldfd, newfd, flags);
	return dup_onto(oldfd, newfd, flags);
}

/* All descriptors in [first, last] are about to be closed. */
static void range_closing(unsigned first, unsigned last)
{
	for (unsigned fd = first; fd <= last && fd < fd_tab_end; fd++)
		if (fd_word((int)fd) != 0)
			going((int)fd);
}

/* The first number that no descriptor can have. No lock. */
static unsigned table_end(void)
{
	struct rlimit lim;

	if (kernel_getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < TABLE_MAX)
		return (unsigned)lim.rlim_cur;
	return TABLE_MAX;
}

/* Closes [first, last] but the library's own. */
static int range_close(unsigned first, unsigned last, unsigned flags)
{
	unsigned end = table_end(), from = first;

	if (first > last)
		return (int)syscall(SYS_close_range, first, last, flags);
	/* In a child of vfork, too: exec closes them, and until then it needs them (handover.c). */
	for (unsigned fd = first; fd <= last && fd < end + 1024; fd++)
		if (ds_own_fd((int)fd)) {
			if (fd > from && syscall(SYS_close_range, from, fd - 1, flags) != 0)
				return -1;
			from = fd + 1;
		}
	return from > last || from < first ? 0 : (int)syscall(SYS_close_range, from, last, flags);
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	if (flags == 0)
		range_closing(first, last);
	fd_unshare(flags & CLOSE_RANGE_UNSHARE);
	if (flags & ~CLOSE_RANGE_CLOEXEC)
		return (int)syscall(SYS_close_range, first, last, flags); /* a table of its own: CLOSE_RANGE_UNSHARE */
	return range_close(first, last, (unsigned)flags);
}

EXPORT void closefrom(int first)
{
	unsigned from = first < 0 ? 0 : (unsigned)first;

	range_closing(from, ~0u);
	if (range_close(from, ~0u, 0) != 0 && REAL_FN(closefrom))
		REAL(closefrom, first);
}

/* ---- fcntl, ioctl ---------------------------------------------------------- */

/* The flags of fd were set; nonblock, async: O_NONBLOCK, O_ASYNC is one of them. No lock. */
static void flags_changed(int fd, bool nonblock, bool async)
{
	struct conn *c = conn_peek(fd);
	struct ds_dgram *d = dgram_get(fd, fd_word(fd));

	if (d) {
		__atomic_store_n(&d->nonblock, DS_NONBLOCK_UNKNOWN, __ATOMIC_RELAXED);
		ds_dg_put(d);
		if (async)
			dg_native(fd, DS_WHY_UNSUPPORTED_CALL);
		return;
	}
	if (c) {
		ds_life_flags(&c->life, nonblock);
		if (async)
			ds_life_settle(&c->life, fd); /* another thread may be about to make its handle */
		conn_put(c);
	}
	if (!async)
		return;
	CALL_ANY(k, fd);
	if (k.c)
		ds_fall_back(k.c->life.s, fd); /* SIGIO is the kernel's to send */
}

/* fcntl with F_DUPFD or F_DUPFD_CLOEXEC. */
OURS int fcntl_dup(int fd, int cmd, void *arg)
{
	if (fd_word(fd) == 0)
		return dupped_other(fd, REAL(fcntl, fd, cmd, arg));
	TOGETHER(duplicating());
	return dupped(fd, REAL(fcntl, fd, cmd, arg));
}

/* fcntl of a descriptor of ours. */
OURS int fcntl_ours(int fd, int cmd, void *arg)
{
	int rc = REAL(fcntl, fd, cmd, arg);

	if (rc >= 0 && cmd == F_SETFL)
		flags_changed(fd, ((uintptr_t)arg & O_NONBLOCK) != 0, ((uintptr_t)arg & O_ASYNC) != 0);
	return rc;
}

EXPORT int fcntl64(int fd, int cmd, ...)
{
	va_list ap;

	va_start(ap, cmd);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return fcntl_dup(fd, cmd, arg);
	PASS(fd_word(fd), fcntl, fd, cmd, arg);
	return fcntl_ours(fd, cmd, arg);
}
ALIAS(fcntl, fcntl64);
ALIAS(__fcntl, fcntl64);

EXPORT int ioctl(int fd, ds_request request, ...)
{
	va_list ap;

	va_start(ap, request);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	if (__builtin_expect(fd_word(fd) == 0, 1))
		return REAL(ioctl, fd, request, arg);
	if (request == FIONREAD && word_dgram(fd_word(fd)) && ds_writable(arg, sizeof(int))) {
		struct ds_dgram *d = dgram_get(fd, fd_word(fd));
		int size = d ? ds_dg_next_size(d, fd) : -1;
		if (d)
			ds_dg_put(d);
		if (size >= 0) {
			*(int *)arg = size;
			return 0;
		}
	}
	if ((request == FIONREAD || request == SIOCOUTQ) && ds_writable(arg, sizeof(int))) {
		CALL_UNCOUNTED(k, fd, false);
		if (k.c)
			return request == FIONREAD ? ds_fionread(k.c->life.s, fd, arg) : ds_outq(k.c->life.s, fd, arg);
	}
	if (request == SIOCATMARK && ds_writable(arg, sizeof(int))) {
		CALL(k, fd);
		if (k.c)
			return ds_at_mark(k.c->life.s, fd, arg);
	}
	int rc = REAL(ioctl, fd, request, arg);
	if (rc == 0 && (request == FIONBIO || request == FIOASYNC))
		flags_changed(fd, request == FIONBIO && *(int *)arg, request == FIOASYNC && *(int *)arg);
	return rc;
}

EXPORT int sockatmark(int fd)
{
	int at = 0;

	return ioctl(fd, SIOCATMARK, &at) < 0 ? -1 : at;
}

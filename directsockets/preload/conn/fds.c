#include "conn/fds.h"
#include "conn/inner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
	KNOWN = 1 << 20, /* descriptors above are not remembered; programs hardly have so many */
	PART = 512,
};

/* Who holds what: for each number the variable that has it, or fixed. Parts are made when they are
 * needed, and stay. */
static int **holders[KNOWN / PART];
static int fixed; /* stands for a number that cannot change */

/* The entry of fd, or NULL. make: makes its part if it can. No lock. */
static int **entry(int fd, bool make)
{
	if (fd < 0 || fd >= KNOWN)
		return NULL;
	int **part = __atomic_load_n(&holders[fd / PART], __ATOMIC_ACQUIRE), **none = NULL;
	if (!part && make) {
		void *p = REAL(mmap, NULL, PART * sizeof *part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			return NULL;
		part = p;
		if (!__atomic_compare_exchange_n(&holders[fd / PART], &none, part, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			REAL(munmap, p, PART * sizeof *part);
			part = none;
		}
	}
	return part ? &part[fd % PART] : NULL;
}

/* The holder of fd, or NULL. No lock. */
static int *holder_of(int fd)
{
	int **e = entry(fd, false);

	return e ? __atomic_load_n(e, __ATOMIC_RELAXED) : NULL;
}

bool ds_own_fd(int fd) { return holder_of(fd) != NULL; }

unsigned ds_fds_most(void)
{
	struct rlimit r;

	return kernel_getrlimit(RLIMIT_NOFILE, &r) < 0 ? 0 : r.rlim_cur < UINT32_MAX ? (unsigned)r.rlim_cur : UINT32_MAX;
}

/* Where own descriptors begin: beyond what select can name, if there is room. */
static int base(void)
{
	struct rlimit r;

	if (kernel_getrlimit(RLIMIT_NOFILE, &r) < 0)
		return 512;
	if (r.rlim_cur == RLIM_INFINITY || r.rlim_cur > 8192)
		return 4096;
	return (int)(r.rlim_cur - r.rlim_cur / 4);
}

/* Writes down who holds fd; NULL: nobody does any more. No lock. */
static void hold(int fd, int *holder)
{
	int **e = entry(fd, holder != NULL);

	if (e)
		__atomic_store_n(e, holder, __ATOMIC_RELAXED);
}

int ds_fd_keep(int fd, int *holder)
{
	int saved = errno, high = REAL(fcntl, fd, F_DUPFD_CLOEXEC, base());

	if (high >= 0) {
		REAL(close, fd);
		fd = high;
	}
	hold(fd, holder);
	errno = saved;
	return fd;
}

int ds_fd_fix(int fd) { return ds_fd_keep(fd, &fixed); }

bool ds_fd_give_up(int fd)
{
	int *holder = holder_of(fd), saved = errno, to;

	if (!holder)
		return true;
	if (holder == &fixed || !ds_one_thread() || ds_interrupted() || (to = REAL(fcntl, fd, F_DUPFD_CLOEXEC, base())) < 0) {
		errno = EBADF;
		return false;
	}
	hold(to, holder);
	__atomic_store_n(holder, to, __ATOMIC_RELEASE);
	if (ds_above)
		ds_above->moved(fd, to);
	ds_fd_close(fd);
	errno = saved;
	return true;
}

void ds_fd_close(int fd)
{
	int saved = errno;

	hold(fd, NULL);
	REAL(close, fd);
	errno = saved;
}

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

bool ds_fd_no_rights(int fd)
{
	int no = 0, saved = errno;
	bool done = REAL(setsockopt, fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no) == 0;

	errno = saved;
	return done;
}

/* Are there descriptors in the queue of fd, or so much else that they may follow it? */
static bool loaded(int fd)
{
	char buf[256];
	struct iovec v = {buf, sizeof buf};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1}; /* nothing to put them into */
	ssize_t n = ds_syscall(SYS_recvmsg, fd, &m, MSG_PEEK | MSG_DONTWAIT);

	return n == (ssize_t)sizeof buf || (n >= 0 && (m.msg_flags & MSG_CTRUNC));
}

void ds_fd_abandon(int fd)
{
	int saved = errno, p[2], st;

	if (!loaded(fd) || kernel_pipe(p, O_CLOEXEC) < 0) {
		ds_fd_close(fd);
		errno = saved;
		return;
	}
	/* A grandchild has the last copy, and exits: what exit closes does not linger. */
	pid_t pid = (pid_t)ds_syscall(SYS_clone, 0, 0, 0, 0, 0);
	if (pid == 0) {
		if (ds_syscall(SYS_clone, 0, 0, 0, 0, 0) == 0) {
			int low = fd < p[0] ? fd : p[0], high = fd < p[0] ? p[0] : fd;
			char c;
			if (low > 0)
				ds_syscall(SYS_close_range, 0, low - 1, 0);
			if (high > low + 1)
				ds_syscall(SYS_close_range, low + 1, high - 1, 0);
			ds_syscall(SYS_close_range, high + 1, ~0u, 0);
			while (ds_syscall(SYS_read, p[0], &c, 1) < 0 && errno == EINTR)
				;
		}
		ds_syscall(SYS_exit_group, 0);
	}
	while (pid > 0 && ds_syscall(SYS_wait4, pid, &st, __WALL, NULL) < 0 && errno == EINTR)
		;
	ds_fd_close(fd);
	REAL(close, p[0]);
	REAL(close, p[1]);
	errno = saved;
}

#include "conn/fds.h"
#include "conn/inner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
	KNOWN = 1 << 20, /* descriptors above are not remembered; programs hardly have so many */
	PART = 512,
	FEW = 8192, /* a soft limit up to which no number of the program's is taken */
	SHARE = 8,  /* but one in so many, where the hard limit is no higher; and of the address space */
	LARGEST = 8 << 20, /* about what one more segment takes */
};

/* Who holds what: for each number the variable that has it, or fixed. Parts are made when they are
 * needed, and stay. */
static int **holders[KNOWN / PART];
static int fixed; /* stands for a number that cannot change */
static unsigned held;

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
	if (r.rlim_cur == RLIM_INFINITY || r.rlim_cur > FEW)
		return 4096;
	return (int)(r.rlim_cur - r.rlim_cur / 4);
}

/* The soft limit while it is raised, or all 0. Other threads use their numbers as they are then. */
static struct rlimit raised;
static bool raising;

static long set_limit(const struct rlimit *r, struct rlimit *was) { return ds_syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, r, was); }

/* A copy of fd, to be closed on exec, above the soft limit, which the kernel looks at only when it
 * gives a number: so it costs none of those that the program may have. -1: the hard limit, or many
 * numbers, make no room there; or another thread is here, or the call that a signal interrupted. */
static int above_limit(int fd)
{
	struct rlimit r, more, was;
	int high = -1;

	if (__atomic_exchange_n(&raising, true, __ATOMIC_ACQUIRE))
		return -1;
	if (kernel_getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur <= FEW && r.rlim_cur < r.rlim_max) {
		more = (struct rlimit){r.rlim_max < 8 * r.rlim_cur ? r.rlim_max : 8 * r.rlim_cur, r.rlim_max};
		raised = r;
		if (set_limit(&more, NULL) == 0) {
			high = REAL(fcntl, fd, F_DUPFD_CLOEXEC, (int)r.rlim_cur);
			if (set_limit(&r, &was) == 0 && (was.rlim_cur != more.rlim_cur || was.rlim_max != more.rlim_max))
				set_limit(&was, NULL); /* the program has set it meanwhile */
		}
		raised = (struct rlimit){0};
	}
	__atomic_store_n(&raising, false, __ATOMIC_RELEASE);
	return high;
}

/* A copy of fd, to be closed on exec, out of the program's way if that can be. */
static int copy_high(int fd)
{
	int high = above_limit(fd);

	return high >= 0 ? high : REAL(fcntl, fd, F_DUPFD_CLOEXEC, base());
}

void ds_fds_forked(void)
{
	if (!raising)
		return;
	if (raised.rlim_max)
		set_limit(&raised, NULL); /* the thread that would do so is not here */
	raising = false;
}

/* Writes down who holds fd; NULL: nobody does any more. No lock. */
static void hold(int fd, int *holder)
{
	int **e = entry(fd, holder != NULL);

	if (e && !__atomic_exchange_n(e, holder, __ATOMIC_RELAXED) != !holder)
		__atomic_fetch_add(&held, holder ? 1u : -1u, __ATOMIC_RELAXED);
}

bool ds_fds_scarce(void)
{
	struct rlimit r;

	return kernel_getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur <= FEW && r.rlim_cur == r.rlim_max;
}

bool ds_room(bool offers)
{
	unsigned share = offers ? 2 * SHARE : SHARE;
	struct rlimit r;

	if (kernel_getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur != RLIM_INFINITY && ds_mapped() + LARGEST > r.rlim_cur / share)
		return false;
	return !ds_fds_scarce() || __atomic_load_n(&held, __ATOMIC_RELAXED) < ds_fds_most() / share;
}

int ds_fd_keep(int fd, int *holder)
{
	int saved = errno, high = copy_high(fd);

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
	if (holder == &fixed || !ds_one_thread() || ds_interrupted() || (to = copy_high(fd)) < 0) {
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

bool ds_fd_ended(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};
	struct timespec none = {0, 0};
	int saved = errno;
	bool ended = ds_syscall(SYS_ppoll, &p, 1, &none, NULL, 0) > 0;

	errno = saved;
	return ended;
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

/* What segment/real.c takes from the C library: here each function is the system call of its name.
 * */
#include "free/signal.h"
#include "segment/kernel.h"
#include "segment/memory.h"

#include <errno.h>
#include <fcntl.h>

bool ds_real_ready = true;
static char one_thread = 1; /* slot_threads */
const char *ds_single_thread = &one_thread;
DS_LOCAL int ds_thread_marked;

/* The call has the arguments of its function, in the same registers but the fourth. What a function
 * with fewer arguments leaves in the others, the kernel does not read. */
#define SAME(name, number) \
	static long call_##name(long a, long b, long c, long d, long e, long f) { return ds_syscall(number, a, b, c, d, e, f); }
#define CALLS(X) \
	X(socket) X(connect) X(listen) X(accept) X(accept4) X(shutdown) X(getsockopt) X(setsockopt) X(read) X(readv) X(recvfrom) X(recvmsg) \
	X(recvmmsg) X(write) X(writev) X(sendto) X(sendmsg) X(sendmmsg) X(sendfile) X(splice) X(tee) X(vmsplice) X(close) X(dup) X(dup3) \
	X(fcntl) X(ioctl) X(epoll_create1) X(epoll_ctl) X(execve) X(execveat) X(mmap) X(munmap) \
	X(mprotect) X(mremap) X(prctl) X(chroot) X(close_range)
#ifdef SYS_poll
#define OLD_CALLS(X) X(dup2) X(poll) X(select) X(epoll_create) X(epoll_wait)
#else
#define OLD_CALLS(X)
#endif
#define X(name) SAME(name, SYS_##name)
CALLS(X)
OLD_CALLS(X)
#undef X
#ifndef SYS_poll
/* Newer architectures have the newer calls alone. */
static int call_dup2(int from, int to)
{
	if (from == to)
		return ds_syscall(SYS_fcntl, from, F_GETFD) < 0 ? -1 : to;
	return (int)ds_syscall(SYS_dup3, from, to, 0);
}

static int call_poll(struct pollfd *p, nfds_t n, int ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

	return (int)ds_syscall(SYS_ppoll, p, n, ms >= 0 ? &t : NULL, NULL, DS_SIGSET);
}

static int call_select(int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *time)
{
	struct timespec t = {time ? time->tv_sec : 0, time ? time->tv_usec * 1000 : 0};
	int rc = (int)ds_syscall(SYS_pselect6, n, in, out, except, time ? &t : NULL, NULL);

	if (time)
		*time = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
	return rc;
}

static int call_epoll_create(int size)
{
	if (size > 0)
		return (int)ds_syscall(SYS_epoll_create1, 0);
	errno = EINVAL;
	return -1;
}

static int call_epoll_wait(int fd, struct epoll_event *ev, int n, int ms) { return (int)ds_syscall(SYS_epoll_pwait, fd, ev, n, ms, NULL, DS_SIGSET); }
#endif

static ssize_t call_recv(int fd, void *p, size_t n, int flags) { return ds_syscall(SYS_recvfrom, fd, p, n, flags, NULL, NULL); }
static ssize_t call_send(int fd, const void *p, size_t n, int flags) { return ds_syscall(SYS_sendto, fd, p, n, flags, NULL, 0); }
static ssize_t call_preadv2(int fd, const struct iovec *v, int n, off_t at, int flags) { return ds_syscall(SYS_preadv2, fd, v, n, at, 0, flags); }
static ssize_t call_pwritev2(int fd, const struct iovec *v, int n, off_t at, int flags) { return ds_syscall(SYS_pwritev2, fd, v, n, at, 0, flags); }
static ssize_t call_preadv(int fd, const struct iovec *v, int n, off_t at) { return ds_syscall(SYS_preadv, fd, v, n, at, 0); }
static ssize_t call_pwritev(int fd, const struct iovec *v, int n, off_t at) { return ds_syscall(SYS_pwritev, fd, v, n, at, 0); }

/* The kernel writes what is left to the time, its functions do not. */
static int call_ppoll(struct pollfd *p, nfds_t n, const struct timespec *time, const sigset_t *mask)
{
	struct timespec t = time ? *time : (struct timespec){0, 0};

	return (int)ds_syscall(SYS_ppoll, p, n, time ? &t : NULL, mask, DS_SIGSET);
}

static int call_pselect(int n, fd_set *in, fd_set *out, fd_set *except, const struct timespec *time, const sigset_t *mask)
{
	struct timespec t = time ? *time : (struct timespec){0, 0};
	struct {
		const sigset_t *set;
		size_t size;
	} m = {mask, DS_SIGSET};

	return (int)ds_syscall(SYS_pselect6, n, in, out, except, time ? &t : NULL, &m);
}

static int call_epoll_pwait(int fd, struct epoll_event *ev, int n, int ms, const sigset_t *mask) { return (int)ds_syscall(SYS_epoll_pwait, fd, ev, n, ms, mask, DS_SIGSET); }
static int call_epoll_pwait2(int fd, struct epoll_event *ev, int n, const struct timespec *t, const sigset_t *mask)
{
	return (int)ds_syscall(SYS_epoll_pwait2, fd, ev, n, t, mask, DS_SIGSET);
}

static int call_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct kernel_sigaction in, out;

	if (act)
		sigaction_to_kernel(&in, act);
	int rc = (int)ds_syscall(SYS_rt_sigaction, sig, act ? &in : NULL, old ? &out : NULL, DS_SIGSET);
	if (rc == 0 && old)
		sigaction_from_kernel(old, &out);
	return rc;
}

static void call__exit(int status) { ds_syscall(SYS_exit_group, status); }

struct ds_real ds_real = {
#define X(name) .name = (void *)call_##name,
	CALLS(X) OLD_CALLS(X)
#undef X
#ifndef SYS_poll
	.dup2 = call_dup2, .poll = call_poll, .select = call_select, .epoll_create = call_epoll_create, .epoll_wait = call_epoll_wait,
#endif
	.recv = call_recv, .send = call_send, .preadv2 = call_preadv2, .pwritev2 = call_pwritev2, .preadv = call_preadv, .pwritev = call_pwritev,
	.ppoll = call_ppoll, .pselect = call_pselect, .epoll_pwait = call_epoll_pwait, .epoll_pwait2 = call_epoll_pwait2,
	.sigaction = call_sigaction, ._exit = call__exit, .syscall = ds_kernel_call,
};

void slot_threads(void) { __atomic_store_n(&one_thread, 0, __ATOMIC_RELAXED); }
void ds_real_init(void) {}
void *ds_next(const char *name) { return (void)name, NULL; }
const char *ds_own_path(void) { return NULL; } /* no program has this library by LD_PRELOAD */

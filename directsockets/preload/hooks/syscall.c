/* syscall(): passes raw system calls to the hooks of the same name. A call that the hook would pass
 * to the C library stays raw, since the C library reads some arguments before the kernel does. */
#include "hooks/made.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define P(i) ((void *)a[i])
#define IS(call) ((*rc = (call)), true)

/* A set of signals and its size, the last arguments of a call that waits. */
static inline bool mask_fine(const sigset_t *mask, size_t size) { return !mask || (size == DS_SIGSET && ds_readable(mask, DS_SIGSET)); }

/* Writes to time, which may be NULL, what is left until the deadline, as the kernel's own calls do.
 * */
static void time_left(struct timespec *time, const struct timespec *deadline)
{
	struct timespec left = {0, 0};

	if (!time || !ds_writable(time, sizeof *time))
		return;
	deadline_left(deadline, &left);
	*time = left;
}

/* ppoll with the kernel's own form of arguments. */
static bool raw_ppoll(const long a[6], long *rc)
{
	if (!poll_ours(P(0), (nfds_t)a[1]) || !mask_fine(P(3), (size_t)a[4]) || (P(2) && !time_fine(P(2))))
		return false;
	struct timespec deadline, *time = P(2);
	if (time)
		deadline_set(&deadline, time);
	*rc = ppoll(P(0), (nfds_t)a[1], time, P(3));
	time_left(time, &deadline);
	return true;
}

/* pselect with the kernel's own form of arguments. */
static bool raw_pselect(const long a[6], long *rc)
{
	const struct {
		const sigset_t *set;
		size_t size;
	} *m = P(5);

	if (!select_ours((int)a[0], P(1), P(2), P(3)) || (P(4) && !time_fine(P(4))) ||
	    (m && (!ds_readable(m, sizeof *m) || !mask_fine(m->set, m->size))))
		return false;
	struct timespec deadline, *time = P(4);
	if (time)
		deadline_set(&deadline, time);
	*rc = pselect((int)a[0], P(1), P(2), P(3), time, m ? m->set : NULL);
	time_left(time, &deadline);
	return true;
}

#ifdef SYS_select
/* A time that cannot be written back is no error to the kernel. */
static bool raw_select(const long a[6], long *rc)
{
	struct timeval t, *time = P(4);

	if (!select_ours((int)a[0], P(1), P(2), P(3)) || (time && !ds_readable(time, sizeof *time)))
		return false;
	if (time && !ds_writable(time, sizeof *time)) {
		t = *time;
		time = &t;
	}
	return IS(select((int)a[0], P(1), P(2), P(3), time));
}
#endif

#define RAW() REAL(syscall, nr, a[0], a[1], a[2], a[3], a[4], a[5])

/* Calls that take memory away, or make it executable, as in hooks/memory.c. They do not call the
 * functions of these names: a program may have patched those with jumps to its own code, which ends
 * in these very calls (UCX, of MPI). */
static long memory(long nr, const long a[6])
{
	enum { RW = PROT_READ | PROT_WRITE };
	bool fixed = a[3] & (nr == SYS_mremap ? MREMAP_FIXED : MAP_FIXED), all = (a[2] & RW) == RW;
	long rc = RAW();

	if (nr == SYS_munmap || nr == SYS_mremap || (nr == SYS_mprotect && !all))
		ds_memory_gone(P(0), (size_t)a[1]);
	if (nr == SYS_mremap && fixed)
		ds_memory_gone(P(4), (size_t)a[2]);
	if (nr == SYS_mmap && rc != -1 && (fixed || !all))
		ds_memory_gone((void *)rc, (size_t)a[1]);
	if (nr == SYS_mprotect && rc == 0)
		code_made(P(0), (size_t)a[1], (int)a[2]);
	if (nr == SYS_mmap && rc != -1)
		code_mapped((void *)rc, (size_t)a[1], (int)a[2], (int)a[3]);
	return rc;
}

/* One table, from the number to the hook of the call's name. */
bool every_call(long nr, const long a[6], long *rc)
{
	int fd = (int)a[0], n = (int)a[2]; /* of vectors: the kernel, too, looks at 32 bits of it */

	switch (nr) {
	/* what moves bytes */
	case SYS_read: return IS(read(fd, P(1), (size_t)a[2]));
	case SYS_write: return IS(write(fd, P(1), (size_t)a[2]));
	case SYS_readv: return IS(readv(fd, P(1), n));
	case SYS_writev: return IS(writev(fd, P(1), n));
	case SYS_preadv2: return IS(preadv2(fd, P(1), n, (off_t)a[3], (int)a[5]));
	case SYS_pwritev2: return IS(pwritev2(fd, P(1), n, (off_t)a[3], (int)a[5]));
	case SYS_recvfrom: return IS(recvfrom(fd, P(1), (size_t)a[2], (int)a[3], P(4), P(5)));
	case SYS_sendto: return IS(sendto(fd, P(1), (size_t)a[2], (int)a[3], P(4), (socklen_t)a[5]));
	case SYS_recvmsg: return IS(recvmsg(fd, P(1), (int)a[2]));
	case SYS_sendmsg: return IS(sendmsg(fd, P(1), (int)a[2]));
	case SYS_recvmmsg: return IS(recvmmsg(fd, P(1), (unsigned)a[2], (int)a[3], P(4)));
	case SYS_sendmmsg: return IS(sendmmsg(fd, P(1), (unsigned)a[2], (int)a[3]));
	case SYS_sendfile: return IS(sendfile(fd, (int)a[1], P(2), (size_t)a[3]));
	case SYS_splice: return IS(splice(fd, P(1), (int)a[2], P(3), (size_t)a[4], (unsigned)a[5]));
	/* what waits */
#ifdef SYS_poll
	case SYS_poll: return poll_ours(P(0), (nfds_t)a[1]) && IS(poll(P(0), (nfds_t)a[1], (int)a[2]));
	case SYS_select: return raw_select(a, rc);
	case SYS_epoll_create: return IS(epoll_create(fd));
	case SYS_epoll_wait: return IS(epoll_wait(fd, P(1), (int)a[2], (int)a[3]));
#endif
	case SYS_ppoll: return raw_ppoll(a, rc);
	case SYS_pselect6: return raw_pselect(a, rc);
	case SYS_epoll_create1: return IS(epoll_create1(fd));
	case SYS_epoll_ctl: return IS(epoll_ctl(fd, (int)a[1], (int)a[2], P(3)));
	case SYS_epoll_pwait:
		return mask_fine(P(4), (size_t)a[5]) && IS(epoll_pwait(fd, P(1), (int)a[2], (int)a[3], P(4)));
#ifdef SYS_epoll_pwait2
	case SYS_epoll_pwait2: return mask_fine(P(4), (size_t)a[5]) && IS(epoll_pwait2(fd, P(1), (int)a[2], P(3), P(4)));
#endif
	/* sockets */
	case SYS_socket: return IS(socket(fd, (int)a[1], (int)a[2]));
	case SYS_connect: return IS(connect(fd, P(1), (socklen_t)a[2]));
	case SYS_listen: return IS(listen(fd, (int)a[1]));
	case SYS_accept: return IS(accept(fd, P(1), P(2)));
	case SYS_accept4: return IS(accept4(fd, P(1), P(2), (int)a[3]));
	case SYS_shutdown: return IS(shutdown(fd, (int)a[1]));
	case SYS_getsockopt: return IS(getsockopt(fd, (int)a[1], (int)a[2], P(3), P(4)));
	case SYS_setsockopt: return IS(setsockopt(fd, (int)a[1], (int)a[2], P(3), (socklen_t)a[4]));
	/* descriptors */
	case SYS_close: return IS(close(fd));
	case SYS_dup: return IS(dup(fd));
#ifdef SYS_dup2
	case SYS_dup2: return IS(dup2(fd, (int)a[1]));
#endif
	case SYS_dup3: return IS(dup3(fd, (int)a[1], (int)a[2]));
	case SYS_fcntl: return IS(fcntl(fd, (int)a[1], P(2)));
	case SYS_ioctl: return IS(ioctl(fd, (unsigned long)a[1], P(2)));
	case SYS_pidfd_getfd: return IS(pidfd_getfd(fd, (int)a[1], (unsigned)a[2]));
	case SYS_close_range: return IS(close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]));
	/* memory */
	case SYS_mmap: case SYS_munmap: case SYS_mprotect: case SYS_mremap: return IS(memory(nr, a));
	/* processes */
#ifdef SYS_fork
	case SYS_fork: case SYS_vfork:
#endif
	case SYS_clone: case SYS_clone3: return fork_call(nr, a, rc);
	case SYS_execve: return IS(execve(P(0), P(1), P(2)));
	case SYS_execveat: inherit_demote(NULL); break;
	case SYS_unshare: return IS(unshare((int)a[0]));
	case SYS_chroot: return IS(chroot(P(0)));
	case SYS_prctl: return IS(prctl((int)a[0], a[1], a[2], a[3], a[4]));
	case SYS_seccomp:
		if (a[0] == SECCOMP_SET_MODE_STRICT || (a[0] == SECCOMP_SET_MODE_FILTER && a[2]))
			fd_seal();
		break;
	case SYS_io_submit: aio_submitted(a[1], P(2)); break;
	case SYS_exit_group: fd_leave(true); break;
	case SYS_io_uring_setup: errno = ENOSYS; return IS(-1);
	}
	return false;
}

bool hooked_call(long nr, const long a[6], long *rc)
{
	/* The C library asks for names by UDP sockets of its own. */
	if (nr == SYS_socket && (a[1] & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_DGRAM)
		return false;
	return every_call(nr, a, rc);
}

#undef syscall
EXPORT long syscall(long nr, ...)
{
	va_list ap;
	long a[6], rc;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	return every_call(nr, a, &rc) ? rc : RAW();
}

/* Under clang's MemorySanitizer (ctest/, make msan): it sees what the kernel writes for a function
 * of the C library that the test links, and nothing of what real.h looks up, nor of a system call.
 * So the real functions are the linked ones there, and what a system call has written is told. */
#ifndef DS_MSAN_H
#define DS_MSAN_H

#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#define DS_MSAN 1

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

void __msan_unpoison(const volatile void *p, size_t n);
void __msan_unpoison_param(size_t n);

/* The kernel has received n bytes into m. */
static inline void ds_msan_received(const struct msghdr *m, size_t n)
{
	for (size_t i = 0; i < m->msg_iovlen && n; i++) {
		size_t len = n < m->msg_iov[i].iov_len ? n : m->msg_iov[i].iov_len;

		__msan_unpoison(m->msg_iov[i].iov_base, len);
		n -= len;
	}
	__msan_unpoison(m, sizeof *m);
	if (m->msg_name)
		__msan_unpoison(m->msg_name, m->msg_namelen);
	if (m->msg_control)
		__msan_unpoison(m->msg_control, m->msg_controllen);
}

/* syscall(2). Arguments that the call does not have are read and passed on, as there. */
__attribute__((no_sanitize("memory"))) static inline long ds_msan_syscall(long number, ...)
{
	long a[6], r;
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	__msan_unpoison_param(7);
	r = (syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (r < 0)
		return r;
	switch (number) {
	case SYS_read:
	case SYS_getdents64:
		__msan_unpoison((void *)a[1], (size_t)r);
		break;
	case SYS_getrandom:
		__msan_unpoison((void *)a[0], (size_t)r);
		break;
	case SYS_recvfrom:
		__msan_unpoison((void *)a[1], (size_t)r < (size_t)a[2] ? (size_t)r : (size_t)a[2]); /* MSG_TRUNC */
		if (a[4] && a[5])
			__msan_unpoison((void *)a[4], *(socklen_t *)a[5]);
		break;
	case SYS_pread64:
	case SYS_fstat:
	case SYS_statfs:
	case SYS_fstatfs:
		__msan_unpoison((void *)a[1], number == SYS_pread64 ? (size_t)r : number == SYS_fstat ? sizeof(struct stat) : sizeof(struct statfs));
		break;
	case SYS_newfstatat:
		__msan_unpoison((void *)a[2], sizeof(struct stat));
		break;
	case SYS_readlinkat:
		__msan_unpoison((void *)a[2], (size_t)r);
		break;
	case SYS_getsockname:
	case SYS_getpeername:
		__msan_unpoison((void *)a[1], *(socklen_t *)a[2]);
		break;
	case SYS_pipe2:
		__msan_unpoison((void *)a[0], 2 * sizeof(int));
		break;
	case SYS_socketpair:
		__msan_unpoison((void *)a[3], 2 * sizeof(int));
		break;
	case SYS_prlimit64:
		__msan_unpoison((void *)a[3], sizeof(struct rlimit));
		break;
	case SYS_recvmsg:
		ds_msan_received((void *)a[1], (size_t)r);
		break;
	case SYS_ppoll:
		__msan_unpoison((void *)a[0], (size_t)a[1] * sizeof(struct pollfd));
		break;
	case SYS_wait4:
		if (a[1])
			__msan_unpoison((void *)a[1], sizeof(int));
		if (a[3])
			__msan_unpoison((void *)a[3], sizeof(struct rusage));
	}
	return r;
}
#endif
#endif

#endif

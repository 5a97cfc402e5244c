#include "segment/real.h"

#include <errno.h>
#include <sys/syscall.h>

struct ds_real ds_real;
bool ds_real_ready;

#ifndef __GLIBC__
/* The calls preadv2 and pwritev2, which musl has since 1.2.5. No lock. */
static ssize_t kernel_preadv2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	return ds_syscall(SYS_preadv2, fd, iov, n, off, 0, flags);
}

/* See kernel_preadv2. */
static ssize_t kernel_pwritev2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	return ds_syscall(SYS_pwritev2, fd, iov, n, off, 0, flags);
}
#endif

/* Threads that come here at once store the same values, while others read them. */
static void found(void **at, void *function)
{
	if (function)
		__atomic_store_n(at, function, __ATOMIC_RELAXED);
}

void ds_real_init(void)
{
	int saved = errno;

#define X(result, name, args) found((void **)(void *)&ds_real.name, ds_next(#name));
	DS_REAL(X) DS_REAL_OPTIONAL(X)
#undef X
#ifndef __GLIBC__
	if (!REAL_NOW(preadv2))
		found((void **)(void *)&ds_real.preadv2, (void *)(uintptr_t)kernel_preadv2);
	if (!REAL_NOW(pwritev2))
		found((void **)(void *)&ds_real.pwritev2, (void *)(uintptr_t)kernel_pwritev2);
#endif
	__atomic_store_n(&ds_real_ready, true, __ATOMIC_RELEASE);
	errno = saved;
}

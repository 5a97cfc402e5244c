#include "segment/real.h"

#include <errno.h>
#include <sys/syscall.h>

DS_START_DATA struct ds_real ds_real;
DS_START_DATA bool ds_real_ready;
DS_START_DATA const char *ds_single_thread = "";
DS_LOCAL int ds_thread_marked;
extern char __libc_single_threaded __attribute__((weak)); /* not musl's */

/* The linker puts what is written right behind the last of what is only read, at the next page, but
 * at the place within it where that ended. This section is the last one, and ends at the begin of a
 * page: so what the dynamic linker writes and DS_START_DATA share a page, whatever lies before. */
__asm__(".pushsection .exception_ranges, \"a\"\n\t.p2align 12\n\t.byte 0\n\t.popsection");

/* ---- the C library's functions ----------------------------------------------------- */

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

DS_START void ds_real_init(void)
{
#define X(result, name, args) #name "\0"
	static const char names[] = DS_REAL(X) DS_REAL_OPTIONAL(X);
#undef X
	int saved = errno;

	_Static_assert(sizeof ds_real <= DS_NEXT_MOST * sizeof(void *), "too many functions");
	/* Threads that come here at once store the same values, while others read them. */
	ds_next_all(names, (void **)(void *)&ds_real, sizeof ds_real / sizeof(void *));
#ifndef __GLIBC__
	if (!REAL_NOW(preadv2))
		__atomic_store_n(&ds_real.preadv2, kernel_preadv2, __ATOMIC_RELAXED);
	if (!REAL_NOW(pwritev2))
		__atomic_store_n(&ds_real.pwritev2, kernel_pwritev2, __ATOMIC_RELAXED);
#endif
	if (&__libc_single_threaded)
		__atomic_store_n(&ds_single_thread, &__libc_single_threaded, __ATOMIC_RELAXED);
	__atomic_store_n(&ds_real_ready, true, __ATOMIC_RELEASE);
	errno = saved;
}

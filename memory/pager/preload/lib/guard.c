/* madvise and process_madvise, for guards (MADV_GUARD_INSTALL) before memory that is elsewhere. The
 * kernel drops the pages that are here, and does not tell the pager: behind the guard the others
 * would come back, where the program is promised zeros. So the pager is told by MADV_DONTNEED,
 * which takes no guard away and returns when the pager has read of it. A page that the pager gave
 * until then may have taken the place of its guard: the guard is installed a second time. */
#include "guard.h"
#include "raw.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/uio.h>

#define GUARD_INSTALL 102 /* MADV_GUARD_INSTALL, Linux 6.13 */

/* The next library's functions, or the C library's. NULL: this library has not begun yet, or there
 * is none. */
static int (*next_madvise)(void *, size_t, int);
static ssize_t (*next_process_madvise)(int, const struct iovec *, size_t, int, unsigned);

__attribute__((constructor)) static void find_next(void)
{
	*(void **)(void *)&next_madvise = dlsym(RTLD_NEXT, "madvise");
	*(void **)(void *)&next_process_madvise = dlsym(RTLD_NEXT, "process_madvise");
}

/* Has the pager forget what is behind guards that have just been installed. */
static void forget(long at, long n)
{
	PG_CALL(SYS_madvise, at, n, MADV_DONTNEED, 0);
	PG_CALL(SYS_madvise, at, n, GUARD_INSTALL, 0);
}

/* ENOMEM says that there are holes: what is between them has its guards. */
static void guarded(long at, long n, long advice, long result)
{
	if (advice == GUARD_INSTALL && (result == 0 || result == -ENOMEM))
		forget(at, n);
}

/* The kernel takes guards only for the memory of the caller itself. */
static void guarded_all(const struct iovec *parts, long count, long advice, long result)
{
	for (long i = 0; advice == GUARD_INSTALL && i < count && result > 0; i++) {
		forget((long)parts[i].iov_base, (long)parts[i].iov_len);
		result -= (long)parts[i].iov_len;
	}
}

bool pg_advises(long nr) { return nr == SYS_madvise || nr == SYS_process_madvise; }

long pg_advise(long nr, const long a[6])
{
	long result = pg_syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);

	if (nr == SYS_madvise)
		guarded(a[0], a[1], a[2], result);
	else
		guarded_all((const struct iovec *)a[1], a[2], a[3], result);
	return result;
}

static long with_errno(long result)
{
	if (result >= 0)
		return result;
	errno = (int)-result;
	return -1;
}

__attribute__((visibility("default"))) int madvise(void *at, size_t n, int advice)
{
	if (advice != GUARD_INSTALL && next_madvise)
		return next_madvise(at, n, advice);
	return (int)with_errno(pg_advise(SYS_madvise, (const long[6]){(long)at, (long)n, advice}));
}

__attribute__((visibility("default"))) ssize_t process_madvise(int pidfd, const struct iovec *parts, size_t count, int advice, unsigned flags)
{
	if (advice != GUARD_INSTALL && next_process_madvise)
		return next_process_madvise(pidfd, parts, count, advice, flags);
	return with_errno(pg_advise(SYS_process_madvise, (const long[6]){pidfd, (long)parts, (long)count, advice, (long)flags}));
}

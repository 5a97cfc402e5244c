/* syscall, for futex(2) on memory that is elsewhere. Where the kernel changes a word itself
 * (FUTEX_WAKE_OP, and locks with priority inheritance) it does not wait for the pager, and says
 * EFAULT. Then the pages of both words are brought here, and the call is made again. Advice on
 * memory goes to guard.c. */
#include "guard.h"
#include "raw.h"
#include "wire.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdbool.h>

#define POPULATE_WRITE 23 /* MADV_POPULATE_WRITE, Linux 5.14 */
#define LOCK_PI2 13       /* FUTEX_LOCK_PI2, Linux 5.14 */

enum { TRIES = 64 }; /* a page may leave before the call is made again, but not for ever */

/* The next library's syscall, or the C library's. NULL: this library has not begun yet. */
static long (*next_syscall)(long, ...);

__attribute__((constructor)) static void find_next(void)
{
	*(void **)(void *)&next_syscall = dlsym(RTLD_NEXT, "syscall");
}

/* Says whether the kernel changes a word of a call itself. */
static bool changes_word(long op)
{
	switch (op & FUTEX_CMD_MASK) {
	case FUTEX_WAKE_OP:
	case FUTEX_LOCK_PI:
	case LOCK_PI2:
	case FUTEX_TRYLOCK_PI:
	case FUTEX_UNLOCK_PI:
	case FUTEX_WAIT_REQUEUE_PI:
	case FUTEX_CMP_REQUEUE_PI:
		return true;
	}
	return false;
}

/* Says whether a call has a second word. */
static bool has_second(long op)
{
	return (op & FUTEX_CMD_MASK) == FUTEX_WAKE_OP || (op & FUTEX_CMD_MASK) == FUTEX_WAIT_REQUEUE_PI || (op & FUTEX_CMD_MASK) == FUTEX_CMP_REQUEUE_PI;
}

/* Brings the page of a word. Returns true if it is there, and may be written. The kernel looks:
 * what is no memory is an error and no signal. */
static bool bring(long word)
{
	return PG_CALL(SYS_madvise, word & -PG_PAGE, PG_PAGE, POPULATE_WRITE, 0) == 0;
}

static long futex(const long a[6])
{
	for (int i = 0;; i++) {
		long result = pg_syscall(SYS_futex, a[0], a[1], a[2], a[3], a[4], a[5]);

		if (result != -EFAULT || i == TRIES || !changes_word(a[1]))
			return result;
		if (!bring(a[0]) || (has_second(a[1]) && !bring(a[4])))
			return result;
	}
}

__attribute__((visibility("default"))) long syscall(long nr, ...)
{
	va_list rest;
	long a[6], result;

	va_start(rest, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(rest, long);
	va_end(rest);
	if (nr == SYS_futex)
		result = futex(a);
	else if (pg_advises(nr))
		result = pg_advise(nr, a);
	else if (next_syscall)
		return next_syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	else
		result = pg_syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (result < 0 && result >= -4095) {
		errno = (int)-result;
		return -1;
	}
	return result;
}

#include "segment/memory.h"
#include "segment/segment.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

enum {
	PAGE = 1 << DS_PAGE_SHIFT,
	RUN = 64,   /* pages that are asked for at a time */
	LOWEST = 1, /* no program has page 0 */
};

uint64_t ds_pages[DS_PAGE_SETS][2];

#define GET(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define SET(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)

/* Remembers that the page is good, as the first of its set. */
static void remember(uintptr_t page, bool write)
{
	uint64_t *set = ds_pages[page % DS_PAGE_SETS], word = (uint64_t)page << 2 | (write ? 3 : 1), old = GET(&set[0]);

	if (old >> 2 != page)
		SET(&set[1], old);
	else
		word |= old & 2;
	SET(&set[0], word);
}

/* Has the kernel touch a word of the page that begins at a (not the first one: a NULL set is not
 * read), by calls that do nothing else: rt_sigprocmask copies its set before it rejects the
 * operation, and FUTEX_WAKE_OP adds 0 to a word that nobody waits for. */
static bool touch(uintptr_t a, bool write)
{
	static uint32_t nobody;

	if (write)
		return ds_syscall(SYS_futex, &nobody, FUTEX_WAKE_OP_PRIVATE, 0, 0, a + 8, FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_LT, -2048)) >= 0 ||
		       errno != EFAULT;
	return ds_syscall(SYS_rt_sigprocmask, -1, a + 8, NULL, DS_SIGSET) >= 0 || errno != EFAULT;
}

/* Are the n pages from page on good? */
static bool ask(uintptr_t page, size_t n, bool write)
{
	uintptr_t a = page << DS_PAGE_SHIFT;

	if (ds_syscall(SYS_madvise, a, n << DS_PAGE_SHIFT, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) < 0)
		for (size_t i = 0; i < n; i++)
			if (!touch(a + i * PAGE, write))
				return false;
	for (size_t i = 0; i < n; i++)
		remember(page + i, write);
	return true;
}

static bool no_calls; /* the kernel is not to be asked */

void ds_memory_trust(void) { __atomic_store_n(&no_calls, true, __ATOMIC_RELAXED); }

/* Asks for the pages from page to end that are not known. Keeps errno. */
static __attribute__((noinline, cold)) bool ask_for(uintptr_t page, uintptr_t end, bool write)
{
	int saved = errno;
	bool good = true;

	if (GET(&no_calls))
		return page >= LOWEST;

	while (good && page < end) {
		size_t n = 0;

		while (n < RUN && page + n < end && !ds_page_known(page + n, write))
			n++;
		good = !n || ask(page, n, write);
		page += n ? n : 1;
	}
	errno = saved;
	return good;
}

bool ds_touch_slow(uintptr_t a, uintptr_t last, bool write)
{
	uintptr_t end = (last >> DS_PAGE_SHIFT) + 1;

	for (uintptr_t page = a >> DS_PAGE_SHIFT; page < end; page++)
		if (__builtin_expect(!ds_page_known(page, write), 0))
			return ask_for(page, end, write);
	return last >= a;
}

void ds_memory_gone(const void *p, size_t n)
{
	uintptr_t a = (uintptr_t)p, first = a >> DS_PAGE_SHIFT, last = (a + n - 1) >> DS_PAGE_SHIFT;

	if (!n || a + n - 1 < a)
		return;
	/* A page can only be in its own set, so a long range needs one look at each. */
	uintptr_t sets = last - first < DS_PAGE_SETS ? last - first + 1 : DS_PAGE_SETS;
	for (uintptr_t i = 0; i < sets; i++) {
		uint64_t *set = ds_pages[(first + i) % DS_PAGE_SETS];
		for (int way = 0; way < 2; way++) {
			uint64_t page = GET(&set[way]) >> 2;
			if (page >= first && page <= last)
				SET(&set[way], 0);
		}
	}
}

int ds_truncate(int fd, size_t size)
{
	struct rlimit r;

	/* To the kernel this is a file: beyond the limit for files, ftruncate would kill the
	 * program (SIGXFSZ). */
	if (kernel_getrlimit(RLIMIT_FSIZE, &r) == 0 && r.rlim_cur < size) {
		errno = EFBIG;
		return -1;
	}
	return kernel_ftruncate(fd, (off_t)size);
}

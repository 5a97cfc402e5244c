/* Whether memory of the program is mapped. The kernel answers a bad pointer with EFAULT, so this
 * library must too, without a system call for each message: pages found good are remembered, by
 * number, for the whole process.
 *
 *   ds_touchable ── known page ─▶ true
 *        └─ else ds_touch_slow: madvise(MADV_POPULATE_x) for all at once ─▶ remembered, true
 *                └─ it fails: the kernel touches a word of each page for us ─▶ true, or false: EFAULT
 *
 * hooks/memory.c calls ds_memory_gone when the program unmaps pages. It does not see what the C
 * library unmaps by itself (free of a large block): a use after free for which the kernel returns
 * EFAULT may be a SIGSEGV here.
 */
#ifndef DS_MEMORY_H
#define DS_MEMORY_H

#include "segment/real.h"

#include <stddef.h>
#include <stdint.h>

/* The kernel's MAX_RW_COUNT: bytes that one call moves at most. Addresses of programs end at
 * DS_USER_END. */
#define DS_MAX_RW ((size_t)0x7ffff000)
#if defined(__x86_64__)
#define DS_USER_END ((size_t)0x7ffffffff000)
#else
#define DS_USER_END ((size_t)1 << 55)
#endif

enum { DS_SIGSET = 8 }; /* bytes of a set of signals, to the kernel */

enum { DS_PAGE_SHIFT = 12, DS_PAGE_SETS = 512 }; /* sets of two pages each */

/* page << 2 | writable << 1 | 1; 0: none. Relaxed atomics: the words are independent. */
extern uint64_t ds_pages[DS_PAGE_SETS][2] DS_HIDDEN;

/* The slow half of ds_touchable: asks the kernel; keeps errno. */
bool ds_touch_slow(uintptr_t a, uintptr_t last, bool write) DS_HIDDEN;

/* The n bytes at p have been unmapped, or lost a right. */
void ds_memory_gone(const void *p, size_t n) DS_HIDDEN;

/* From now on the kernel is asked no more, and pages that are not known count as good: this process
 * is about to restrict its system calls. */
void ds_memory_trust(void) DS_HIDDEN;

static inline bool ds_page_known(uintptr_t page, bool write)
{
	const uint64_t *set = ds_pages[page % DS_PAGE_SETS];
	uint64_t want = (uint64_t)page << 2 | 3, most = write ? 0 : 2;

	return (__atomic_load_n(&set[0], __ATOMIC_RELAXED) | most) == want || (__atomic_load_n(&set[1], __ATOMIC_RELAXED) | most) == want;
}

/* True if the n bytes at p can be read or, with write, read and written. Any thread, no lock; keeps
 * errno. */
static inline bool ds_touchable(const void *p, size_t n, bool write)
{
	uintptr_t a = (uintptr_t)p, page = a >> DS_PAGE_SHIFT, last = a + n - 1;
	uint64_t word = __atomic_load_n(&ds_pages[page % DS_PAGE_SETS][0], __ATOMIC_RELAXED) | (write ? 0 : 2);

	if (__builtin_expect(last >> DS_PAGE_SHIFT == page && word == ((uint64_t)page << 2 | 3), 1))
		return true;
	return !n || ds_touch_slow(a, last, write);
}

static inline bool ds_readable(const void *p, size_t n) { return ds_touchable(p, n, false); }
static inline bool ds_writable(const void *p, size_t n) { return ds_touchable(p, n, true); }

#endif

/* mremap, for memory of which the pager has a part. The kernel sees areas where the program has
 * one: what is registered with the pager never merges with what was not when it was first written
 * to. The kernel moves several areas by one call only if none of them is registered, and may have
 * moved some of them when it finds one that is. So each area is moved by itself here; if one cannot
 * be, those before it are moved back. */
#include "raw.h"
#include "wire.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

/* What is to be moved, in whole pages. */
struct remap {
	uint64_t from, old_size, new_size, to;
	int flags;
};

/* The next library's mremap, which may have something of its own to do, or the C library's. NULL:
 * this library has not begun yet. */
static void *(*next_mremap)(void *, size_t, size_t, int, ...);

__attribute__((constructor)) static void find_next(void)
{
	*(void **)(void *)&next_mremap = dlsym(RTLD_NEXT, "mremap");
}

static long kernel_mremap(uint64_t from, uint64_t old_size, uint64_t new_size, int flags, uint64_t to)
{
	if (!next_mremap)
		return pg_syscall(SYS_mremap, (long)from, (long)old_size, (long)new_size, flags, (long)to, 0);
	int saved = errno;
	void *result = next_mremap((void *)from, old_size, new_size, flags, (void *)to);

	if (result != MAP_FAILED)
		return (long)result;
	long error = -errno;

	errno = saved;
	return error;
}

static bool failed(long result) { return result < 0 && result >= -4095; }

static uint64_t page_up(uint64_t n) { return (n + PG_PAGE - 1) / PG_PAGE * PG_PAGE; }

/* Reads a /proc/PID/maps from its start. */
struct maps {
	int fd;
	long n, at;
	char text[1024];
};

/* Returns the next character, 0 at the end. */
static char next_char(struct maps *m)
{
	if (m->at == m->n) {
		do {
			m->n = PG_CALL(SYS_read, m->fd, m->text, sizeof m->text, 0);
		} while (m->n == -EINTR);
		m->at = 0;
		if (m->n <= 0) {
			m->n = 0;
			return 0;
		}
	}
	return m->text[m->at++];
}

/* Reads a hexadecimal number and the character after it. */
static uint64_t next_number(struct maps *m)
{
	uint64_t value = 0;

	for (;;) {
		char c = next_char(m);

		if (c >= '0' && c <= '9')
			value = value << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			value = value << 4 | (uint64_t)(c - 'a' + 10);
		else
			return value;
	}
}

/* An area; end is 0 if there is none. */
struct span {
	uint64_t start, end;
};

/* Returns the first area that ends after an address, or none, also if nobody can tell. */
static struct span area_after(uint64_t address)
{
	struct maps m = {.fd = (int)PG_CALL(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0)};
	struct span found = {0, 0};

	if (m.fd < 0)
		return found;
	for (;;) {
		struct span s;

		s.start = next_number(&m);
		s.end = next_number(&m);
		if (s.end == 0)
			break;
		if (address < s.end) {
			found = s;
			break;
		}
		for (char c = next_char(&m); c != '\n' && c != 0;)
			c = next_char(&m);
	}
	PG_CALL(SYS_close, m.fd, 0, 0, 0);
	return found;
}

/* Says whether memory is of several areas. With holes, the kernel moves it from Linux 6.17 on, if
 * it does not begin with one. */
static bool several(const struct remap *r, bool holes)
{
	uint64_t at = r->from, end = r->from + r->old_size;
	int areas = 0;

	while (at < end) {
		struct span s = area_after(at);

		if (s.end == 0 || s.start >= end || (s.start > at && (areas == 0 || !holes)))
			break;
		areas++;
		at = s.end;
	}
	return areas > 1 && (holes || at >= end);
}

/* Moves n bytes, area by area. The last one is given extra bytes more. Returns 0 or the negative
 * number of an error; *done is how much has moved. */
static long move_areas(uint64_t from, uint64_t n, uint64_t extra, int flags, uint64_t to, uint64_t *done)
{
	uint64_t end = from + n;

	for (*done = 0; *done < n;) {
		struct span s = area_after(from + *done);

		if (s.end == 0 || s.start >= end) /* a hole, to the end */
			s.start = s.end = end;
		uint64_t at = s.start > from + *done ? s.start : from + *done;
		uint64_t piece = (s.end < end ? s.end : end) - at;

		if (piece > 0) {
			long result = kernel_mremap(at, piece, piece + (at + piece == end ? extra : 0), flags, to + (at - from));

			if (failed(result))
				return result;
		}
		*done = at + piece - from;
	}
	return 0;
}

/* Grows the last area where it is. Returns true if it has. */
static bool grow_in_place(const struct remap *r)
{
	uint64_t end = r->from + r->old_size, last = area_after(end - 1).start;
	uint64_t n = end - last;

	return !failed(kernel_mremap(last, n, n + r->new_size - r->old_size, 0, 0));
}

/* Returns a place of n bytes, or the negative number of an error. */
static long make_place(uint64_t n)
{
	return pg_syscall(SYS_mmap, 0, (long)n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/* Moves memory of several areas, as one mremap of one area would. At a fixed place, what was where
 * the memory has a hole is unmapped, too. */
static long remap_areas(struct remap r)
{
	bool fixed = r.flags & MREMAP_FIXED;
	uint64_t done, back;

	if (fixed && r.from < r.to + r.new_size && r.to < r.from + r.old_size)
		return -EINVAL;
	if (!fixed && r.new_size > r.old_size && grow_in_place(&r))
		return (long)r.from;
	if (!(r.flags & MREMAP_MAYMOVE))
		return -ENOMEM;
	if (r.new_size < r.old_size) { /* to a fixed place: the kernel cuts first, too */
		PG_CALL(SYS_munmap, r.from + r.new_size, r.old_size - r.new_size, 0, 0);
		r.old_size = r.new_size;
	}
	if (fixed) {
		PG_CALL(SYS_munmap, r.to, r.new_size, 0, 0);
	} else {
		long place = make_place(r.new_size);

		if (failed(place))
			return place;
		r.to = (uint64_t)place;
	}
	int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (r.flags & MREMAP_DONTUNMAP);
	long error = move_areas(r.from, r.old_size, r.new_size - r.old_size, flags, r.to, &done);

	if (error == 0)
		return (long)r.to;
	move_areas(r.to, done, 0, MREMAP_MAYMOVE | MREMAP_FIXED, r.from, &back);
	if (back == done && !fixed)
		PG_CALL(SYS_munmap, r.to, r.new_size, 0, 0);
	return error;
}

__attribute__((visibility("default"))) void *mremap(void *from, size_t old_size, size_t new_size, int flags, ...)
{
	struct remap r = {(uint64_t)from, page_up(old_size), page_up(new_size), 0, flags};
	long result;

	if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) {
		va_list rest;

		va_start(rest, flags);
		r.to = (uint64_t)va_arg(rest, void *);
		va_end(rest);
	}
	/* What the kernel refuses in any case, and an old size of 0, which copies shared memory. */
	bool whole = (r.from | (flags & MREMAP_FIXED ? r.to : 0)) % PG_PAGE == 0 && r.old_size != 0 && r.new_size != 0;

	/* The kernel moves several areas only to a fixed place, and then may do so by half. */
	if (whole && flags & MREMAP_FIXED && r.old_size == r.new_size && several(&r, true)) {
		result = remap_areas(r);
	} else {
		result = kernel_mremap(r.from, old_size, new_size, flags, r.to);
		if (result == -EFAULT && whole && several(&r, false))
			result = remap_areas(r);
	}
	if (failed(result)) {
		errno = (int)-result;
		return MAP_FAILED;
	}
	return (void *)result;
}

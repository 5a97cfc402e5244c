/* select, by poll. */
#include "fd/epoll.h"
#include "fd/pollset.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>

typedef unsigned long word;
enum { BITS = sizeof(word) * CHAR_BIT };

enum { FEW = 64 }; /* descriptors that fit on the stack */

/* The i-th word of a set; NULL is empty. No lock. */
static inline word bits_of(const fd_set *s, int i)
{
	return s ? ((const word *)s)[i] : 0;
}

/* Is fd in the set? No lock. */
static inline bool has(const fd_set *s, int fd)
{
	return s && (((const word *)s)[fd / BITS] >> (fd % BITS) & 1);
}

/* select by poll: p has room for the count descriptors of the sets, which are rewritten. As select.
 * No lock. */
static int select_poll(int n, int count, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout, const sigset_t *mask, struct pollfd *p, const struct waits *uncounted)
{
	int k = 0, rc, total = 0;

	for (int i = 0; i < (n + BITS - 1) / BITS; i++) {
		word any = bits_of(in, i) | bits_of(out, i) | bits_of(except, i);
		for (; any && k < count; any &= any - 1) {
			int fd = i * (int)BITS + __builtin_ctzl(any);
			if (fd >= n)
				break;
			p[k++] = (struct pollfd){fd, (short)((has(in, fd) ? POLLIN : 0) | (has(out, fd) ? POLLOUT : 0) | (has(except, fd) ? POLLPRI : 0)), 0};
		}
	}
	rc = wait_poll(p, (nfds_t)k, timeout, mask, uncounted);
	if (rc < 0)
		return rc;
	for (int i = 0; i < k; i++)
		if (p[i].revents & POLLNVAL) {
			errno = EBADF;
			return -1;
		}
	size_t bytes = (size_t)((n + BITS - 1) / BITS) * sizeof(word);
	fd_set *sets[3] = {in, out, except};
	static const short yes[3] = {POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI};
	static const short asked[3] = {POLLIN, POLLOUT, POLLPRI};
	for (int s = 0; s < 3; s++) {
		if (!sets[s])
			continue;
		memset(sets[s], 0, bytes);
		for (int i = 0; i < k; i++)
			if ((p[i].events & asked[s]) && (p[i].revents & yes[s])) {
				((word *)sets[s])[p[i].fd / BITS] |= 1ul << (p[i].fd % BITS);
				total++;
			}
	}
	return total;
}

int wait_select(int n, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout, const sigset_t *mask, struct timespec *left, const struct waits *uncounted)
{
	struct pollfd few[FEW], *p = few;
	struct timespec deadline;
	int count = 0, rc;

	for (int i = 0; i < (n + BITS - 1) / BITS; i++)
		count += __builtin_popcountl(bits_of(in, i) | bits_of(out, i) | bits_of(except, i));
	size_t size = (size_t)count * sizeof *p;
	if (count > FEW) {
		p = REAL(mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED) {
			errno = ENOMEM;
			return -1;
		}
	}
	if (timeout)
		deadline_set(&deadline, timeout);
	rc = select_poll(n, count, in, out, except, timeout, mask, p, uncounted);
	if (timeout && left)
		deadline_left(&deadline, left);
	if (p != few)
		REAL(munmap, p, size);
	return rc;
}

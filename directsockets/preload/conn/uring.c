/* Has this process an io_uring? What one does with a connection cannot be seen: bytes that were
 * sent to the segment would never reach a receive that a ring makes on the socket. hooks/ refuses
 * to make one, but not to a program that makes the system call itself. */
#include "conn/fds.h"
#include "conn/inner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

enum { MANY = 32 }; /* descriptors that are looked at for each offer, on average */

static bool found;       /* by the last look */
static unsigned entries; /* that it went through */
static unsigned since;   /* offers since then */

/* Is the descriptor of this name in dir an io_uring? */
static bool is_ring(int dir, const char *name)
{
	static const char ring[] = "anon_inode:[io_uring]";
	char target[sizeof ring + 1];
	int fd = 0;

	for (const char *c = name; *c; c++) {
		if (*c < '0' || *c > '9')
			return false;
		fd = fd * 10 + (*c - '0');
	}
	if (ds_own_fd(fd))
		return false;
	long n = ds_syscall(SYS_readlinkat, dir, name, target, sizeof target);
	return n == sizeof ring - 1 && !memcmp(target, ring, (size_t)n);
}

/* Goes through the descriptors. Without /proc nothing is found. */
static bool look(void)
{
	char buf[1024] __attribute__((aligned(8)));
	bool any = false;
	int dir = (int)ds_syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	entries = 0;
	if (dir < 0)
		return false;
	for (long n; !any && (n = ds_syscall(SYS_getdents64, dir, buf, sizeof buf)) > 0;)
		for (long off = 0; off < n && !any; entries++) {
			struct dirent64 *d = (struct dirent64 *)(void *)(buf + off);

			off += d->d_reclen;
			any = is_ring(dir, d->d_name);
		}
	REAL(close)(dir);
	return any;
}

bool ds_uring(void)
{
	int saved = errno;

	if (found || ++since > entries / MANY) {
		found = look();
		since = 0;
	}
	errno = saved;
	return found;
}

//go:build ignore

#include "fds.h"
#include "sock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/resource.h>

enum { KNOWN = 1 << 20 }; /* a descriptor above is not remembered: programs hardly have so many */

static uint64_t own[KNOWN / 64];

bool ds_own_fd(int fd)
{
	return fd >= 0 && fd < KNOWN && (__atomic_load_n(&own[fd / 64], __ATOMIC_RELAXED) >> (fd % 64) & 1);
}

/* Where own descriptors begin: beyond what select can name, if there is room. */
static int base(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return 512;
	if (r.rlim_cur == RLIM_INFINITY || r.rlim_cur > 8192)
		return 4096;
	return (int)(r.rlim_cur - r.rlim_cur / 4);
}

int ds_fd_keep(int fd)
{
	int saved = errno, high = REAL(fcntl)(fd, F_DUPFD_CLOEXEC, base());

	if (high >= 0) {
		REAL(close)(fd);
		fd = high;
	}
	errno = saved;
	if (fd < KNOWN)
		__atomic_fetch_or(&own[fd / 64], (uint64_t)1 << (fd % 64), __ATOMIC_RELAXED);
	return fd;
}

void ds_fd_close(int fd)
{
	int saved = errno;

	if (fd < KNOWN)
		__atomic_fetch_and(&own[fd / 64], ~((uint64_t)1 << (fd % 64)), __ATOMIC_RELAXED);
	REAL(close)(fd);
	errno = saved;
}

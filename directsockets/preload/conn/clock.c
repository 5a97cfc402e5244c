/* Time: of CLOCK_MONOTONIC, and of the time stamp counter. */
#include "conn/inner.h"

#include <errno.h>

int64_t ds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

uint64_t ds_ticks_us(void)
{
	static uint64_t per_us;
	uint64_t known = __atomic_load_n(&per_us, __ATOMIC_RELAXED);

	if (known)
		return known;
	int64_t begin = ds_now(), end;
	uint64_t t = ds_ticks();
	do
		end = ds_now();
	while (end - begin < 20000);
	known = (ds_ticks() - t) * 1000 / (uint64_t)(end - begin);
	known = known ? known : 1;
	__atomic_store_n(&per_us, known, __ATOMIC_RELAXED);
	return known;
}

int64_t ds_deadline(int fd, int option)
{
	struct timeval t = {0};
	socklen_t len = sizeof t;
	int saved = errno;

	if (REAL(getsockopt)(fd, SOL_SOCKET, option, &t, &len) < 0)
		errno = saved;
	if (!t.tv_sec && !t.tv_usec)
		return 0;
	return ds_now() + (int64_t)t.tv_sec * 1000000000 + t.tv_usec * 1000;
}

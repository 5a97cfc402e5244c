/* Time: of CLOCK_MONOTONIC, and of the time stamp counter. */
#include "conn/inner.h"

#include <errno.h>

int64_t ds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The ticks of 10 us, by the clock. They are read outside the clock's readings: a preemption in
 * between makes them too many, never too few. */
static uint64_t measure(void)
{
	uint64_t t = ds_ticks();
	int64_t begin = ds_now(), end;

	do
		end = ds_now();
	while (end - begin < 10000);
	return (ds_ticks() - t) * 10000 / (uint64_t)(end - begin);
}

uint64_t ds_per_us;

uint64_t ds_ticks_us_ask(void)
{
	uint64_t known = measure();

	for (int i = 0; i < 2; i++) {
		uint64_t again = measure();

		known = again < known ? again : known;
	}
	known = known < 10 ? 1 : known / 10;
	__atomic_store_n(&ds_per_us, known, __ATOMIC_RELAXED);
	return known;
}

int64_t ds_deadline(int fd, int option)
{
	struct timeval t = {0};
	socklen_t len = sizeof t;
	int saved = errno;

	if (REAL(getsockopt, fd, SOL_SOCKET, option, &t, &len) < 0)
		errno = saved;
	if (!t.tv_sec && !t.tv_usec)
		return 0;
	return ds_now() + (int64_t)t.tv_sec * 1000000000 + t.tv_usec * 1000;
}

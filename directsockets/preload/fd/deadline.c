/* Deadlines of calls that wait. */
#include "fd/epoll.h"

#include <limits.h>

void deadline_set(struct timespec *d, const struct timespec *timeout)
{
	clock_gettime(CLOCK_MONOTONIC, d);
	d->tv_sec += timeout->tv_sec;
	d->tv_nsec += timeout->tv_nsec;
	if (d->tv_nsec >= 1000000000L) {
		d->tv_nsec -= 1000000000L;
		d->tv_sec++;
	}
	if (d->tv_sec < 0)
		d->tv_sec = LONG_MAX; /* a timeout beyond the range of time_t */
}

bool deadline_left(const struct timespec *d, struct timespec *left)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	left->tv_sec = d->tv_sec - now.tv_sec;
	left->tv_nsec = d->tv_nsec - now.tv_nsec;
	if (left->tv_nsec < 0) {
		left->tv_nsec += 1000000000L;
		left->tv_sec--;
	}
	if (left->tv_sec < 0)
		*left = (struct timespec){0, 0};
	return left->tv_sec > 0 || left->tv_nsec > 0;
}

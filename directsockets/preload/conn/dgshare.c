/* Which UDP sockets other processes may have, too. */
#include "conn/dgram.h"
#include "conn/fds.h"
#include "conn/inner.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

enum {
	RELATIVES = 30, /* processes that may have sockets of this one, at most */
	MANY = RELATIVES,
	UNREAD,
};

/* At a fork, each of the two gets an end of a pair of sockets; a child of either has what its
 * parent has. An end of file says that all of those are gone that had the other end. A program that
 * one of them executes has it as long as it may have sockets. */
static int relatives[RELATIVES] = {[0 ... RELATIVES - 1] = -1};

/* With the lock of setup: is relative i gone? */
static bool gone(int i)
{
	if (relatives[i] < 0)
		return true;
	if (!ds_fd_ended(relatives[i]))
		return false;
	ds_fd_close(relatives[i]);
	relatives[i] = -1;
	return true;
}

int ds_dg_shared(struct ds_dgram *d)
{
	int saved = errno;
	uint32_t before = d->relatives;

	for (int i = 0; i < RELATIVES; i++)
		if ((d->relatives >> i & 1) && gone(i))
			d->relatives &= ~(1u << i);
	if (before && !d->relatives)
		d->relatives = 1u << UNREAD;
	errno = saved;
	return !d->relatives ? DG_ALONE : d->relatives == 1u << UNREAD ? DG_UNREAD : DG_SHARED;
}

void ds_dg_was_read(struct ds_dgram *d) { d->relatives &= ~(1u << UNREAD); }

void ds_dg_inherited(struct ds_dgram *d)
{
	for (int i = 0; i < RELATIVES; i++)
		if ((d->relatives >> i & 1) && relatives[i] >= 0)
			REAL(fcntl, relatives[i], F_SETFD, 0);
}

/* d may be had by the processes of *which, a set. */
static void relate(struct ds_dgram *d, void *which) { d->relatives |= *(uint32_t *)which; }

void ds_dg_add_relative(int fd)
{
	uint32_t which;
	int at = 0;

	while (at < RELATIVES && !gone(at))
		at++;
	if (at < RELATIVES && fd >= 0)
		relatives[at] = ds_fd_keep(fd, &relatives[at]);
	else if (fd >= 0)
		REAL(close, fd);
	which = 1u << (fd >= 0 ? at : MANY);
	ds_dg_each(relate, &which);
}


/* The kernel's turn, and FIONREAD, which shows the program what is next. */
#include "conn/dgram.h"
#include "conn/inner.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

int ds_dg_turn(struct ds_dgram *d, int fd, struct ds_dg_in **f)
{
	struct sockaddr_storage from;
	struct msghdr k = {.msg_name = &from, .msg_namelen = sizeof from};
	uint8_t addr[16];
	uint16_t port;

	d->streak = 0;
	if (ds_syscall(SYS_recvmsg, fd, &k, MSG_PEEK | MSG_DONTWAIT) < 0)
		return errno == EAGAIN ? DG_TURN_NOTHING : DG_TURN_ERROR;
	struct ds_dg_in *own = ds_dg_address(d, &from, k.msg_namelen, addr, &port) ? ds_dg_from(d, addr, port) : NULL;
	if (!own || !ds_dg_there(&own->seg))
		return DG_TURN_KERNEL;
	*f = own;
	d->streak = DS_DG_TURN;
	return DG_TURN_NOTHING;
}

/* Has the socket fd an error, which only a receive may take? */
static bool failed(int fd)
{
	struct pollfd p = {.fd = fd};

	return ds_syscall(SYS_ppoll, &p, 1, &(struct timespec){0, 0}, NULL, 0) != 0;
}

int ds_dg_next_size(struct ds_dgram *d, int fd)
{
	struct ds_dg_meta m;
	const volatile uint8_t *bytes;
	int size = -1, saved = errno;

	if (!ds_dg_inward(d) || ds_own_lock(&d->in) == DS_NESTED)
		return -1;
	if (d->shown == DG_SHOWN_KERNEL && ds_dg_is_empty(fd))
		ds_dg_gave(d, NULL);
	struct ds_dg_in *f = ds_dg_shown(d);
	if (d->shown == DG_SHOWN_NOTHING) {
		f = d->nlisted ? ds_dg_pick(d) : NULL;
		if (f && ++d->streak > DS_DG_TURN && !failed(fd) && ds_dg_turn(d, fd, &f) == DG_TURN_KERNEL)
			f = NULL;
	}
	if (f && ds_dg_next(&f->seg, &m, &bytes)) {
		size = (int)m.len;
		ds_dg_show(d, f);
	} else if (!ds_dg_is_empty(fd)) {
		ds_dg_show(d, NULL);
	}
	ds_own_unlock(&d->in);
	errno = saved;
	return size;
}

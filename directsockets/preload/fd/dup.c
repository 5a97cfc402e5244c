/* Duplicates of descriptors. */
#include "fd/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>

/* newfd, a standard stream, has become a duplicate of oldfd: the connection stays on TCP while it
 * is one, or goes back there. False: a process passes the bytes on, and neither descriptor is the
 * connection any more. */
static bool stream(int oldfd, int newfd)
{
	struct conn *c = conn_get(oldfd);
	bool carried = false;
	int end, saved = errno;

	if (!c)
		return true;
	if (conn_is(c) == CONN_KNOWN)
		ds_sharer_use(c->life.s, oldfd);
	if (conn_is(c) == CONN_KNOWN)
		carried = !ds_stream(c->life.s, true) && hand_over(c, oldfd, TAKER_DUP, &end);
	else
		conn_demote(c, oldfd);
	if (carried)
		REAL(dup3, oldfd, newfd, REAL(fcntl, newfd, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0);
	conn_put(c);
	errno = saved;
	return !carried;
}

bool fd_is_tcp(int fd)
{
	int protocol = 0, saved = errno;
	socklen_t len = sizeof protocol;
	bool is = REAL(getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 && protocol == IPPROTO_TCP;

	errno = saved;
	return is;
}

void fd_dup(int oldfd, int newfd)
{
	uintptr_t w = fd_word(oldfd);
	struct conn *c = word_conn(w);

	if (w == 0 || oldfd == newfd || (unsigned)newfd >= fd_tab_size || fd_vforked())
		return;
	if (c && oldfd <= STDERR_FILENO && !fd_is_tcp(newfd)) {
		fd_was_closed(oldfd);
		return;
	}
	if (c && fd_is_stream(newfd) && !stream(oldfd, newfd))
		return;
	fd_copy(newfd, w);
}

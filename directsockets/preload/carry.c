//go:build ignore

/* What a program that is about to be replaced has not read, and nobody can send again. */
#include "hooks.h"
#include "inner.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

/* Do bytes lie unread in the segment behind which the sender has ended the direction, or gone? While it is about
 * to, or the direction is frozen and the sender has not said whether that stands, this waits a little. */
static bool stands(struct ds_sock *s, int fd)
{
	struct pollfd end = {fd, POLLRDHUP, 0};

	if (!s->sh || !ds_has_segment(s))
		return false;
	for (int tries = 0; tries < 2; tries++) {
		bool alone = ds_alone(s), unread = false, undecided = false;
		if (!ds_rx_take(s, alone))
			return false;
		ds_rx_update(s, fd);
		if (s->sh->rx_mode == RX_DIRECT || s->sh->rx_mode == RX_UNDECIDED)
			unread = ds_rx_readable(&s->seg, &s->sh->rx) > 0;
		undecided = unread && s->sh->rx_mode == RX_UNDECIDED;
		uint64_t seen = 0;
		bool ended = unread && (undecided || ds_left(s) || ds_rx_ends(&s->seg, &s->sh->rx, &seen));
		ds_unlock(&s->sh->rx_lock, alone);
		if (!ended)
			return false;
		if (!undecided)
			return true;
		REAL(poll)(&end, 1, 1000);
	}
	return false;
}

/* Forwards both directions between a socket of ours and the pair's other end, until both have ended. */
static void pump(int sock, int pair)
{
	static char buf[65536];
	struct pollfd p[2] = {{sock, POLLIN, 0}, {pair, POLLIN, 0}};
	int to[2] = {pair, sock};

	while (p[0].fd >= 0 || p[1].fd >= 0) {
		if (poll(p, 2, -1) < 0)
			continue;
		for (int i = 0; i < 2; i++) {
			if (p[i].fd < 0 || !p[i].revents)
				continue;
			ssize_t n = read(p[i].fd, buf, sizeof buf), done = 0;
			if (n < 0 && (errno == EINTR || errno == EAGAIN))
				continue;
			while (done < n) {
				ssize_t rc = send(to[i], buf + done, (size_t)(n - done), MSG_NOSIGNAL);
				struct pollfd room = {to[i], POLLOUT, 0};
				if (rc >= 0)
					done += rc;
				else if (errno == EAGAIN)
					poll(&room, 1, -1);
				else if (errno != EINTR)
					n = -1;
			}
			if (n <= 0) {
				shutdown(to[i], SHUT_WR);
				p[i].fd = -1;
			}
		}
	}
	_exit(0);
}

/* The peer has sent its last byte, or is gone, and what it sent lies unread in the segment: it cannot be asked to
 * send it again on the shadow. A process with this library stays behind and hands it on: fd becomes an end of a
 * pair of sockets. Returns that end (another descriptor of it, closed by exec), or -1: it was not necessary. */
int carry(struct conn *c, int fd)
{
	int pair[2], flags = REAL(fcntl)(fd, F_GETFL), st;
	pid_t pid;

	if (!stands(c->s, fd) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		if (fork() == 0) {
			int sock = dup(fd);
			conn_hold(c); /* should the program's own descriptors have been closed here */
			for (unsigned i = 0; i < 1024; i++)
				if ((int)i != sock && (int)i != pair[1] && !ds_own_fd((int)i))
					REAL(close)((int)i);
			pump(sock, pair[1]);
		}
		_exit(0);
	}
	while (pid > 0 && waitpid(pid, &st, 0) < 0 && errno == EINTR)
		;
	REAL(close)(pair[1]);
	if (pid < 0) {
		REAL(close)(pair[0]);
		return -1;
	}
	REAL(fcntl)(pair[0], F_SETFL, flags & O_NONBLOCK);
	REAL(dup2)(pair[0], fd);
	return pair[0];
}

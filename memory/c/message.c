#define _GNU_SOURCE
#include "message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int message_send(int conn, const struct message *m) {
	ssize_t n;
	do
		n = send(conn, m, sizeof(*m), MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(*m) ? 0 : -1;
}

/* descriptors takes the first descriptor of a packet, and closes any more. */
static void descriptors(struct msghdr *h, int *fd) {
	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int got;
			memcpy(&got, CMSG_DATA(c) + i * sizeof(int), sizeof(got));
			if (*fd < 0)
				*fd = got;
			else
				close(got);
		}
	}
}

int message_receive(int conn, struct message *m, int *fd) {
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec v = {m, sizeof(*m)};
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t n;
	do
		n = recvmsg(conn, &h, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -1;
	descriptors(&h, fd);
	if (n == 0)
		return 0;
	if (n != (ssize_t)sizeof(*m) || h.msg_flags & MSG_TRUNC) {
		errno = EPROTO;
		return -1;
	}
	return 1;
}

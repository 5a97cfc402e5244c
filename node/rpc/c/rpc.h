/* The end of package rpc in a program: a connection to its node, whose packets carry messages and
 * descriptors. libexnds, libexnmem, librma2, libvelo2 and the leases of memory/c are built with it.
 *
 * Every function returns a negative error number on failure. RPC_CALL makes a system call and
 * returns what the kernel does: define it first where libc must not be called. */
#ifndef EXN_RPC_H
#define EXN_RPC_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A result of libc as the kernel has it. */
static inline long rpc_result(long r) { return r < 0 ? -errno : r; }

#ifndef RPC_CALL
#define RPC_CALL(name, ...) rpc_result(name(__VA_ARGS__))
#endif

enum { RPC_FDS = 8 }; /* descriptors of a packet, at most */

union rpc_control {
	struct cmsghdr head;
	char room[CMSG_SPACE(RPC_FDS * sizeof(int))];
};

/* Connects to the socket of this name, which begins with @ in the abstract namespace. Returns the
 * descriptor; *user is who listens: trust root and this user, as others may have taken it. */
static inline int rpc_dial(const char *name, int flags, uid_t *user)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	struct ucred peer = {0};
	socklen_t len = sizeof peer;
	size_t n = 0;

	*user = (uid_t)-1;
	for (; name[n]; n++) {
		if (n == sizeof to.sun_path - 1)
			return -ENAMETOOLONG;
		to.sun_path[n] = name[n];
	}
	if (n == 0)
		return -ENOENT;
	if (name[0] == '@')
		to.sun_path[0] = 0;
	int fd = (int)RPC_CALL(socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
	if (fd < 0)
		return fd;
	long failed = RPC_CALL(connect, fd, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (name[0] != '@')));
	if (failed == 0)
		failed = RPC_CALL(getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &peer, &len);
	if (failed < 0) {
		RPC_CALL(close, fd);
		return (int)failed;
	}
	*user = peer.uid;
	return fd;
}

static inline void rpc_close(const int *fds, int n)
{
	for (int i = 0; i < n; i++)
		RPC_CALL(close, fds[i]);
}

/* Sends a packet with n descriptors, which stay the caller's. Returns its length. */
static inline long rpc_send(int sock, const void *data, size_t size, const int *fds, int n, int flags)
{
	union rpc_control control = {.room = {0}};
	struct iovec part = {(void *)data, size};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
	long sent;

	if (n > 0) {
		control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN((size_t)n * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
		for (int i = 0; i < n; i++)
			((int *)(void *)CMSG_DATA(&control.head))[i] = fds[i];
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
	}
	do
		sent = RPC_CALL(sendmsg, sock, &m, flags | MSG_NOSIGNAL);
	while (sent == -EINTR);
	return sent;
}

/* Receives a packet of at most room bytes, and at most *n descriptors, as many as *n says then.
 * Returns its length. A packet with more of either has its descriptors closed: -EPROTO. */
static inline long rpc_receive(int sock, void *data, size_t room, int *fds, int *n, int flags)
{
	union rpc_control control;
	struct iovec part = {data, room};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	int most = *n;
	long got;

	*n = 0;
	do
		got = RPC_CALL(recvmsg, sock, &m, flags | MSG_CMSG_CLOEXEC);
	while (got == -EINTR);
	if (got < 0)
		return got;
	bool whole = !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
	for (size_t offset = 0; offset + sizeof(struct cmsghdr) <= m.msg_controllen;) {
		struct cmsghdr *c = (void *)(control.room + offset);
		size_t count = c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;

		for (size_t i = 0; i < count; i++) {
			int fd = ((int *)(void *)CMSG_DATA(c))[i];

			if (*n < most) {
				fds[(*n)++] = fd;
			} else {
				RPC_CALL(close, fd);
				whole = false;
			}
		}
		offset += CMSG_ALIGN(c->cmsg_len);
	}
	if (whole)
		return got;
	rpc_close(fds, *n);
	*n = 0;
	return -EPROTO;
}

/* Has the memory of fd all these seals? One that cannot shrink raises no SIGBUS. */
static inline bool rpc_sealed(int fd, int seals)
{
	long has = RPC_CALL(fcntl, fd, F_GET_SEALS, 0);

	return has >= 0 && (has & seals) == seals;
}

#endif

// node.c: the messages between a port and its node.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <fcntl.h>

#include "node.h"

// The node's default socket, in the abstract namespace. Each network namespace has its own.
#define DEFAULT_SOCKET "@exn-ports"

static int dial(const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	size_t n = strlen(name);
	if (n == 0 || n >= sizeof(a.sun_path))
		return -1;
	memcpy(a.sun_path, name, n);
	if (name[0] == '@')
		a.sun_path[0] = 0;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	struct ucred who;
	socklen_t len = sizeof(who);
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (name[0] != '@'));
	// Any process may have taken the name: accept only root's node or this user's.
	if (connect(fd, (struct sockaddr *)&a, size) == 0 &&
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && (who.uid == 0 || who.uid == geteuid()))
		return fd;
	close(fd);
	return -1;
}

int exn_node_dial(void)
{
	const char *name = secure_getenv("EXN_PORTS");
	return dial(name != NULL && *name != 0 ? name : DEFAULT_SOCKET);
}

void exn_node_close(int fds[EXN_FDS])
{
	for (int i = 0; i < EXN_FDS; i++)
		if (fds[i] >= 0) {
			close(fds[i]);
			fds[i] = -1;
		}
}

int exn_node_receive(int sock, struct exn_msg *m, int fds[EXN_FDS], bool wait)
{
	char control[CMSG_SPACE(EXN_FDS * sizeof(int))];
	struct iovec part = {m, sizeof(*m)};
	struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	memset(fds, -1, EXN_FDS * sizeof(int));
	ssize_t n;
	do
		n = recvmsg(sock, &h, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? 0 : -1;
	struct cmsghdr *c = CMSG_FIRSTHDR(&h);
	if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(c), (count < EXN_FDS ? count : EXN_FDS) * sizeof(int));
	}
	if (n == (ssize_t)sizeof(*m) && !(h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return 1;
	exn_node_close(fds);
	return -1;
}

bool exn_node_send(int sock, const struct exn_msg *m, int fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	struct iovec part = {(void *)m, sizeof(*m)};
	struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1};
	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
		h.msg_control = &control;
		h.msg_controllen = sizeof(control.room);
	}
	return sendmsg(sock, &h, MSG_NOSIGNAL) == (ssize_t)sizeof(*m);
}

void *exn_node_map(int fd, size_t size, bool write)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);
	// The seal prevents shrinking, so that no access raises SIGBUS.
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) != 0 || (size_t)st.st_size != size)
		return NULL;
	void *mem = mmap(NULL, size, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
	return mem == MAP_FAILED ? NULL : mem;
}

// node.c: the messages between a port and its node.
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "node.h"
#include "rpc.h"

// The node's default socket, in the abstract namespace. Each network namespace has its own.
#define DEFAULT_SOCKET "@exn-ports"

int exn_node_dial(void)
{
	const char *name = secure_getenv("EXN_PORTS");
	uid_t user;
	int fd = rpc_dial(name != NULL && *name != 0 ? name : DEFAULT_SOCKET, 0, &user);
	if (fd < 0 || user == 0 || user == geteuid())
		return fd < 0 ? -1 : fd;
	close(fd);
	return -1;
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
	int n = EXN_FDS;
	memset(fds, -1, EXN_FDS * sizeof(int));
	long got = rpc_receive(sock, m, sizeof(*m), fds, &n, wait ? 0 : MSG_DONTWAIT);
	if (got == (long)sizeof(*m))
		return 1;
	exn_node_close(fds);
	return got == -EAGAIN ? 0 : -1;
}

bool exn_node_send(int sock, const struct exn_msg *m, int fd)
{
	return rpc_send(sock, m, sizeof(*m), &fd, fd >= 0, 0) == (long)sizeof(*m);
}

void *exn_node_map(int fd, size_t size, bool write)
{
	struct stat st;
	if (!rpc_sealed(fd, F_SEAL_SHRINK) || fstat(fd, &st) != 0 || (size_t)st.st_size != size)
		return NULL;
	void *mem = mmap(NULL, size, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
	return mem == MAP_FAILED ? NULL : mem;
}

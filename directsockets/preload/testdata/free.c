/* A static program that has its system calls made by libexnds-free.so. Processes, or threads,
 * exchange data that both ends check.
 *
 *   free LIBRARY threads|processes|go COUNT */
#include "free.h"

enum { MOST = 100000 };
static int count;
static struct sockaddr_in address;

/* Byte i of message n. */
static unsigned char byte(long n, long i) { return (unsigned char)(n * 31 + i * 7 + (i >> 8)); }
static long length(long n) { return n % 10 == 9 ? 1 + n * 7919 % MOST : 1 + n * 13 % 300; }

/* Sends and receives in turn, and checks what it receives. */
static void exchange(int fd, bool first)
{
	unsigned char *p = malloc(MOST + 1);

	for (long n = 0; n < count; n++)
		for (int half = 0; half < 2; half++) {
			long len = length(n);

			if (first == !half) {
				for (long i = 0; i < len; i++)
					p[i] = byte(n + half, i);
				all(fd, true, p, len);
				continue;
			}
			all(fd, false, p, len);
			for (long i = 0; i < len; i++)
				if (p[i] != byte(n + half, i)) {
					fprintf(stderr, "message %ld: byte %ld is %d\n", n, i, p[i]);
					_exit(1);
				}
		}
	free(p);
}

/* An epoll instance takes fd once, and tells when there is room. */
static void watch(int fd)
{
	struct epoll_event ev = {.events = EPOLLOUT, .data.fd = fd}, told;
	int ep = (int)CALL(SYS_epoll_create1, 0, 0, 0);

	if (ep < 0 || call(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, fd, (long)&ev, 0, 0) != 0)
		fail("epoll_ctl");
	if (call(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, fd, (long)&ev, 0, 0) != -1 || errno != EEXIST)
		fail("a second epoll_ctl");
	if (call(SYS_epoll_wait, ep, (long)&told, 1, -1, 0, 0) != 1 || told.data.fd != fd || told.events != EPOLLOUT)
		fail("epoll_wait");
	if (call(SYS_epoll_ctl, ep, EPOLL_CTL_DEL, fd, 0, 0, 0) != 0 || CALL(SYS_close, ep, 0, 0) < 0)
		fail("the end of an instance");
}

static void *client(void *arg)
{
	int fd = (int)CALL(SYS_socket, AF_INET, SOCK_STREAM, 0);

	(void)arg;
	if (fd < 0 || CALL(SYS_connect, fd, &address, sizeof address) < 0)
		fail("connect");
	exchange(fd, true);
	watch(fd);
	unsigned char c;
	if (CALL(SYS_shutdown, fd, SHUT_WR, 0) < 0 || CALL(SYS_read, fd, &c, 1) != 0 || CALL(SYS_close, fd, 0, 0) < 0)
		fail("the end of a client");
	return NULL;
}

static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	unsigned char c;

	exchange(fd, false);
	if (CALL(SYS_read, fd, &c, 1) != 0 || CALL(SYS_close, fd, 0, 0) < 0)
		fail("the end of a server");
	return NULL;
}

int main(int argc, char **argv)
{
	enum { CLIENTS = 3 };
	pthread_t t[2 * CLIENTS];
	int n = 0, st;
	socklen_t len = sizeof address;

	if (argc != 4)
		return 2;
	count = atoi(argv[3]);
	bool processes = !strcmp(argv[2], "processes");
	load(argv[1], (const unsigned long *)(void *)(argv - 1), !processes);
	by_go = !strcmp(argv[2], "go");
	address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int l = (int)CALL(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (l < 0 || bind(l, (void *)&address, sizeof address) < 0 || CALL(SYS_listen, l, 10, 0) < 0 || getsockname(l, (void *)&address, &len) < 0)
		fail("listen");
	for (int i = 0; i < CLIENTS; i++) {
		long pid = processes ? CALL(SYS_fork, 0, 0, 0) : 1;

		if (pid == 0) {
			client(NULL);
			CALL(SYS_exit_group, 0, 0, 0);
		}
		if (!processes)
			pthread_create(&t[n++], NULL, client, NULL);
		if (pid < 0)
			fail("fork");
	}
	for (int i = 0; i < CLIENTS; i++) {
		int fd = (int)CALL(SYS_accept4, l, NULL, NULL);

		if (fd < 0)
			fail("accept");
		if (processes)
			serve((void *)(intptr_t)fd);
		else
			pthread_create(&t[n++], NULL, serve, (void *)(intptr_t)fd);
	}
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; processes && i < CLIENTS; i++)
		if (wait(&st) < 0 || st)
			fail("a client");
	CALL(SYS_close, l, 0, 0);
	return 0;
}

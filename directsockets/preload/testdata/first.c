/* Sockets that exchange a datagram each: sent before it is received, to a thread that waits in
 * recv, and to one that waits in poll. Prints exnds_datagrams. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void need(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static int bound(struct sockaddr_in *at)
{
	socklen_t n = sizeof *at;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	*at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	need(fd >= 0 && bind(fd, (struct sockaddr *)at, sizeof *at) == 0 && getsockname(fd, (struct sockaddr *)at, &n) == 0, "bind");
	return fd;
}

static void take(int fd, const char *text, struct sockaddr_in *from)
{
	char b[16];
	socklen_t n = sizeof *from;
	ssize_t rc = recvfrom(fd, b, sizeof b, 0, (struct sockaddr *)from, &n);

	need(rc == (ssize_t)strlen(text) && !memcmp(b, text, (size_t)rc), "recvfrom");
}

static void *receiver(void *fd)
{
	struct sockaddr_in from;

	take(*(int *)fd, "waited", &from);
	return NULL;
}

static void *poller(void *fd)
{
	struct pollfd p = {.fd = *(int *)fd, .events = POLLIN};
	struct sockaddr_in from;

	need(poll(&p, 1, 30000) == 1 && p.revents == POLLIN, "poll");
	take(p.fd, "waited", &from);
	return NULL;
}

int main(void)
{
	void (*count)(uint64_t[4]);
	struct sockaddr_in at, from;
	uint64_t n[4];
	int s = bound(&at), c = socket(AF_INET, SOCK_DGRAM, 0);

	*(void **)&count = dlsym(RTLD_DEFAULT, "exnds_datagrams");
	need(count != NULL, "exnds_datagrams");
	need(sendto(c, "there", 5, 0, (struct sockaddr *)&at, sizeof at) == 5, "sendto");
	take(s, "there", &from);
	need(sendto(s, "back", 4, 0, (struct sockaddr *)&from, sizeof from) == 4, "sendto");
	take(c, "back", &from);
	for (int i = 0; i < 2; i++) {
		pthread_t thread;
		int to = bound(&at), of = socket(AF_INET, SOCK_DGRAM, 0);

		need(pthread_create(&thread, NULL, i ? poller : receiver, &to) == 0, "pthread_create");
		need(connect(of, (struct sockaddr *)&at, sizeof at) == 0 && write(of, "waited", 6) == 6, "write");
		need(pthread_join(thread, NULL) == 0, "pthread_join");
		need(close(to) == 0 && close(of) == 0, "close");
	}
	count(n);
	for (int i = 0; i < 4; i++)
		printf("%llu ", (unsigned long long)n[i]);
	return 0;
}

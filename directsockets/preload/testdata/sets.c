// Sets of many sockets for TestLargeSets: of 100 connections of this process one is direct, and the
// program polls the ends of all eight times, 1 ms each, between two calls of getppid.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MANY = 100, POLLS = 8, ROUNDS = 100000 };

static void need(int yes, const char *what)
{
	if (!yes) {
		perror(what);
		exit(1);
	}
}

int main(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, c[MANY], rounds = 0;
	int (*mode)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "exnds_mode");
	struct pollfd set[MANY];
	char b[8] = "";

	need(mode != NULL, "exnds_mode");
	need(bind(listener, (struct sockaddr *)&at, n) == 0 && listen(listener, MANY) == 0 && getsockname(listener, (struct sockaddr *)&at, &n) == 0, "listen");
	for (int i = 0; i < MANY; i++) {
		c[i] = socket(AF_INET, SOCK_STREAM, 0);
		need(connect(c[i], (struct sockaddr *)&at, sizeof at) == 0, "connect");
		setsockopt(c[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		set[i] = (struct pollfd){accept(listener, NULL, NULL), POLLIN, 0};
		need(set[i].fd >= 0, "accept");
	}
	while (mode(c[50]) != 3 || mode(set[50].fd) != 3) {
		need(write(c[50], b, sizeof b) == sizeof b && read(set[50].fd, b, sizeof b) == sizeof b, "request");
		need(write(set[50].fd, b, sizeof b) == sizeof b && read(c[50], b, sizeof b) == sizeof b, "answer");
		need(++rounds < ROUNDS, "direct");
		usleep(rounds > 10 ? 1000 : 0);
	}
	for (int i = 0; i < POLLS; i++)
		need(poll(set, MANY, 1) == 0, "poll");
	getppid();
	for (int i = 0; i < POLLS; i++)
		need(poll(set, MANY, 1) == 0, "poll");
	getppid();
	return 0;
}

/* Makes connections to itself, of one request each (`short`: of REQUESTS), between two calls of
 * getppid, for a test that counts the system calls. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REQUESTS = 20, WARM = 4, WARM_SHORT = 40, COUNTED = 4 };

static void need(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static int threads; /* there is another one, which does nothing; sockets do not block */

static void *sleeper(void *none)
{
	for (;;)
		pause();
	return none;
}

/* Waits until a socket that does not block can be read. */
static void readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	need(!threads || poll(&p, 1, -1) == 1, "poll");
}

/* Waits for the request of s in set, told by an edge, as nginx does. */
static void await(int set, int s)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = s};

	need(epoll_ctl(set, EPOLL_CTL_ADD, s, &e) == 0, "epoll_ctl");
	e.data.fd = -1;
	need(epoll_wait(set, &e, 1, -1) == 1 && e.data.fd == s && e.events == EPOLLIN, "epoll_wait");
}

/* A client's socket that is connected as event loops do it; by poll or, with set, by epoll. */
static int dial(const struct sockaddr_in *at, int set)
{
	int c = socket(AF_INET, threads ? SOCK_STREAM : SOCK_STREAM | SOCK_NONBLOCK, 0), error = -1;
	struct epoll_event e = {.events = EPOLLOUT, .data.fd = c};
	struct pollfd p = {.fd = c, .events = POLLOUT};
	socklen_t n = sizeof error;

	need(!threads || fcntl(c, F_SETFL, O_NONBLOCK) == 0, "fcntl");
	connect(c, (const struct sockaddr *)at, sizeof *at);
	if (set < 0)
		need(poll(&p, 1, -1) == 1 && p.revents == POLLOUT, "poll");
	else
		need(epoll_ctl(set, EPOLL_CTL_ADD, c, &e) == 0 && epoll_wait(set, &e, 1, -1) == 1 && epoll_ctl(set, EPOLL_CTL_DEL, c, &e) == 0, "epoll");
	need(getsockopt(c, SOL_SOCKET, SO_ERROR, &error, &n) == 0 && error == 0, "SO_ERROR");
	need(threads || fcntl(c, F_SETFL, 0) == 0, "fcntl");
	return c;
}

/* A request from c to s, whose answer the client awaits by poll. */
static void ask(int c, int s)
{
	char b[64] = {0};
	struct pollfd p = {.fd = c, .events = POLLIN};

	need(send(c, b, sizeof b, 0) == sizeof b && recv(s, b, sizeof b, 0) == sizeof b, "request");
	need(send(s, b, sizeof b, 0) == sizeof b && poll(&p, 1, -1) == 1 && recv(c, b, sizeof b, 0) == sizeof b, "answer");
}

/* One connection, both ends: a request, an answer, and so on, the server closes first. name: accept
 * tells the client's address. The server waits in set, if there is one; with loops the client
 * dials. */
static void once(int listener, const struct sockaddr_in *at, int name, int set, int loops, int requests)
{
	struct sockaddr_in from;
	socklen_t n = sizeof from;
	char b[64] = {0};
	int c = loops ? dial(at, set) : socket(AF_INET, SOCK_STREAM, 0), s;

	need(loops || connect(c, (const struct sockaddr *)at, sizeof *at) == 0, "connect");
	s = name ? accept(listener, (struct sockaddr *)&from, &n) : accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	need(s >= 0 && (!threads || fcntl(s, F_SETFL, O_NONBLOCK) == 0), "accept");
	need(send(c, b, sizeof b, 0) == sizeof b, "request");
	if (set >= 0)
		await(set, s);
	readable(s);
	need(recv(s, b, sizeof b, 0) == sizeof b, "request");
	need(send(s, b, sizeof b, 0) == sizeof b, "answer");
	readable(c);
	need(recv(c, b, sizeof b, 0) == sizeof b, "answer");
	while (--requests > 0)
		ask(c, s);
	close(s);
	readable(c);
	need(recv(c, b, 1, 0) == 0, "end");
	shutdown(c, SHUT_WR);
	close(c);
}

/* The first connection that this process accepts, from a child. The first getppid comes before
 * accept, the second one is what the program does next. */
static void first(int listener, const struct sockaddr_in *at)
{
	pid_t child = fork();
	char b;

	need(child >= 0, "fork");
	if (!child) {
		int c = socket(AF_INET, SOCK_STREAM, 0);

		need(connect(c, (const struct sockaddr *)at, sizeof *at) == 0 && recv(c, &b, 1, 0) == 0, "client");
		exit(0);
	}
	getppid();
	int s = accept(listener, NULL, NULL);
	getppid();
	need(s >= 0 && close(s) == 0 && waitpid(child, NULL, 0) == child, "accept");
}

int main(int argc, char **argv)
{
	struct sockaddr_in any = {.sin_family = AF_INET}, at;
	socklen_t n = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0), set = -1, loops = argc > 1 && (!strcmp(argv[1], "loop") || !strcmp(argv[1], "poll"));
	pthread_t other;
	int few = argc > 1 && !strcmp(argv[1], "short"), requests = few ? REQUESTS : 1;

	threads = argc > 1 && !strcmp(argv[1], "threads");
	loops |= threads;
	need(!threads || pthread_create(&other, NULL, sleeper, NULL) == 0, "pthread_create");
	if (argc > 1 && (!strcmp(argv[1], "edges") || !strcmp(argv[1], "loop")))
		need((set = epoll_create1(0)) >= 0, "epoll_create1");
	else if (argc > 1 && !strcmp(argv[1], "loopback"))
		any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(bind(listener, (struct sockaddr *)&any, sizeof any) == 0 && listen(listener, 8) == 0, "listen");
	need(getsockname(listener, (struct sockaddr *)&at, &n) == 0, "getsockname");
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (argc > 1 && !strcmp(argv[1], "first")) {
		first(listener, &at);
		return 0;
	}
	/* The library finds its broker, maps its memory, and learns how short connections are. */
	for (int i = 0; i < (few ? WARM_SHORT : WARM); i++)
		once(listener, &at, i % 2, set, loops, requests);
	getppid();
	for (int i = 0; i < COUNTED; i++)
		once(listener, &at, i % 2, set, loops, requests);
	getppid();
	return 0;
}

/* Makes connections to itself, of one request each, between two calls of getppid, for a test that
 * counts the system calls. */
#define _GNU_SOURCE
#include <arpa/inet.h>
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

/* One connection, both ends: a request, an answer, the server closes first. name: accept tells the
 * client's address. */
static void once(int listener, const struct sockaddr_in *at, int name)
{
	struct sockaddr_in from;
	socklen_t n = sizeof from;
	char b[64] = {0};
	int c = socket(AF_INET, SOCK_STREAM, 0), s;

	need(connect(c, (const struct sockaddr *)at, sizeof *at) == 0, "connect");
	s = name ? accept(listener, (struct sockaddr *)&from, &n) : accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	need(s >= 0, "accept");
	need(send(c, b, sizeof b, 0) == sizeof b && recv(s, b, sizeof b, 0) == sizeof b, "request");
	need(send(s, b, sizeof b, 0) == sizeof b && recv(c, b, sizeof b, 0) == sizeof b, "answer");
	close(s);
	need(recv(c, b, 1, 0) == 0, "end");
	close(c);
}

int main(int argc, char **argv)
{
	struct sockaddr_in any = {.sin_family = AF_INET}, at;
	socklen_t n = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	if (argc > 1 && !strcmp(argv[1], "loopback"))
		any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(bind(listener, (struct sockaddr *)&any, sizeof any) == 0 && listen(listener, 8) == 0, "listen");
	need(getsockname(listener, (struct sockaddr *)&at, &n) == 0, "getsockname");
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int i = 0; i < 4; i++)
		once(listener, &at, i % 2); /* the library finds its broker, and maps its memory */
	getppid();
	for (int i = 0; i < 4; i++)
		once(listener, &at, i % 2);
	getppid();
	return 0;
}

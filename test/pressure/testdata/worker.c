/* A program as others write them, for the tests of package pressure: sockets, poll, epoll, nothing
 * of exnet. What it is told comes on standard input, a word a line; what it says is in lines on
 * standard output.
 *
 *   worker echo ADDR PORT          sends back what comes; goes on when accept fails
 *   worker hold ADDR PORT N        keeps N connections; round, add N, end
 *   worker churn ADDR PORT N       connects, moves some bytes and closes, N times
 *   worker stream ADDR PORT N      N connections that move as much as they can; where, end
 *   worker sink ADDR PORT          takes a connection, answers beats until it is told that it is enough, and reads
 *                                  nothing more until it is told to: read
 *   worker pour ADDR PORT BYTES    sends a beat whenever it is told to: beat; then until nothing more is taken;
 *                                  then, told to go, all BYTES
 *
 * Every byte is checked. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "numbered.h"

enum { BEAT = 1000, CHUNK = 65536, WINDOW = 512 << 10, MAX = 20000 };

static struct sockaddr_in where;

static void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

static void die(const char *what)
{
	say("error: %s: %s", what, strerror(errno));
	exit(1);
}

/* What a connection carries: bytes from at on. */
static void fill(uint8_t *b, size_t n, unsigned conn, uint64_t at) { numbered_fill((struct numbered){conn, 0}, b, n, at); }

static void check(const uint8_t *b, size_t n, unsigned conn, uint64_t at)
{
	size_t same = numbered_same((struct numbered){conn, 0}, b, n, at);

	if (same == n)
		return;
	struct checker c = {.s = {conn, 0}, .len = at + n, .right = at + same};
	for (; same < n && c.nwrong < sizeof c.wrong; same++)
		c.wrong[c.nwrong++] = b[same];
	printf("error: ");
	checker_tell(&c);
	exit(1);
}

/* A line of standard input without its end, or "end". */
static const char *told(void)
{
	static char line[64];

	if (!fgets(line, sizeof line, stdin))
		return "end";
	line[strcspn(line, "\n")] = 0;
	return line;
}

static int dial(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&where, sizeof where) < 0) {
		int saved = errno;
		close(fd);
		errno = saved;
		return -1;
	}
	return fd;
}

static int listener(void)
{
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (fd < 0 || bind(fd, (struct sockaddr *)&where, sizeof where) < 0 || listen(fd, 4096) < 0)
		die("listen");
	say("listening");
	return fd;
}

/* ---- connections that are kept ------------------------------------------------ */

struct conn {
	int fd;
	unsigned seed;
	uint64_t at, got;
	uint8_t *left; /* what echo could not send yet */
	size_t nleft;
};

static struct conn conns[MAX];
static int n;

/* Sends so many bytes and reads them back. */
static void message(struct conn *c, size_t len)
{
	static uint8_t out[CHUNK], in[CHUNK];

	fill(out, len, c->seed, c->at);
	for (size_t off = 0; off < len;) {
		ssize_t r = write(c->fd, out + off, len - off);
		if (r < 0)
			die("write");
		off += (size_t)r;
	}
	for (size_t off = 0; off < len;) {
		ssize_t r = read(c->fd, in + off, len - off);
		if (r <= 0)
			die(r ? "read" : "end of file");
		off += (size_t)r;
	}
	check(in, len, c->seed, c->at);
	c->at += len;
}

static uint64_t exchange(struct conn *c)
{
	message(c, 64);
	message(c, 1000);
	message(c, 20000);
	message(c, 64);
	return 21128;
}

/* Opens more connections, and returns how many. */
static int more(int want)
{
	int got = 0;

	for (; got < want && n < MAX; got++, n++) {
		int fd = dial();
		if (fd < 0)
			break;
		conns[n] = (struct conn){.fd = fd, .seed = (unsigned)n};
	}
	return got;
}

static void hold(int want)
{
	if (more(want) < want)
		die("connect");
	for (int i = 0; i < n; i++)
		exchange(&conns[i]);
	say("held %d", n);
	for (;;) {
		const char *word = told();

		if (!strcmp(word, "round")) {
			uint64_t bytes = 0;
			for (int i = 0; i < n; i++)
				bytes += exchange(&conns[i]);
			say("round %llu", (unsigned long long)bytes);
		} else if (!strncmp(word, "add ", 4)) {
			int k = atoi(word + 4), got = more(k);
			say("added %d %s", got, got < k ? strerror(errno) : "all");
		} else {
			for (int i = 0; i < n; i++)
				close(conns[i].fd);
			n = 0;
			say("closed");
			if (!strcmp(word, "end"))
				return;
		}
	}
}

static void churn(int times)
{
	uint64_t bytes = 0;

	for (int i = 0; i < times; i++) {
		struct conn c = {.fd = dial(), .seed = (unsigned)i};

		if (c.fd < 0)
			die("connect");
		bytes += exchange(&c);
		if (close(c.fd) < 0)
			die("close");
	}
	say("churned %d %llu", times, (unsigned long long)bytes);
	told();
}

/* ---- the server --------------------------------------------------------------- */

static void forget(int ep, struct conn *c)
{
	epoll_ctl(ep, EPOLL_CTL_DEL, c->fd, NULL);
	close(c->fd);
	free(c->left);
	free(c);
}

static void echo_some(int ep, struct conn *c)
{
	static uint8_t b[CHUNK];

	while (c->nleft) {
		ssize_t r = write(c->fd, c->left, c->nleft);
		if (r < 0) {
			if (errno != EAGAIN)
				forget(ep, c);
			return;
		}
		c->nleft -= (size_t)r;
		memmove(c->left, c->left + r, c->nleft);
		if (!c->nleft) {
			struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
			epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
		}
	}
	ssize_t got = read(c->fd, b, sizeof b);
	if (got < 0 && errno == EAGAIN)
		return;
	if (got <= 0) {
		forget(ep, c);
		return;
	}
	ssize_t sent = write(c->fd, b, (size_t)got);
	if (sent < 0 && errno != EAGAIN) {
		forget(ep, c);
		return;
	}
	if (sent < 0)
		sent = 0;
	if (sent < got) {
		struct epoll_event e = {.events = EPOLLOUT, .data.ptr = c};

		if (!c->left && !(c->left = malloc(CHUNK)))
			die("malloc");
		memcpy(c->left, b + sent, c->nleft = (size_t)(got - sent));
		epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
	}
}

static void echo(void)
{
	int l = listener(), ep = epoll_create1(0), failing = 0;
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, ready[256];

	fcntl(l, F_SETFL, O_NONBLOCK);
	epoll_ctl(ep, EPOLL_CTL_ADD, l, &e);
	for (;;) {
		int k = epoll_wait(ep, ready, 256, -1);

		for (int i = 0; i < k; i++) {
			if (ready[i].data.ptr) {
				echo_some(ep, ready[i].data.ptr);
				continue;
			}
			int fd = accept4(l, NULL, NULL, SOCK_NONBLOCK);
			if (fd < 0 && errno != EAGAIN && errno != ECONNABORTED) {
				if (!failing)
					say("accept: %s", strerror(errno));
				failing = 1;
				usleep(10000);
			}
			if (fd < 0)
				continue;
			if (failing)
				say("accepting");
			failing = 0;
			struct conn *c = calloc(1, sizeof *c);
			if (!c)
				die("calloc");
			c->fd = fd;
			e = (struct epoll_event){.events = EPOLLIN, .data.ptr = c};
			if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) < 0)
				die("epoll_ctl");
		}
	}
}

/* ---- as much as goes ---------------------------------------------------------- */

static void stream(int want)
{
	static uint8_t b[CHUNK];
	static struct pollfd p[MAX + 1];
	uint64_t bytes = 0;
	int ending = 0;

	if (more(want) < want)
		die("connect");
	for (int i = 0; i < n; i++)
		fcntl(conns[i].fd, F_SETFL, O_NONBLOCK);
	say("streaming");
	for (int open = n; open;) {
		p[n] = (struct pollfd){.fd = ending ? -1 : 0, .events = POLLIN};
		for (int i = 0; i < n; i++) {
			struct conn *c = &conns[i];
			int full = c->at - c->got >= WINDOW;
			p[i] = (struct pollfd){.fd = c->fd, .events = (short)(POLLIN | (full || ending ? 0 : POLLOUT))};
		}
		if (poll(p, (nfds_t)n + 1, -1) < 0)
			die("poll");
		for (int i = 0; i < n; i++) {
			struct conn *c = &conns[i];

			if (p[i].revents & POLLOUT) {
				fill(b, sizeof b, c->seed, c->at);
				ssize_t r = write(c->fd, b, sizeof b);
				if (r < 0 && errno != EAGAIN)
					die("write");
				c->at += r > 0 ? (uint64_t)r : 0;
			}
			if (p[i].revents & (POLLIN | POLLHUP | POLLERR)) {
				ssize_t r = read(c->fd, b, sizeof b);
				if (r < 0 && errno != EAGAIN)
					die("read");
				if (r == 0 && c->got != c->at) {
					say("error: end of file %llu bytes early", (unsigned long long)(c->at - c->got));
					exit(1);
				}
				if (r > 0) {
					check(b, (size_t)r, c->seed, c->got);
					c->got += (uint64_t)r;
					bytes += (uint64_t)r;
				}
			}
			if (ending && c->fd >= 0 && c->got == c->at) {
				close(c->fd);
				c->fd = -1;
				open--;
			}
		}
		if (p[n].revents) {
			if (!strcmp(told(), "where"))
				say("at %llu", (unsigned long long)bytes);
			else
				ending = 1;
		}
	}
	say("streamed %llu", (unsigned long long)bytes);
	told();
}

static void sink(void)
{
	static uint8_t b[CHUNK];
	int l = listener(), fd = accept(l, NULL, NULL);
	uint64_t bytes = 0;

	if (fd < 0)
		die("accept");
	/* Beats, until the test has seen enough. */
	for (;;) {
		struct pollfd p[] = {{.fd = 0, .events = POLLIN}, {.fd = fd, .events = POLLIN}};

		if (poll(p, 2, -1) < 0)
			die("poll");
		if (p[0].revents)
			break;
		for (size_t off = 0; off < BEAT;) {
			ssize_t r = read(fd, b, BEAT - off);
			if (r <= 0)
				die("read");
			check(b, (size_t)r, 0, bytes);
			bytes += (uint64_t)r;
			off += (size_t)r;
		}
		if (write(fd, "k", 1) != 1)
			die("write");
	}
	told();
	say("taken");
	while (strcmp(told(), "read"))
		;
	for (;;) {
		ssize_t r = read(fd, b, sizeof b);
		if (r < 0)
			die("read");
		if (r == 0)
			break;
		check(b, (size_t)r, 0, bytes);
		bytes += (uint64_t)r;
	}
	say("sunk %llu", (unsigned long long)bytes);
	told();
}

static void pour(uint64_t total)
{
	static uint8_t b[CHUNK];
	int fd = dial();
	uint64_t at = 0;
	char k;

	if (fd < 0)
		die("connect");
	for (say("connected"); !strcmp(told(), "beat"); at += BEAT, say("beat")) {
		fill(b, BEAT, 0, at);
		if (write(fd, b, BEAT) != BEAT || read(fd, &k, 1) != 1)
			die("beat");
	}
	fcntl(fd, F_SETFL, O_NONBLOCK);
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	while (at < total && poll(&p, 1, 500) > 0) {
		size_t len = total - at < sizeof b ? (size_t)(total - at) : sizeof b;
		fill(b, len, 0, at);
		ssize_t r = write(fd, b, len);
		if (r < 0 && errno != EAGAIN)
			die("write");
		at += r > 0 ? (uint64_t)r : 0;
	}
	say("full %llu", (unsigned long long)at);
	told();
	fcntl(fd, F_SETFL, 0);
	while (at < total) {
		size_t len = total - at < sizeof b ? (size_t)(total - at) : sizeof b;
		fill(b, len, 0, at);
		ssize_t r = write(fd, b, len);
		if (r < 0)
			die("write");
		at += (uint64_t)r;
	}
	close(fd);
	say("poured %llu", (unsigned long long)at);
	told();
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	where.sin_family = AF_INET;
	where.sin_port = htons((uint16_t)atoi(argv[3]));
	if (inet_pton(AF_INET, argv[2], &where.sin_addr) != 1)
		return 2;
	setvbuf(stdin, NULL, _IONBF, 0); /* poll sees what is left to read */
	const char *role = argv[1];
	long long number = argc > 4 ? atoll(argv[4]) : 0;
	if (!strcmp(role, "echo"))
		echo();
	else if (!strcmp(role, "hold"))
		hold((int)number);
	else if (!strcmp(role, "churn"))
		churn((int)number);
	else if (!strcmp(role, "stream"))
		stream((int)number);
	else if (!strcmp(role, "sink"))
		sink();
	else if (!strcmp(role, "pour"))
		pour((uint64_t)number);
	else
		return 2;
	return 0;
}

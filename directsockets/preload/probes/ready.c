#include "probe.h"

/* Probes of poll, select and epoll. */

static char buf[1 << 20];

static void poll_basic(void)
{
	int c, s;
	pair(&c, &s);
	struct pollfd p = {s, POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM, 0};
	R(poll(&p, 1, 0));
	out("%#x", (unsigned)p.revents);
	put(c, "x", 1);
	p.events = POLLIN;
	R(poll(&p, 1, LONG));
	out("%s", revents((unsigned)p.revents));
	p.events = POLLIN | POLLRDNORM;
	R(poll(&p, 1, LONG));
	out("%#x", (unsigned)p.revents);
	R(read(s, buf, 10));
	R(poll(&p, 1, 10));
	p.events = 0;
	R(poll(&p, 1, 0));
	p.fd = -1;
	R(poll(&p, 1, 0));
}

static void poll_mixed(void)
{
	int c, s, c2, s2, p[2];
	pair(&c, &s);
	pair_cold(&c2, &s2);
	if (pipe(p))
		die("pipe");
	struct pollfd f[4] = {{p[0], POLLIN, 0}, {s, POLLIN, 0}, {s2, POLLIN, 0}, {-1, POLLIN, 0}};
	R(poll(f, 4, 20));
	put(p[1], "x", 1);
	R(poll(f, 4, LONG));
	out("%s %s %s", revents((unsigned)f[0].revents), revents((unsigned)f[1].revents), revents((unsigned)f[2].revents));
	put(c, "x", 1);
	put(c2, "x", 1);
	arrived(s, 1);
	arrived(s2, 1);
	R(poll(f, 4, LONG));
	out("%s %s %s", revents((unsigned)f[0].revents), revents((unsigned)f[1].revents), revents((unsigned)f[2].revents));
	R(read(p[0], buf, 10));
	R(read(s2, buf, 10));
	R(poll(f, 4, LONG));
	out("%s %s %s", revents((unsigned)f[0].revents), revents((unsigned)f[1].revents), revents((unsigned)f[2].revents));
}

static void poll_sleeps(void)
{
	int c, s, pp[2];
	pthread_t t;
	pair(&c, &s);
	if (pipe(pp))
		die("pipe");
	struct pollfd f[2] = {{s, POLLIN, 0}, {pp[0], POLLIN, 0}};
	pthread_create(&t, NULL, write_later, &c);
	R(poll(f, 2, LONG));
	out("%s %s", revents((unsigned)f[0].revents), revents((unsigned)f[1].revents));
	pthread_join(t, NULL);
	R(read(s, buf, 10));
	pthread_create(&t, NULL, write_later, &pp[1]);
	R(poll(f, 2, LONG));
	out("%s %s", revents((unsigned)f[0].revents), revents((unsigned)f[1].revents));
	pthread_join(t, NULL);
}

static void poll_hangup(void)
{
	int c, s;
	pair(&c, &s);
	struct pollfd p = {s, POLLIN | POLLRDHUP, 0};
	shutdown(c, SHUT_WR);
	R(poll(&p, 1, LONG));
	out("%s", revents((unsigned)p.revents));
	p.events = POLLOUT;
	R(poll(&p, 1, 0));
	out("%s", revents((unsigned)p.revents));
	shutdown(s, SHUT_WR);
	nap(20);
	p.events = POLLIN | POLLOUT | POLLRDHUP;
	R(poll(&p, 1, LONG));
	out("%s", revents((unsigned)p.revents));
	R(read(s, buf, 10));
	close(s);
	p.fd = s;
	R(poll(&p, 1, 0));
	out("%s", revents((unsigned)p.revents));
}

static void select_mixed(void)
{
	int c, s, p[2], top;
	fd_set in, wr, ex;
	struct timeval tv = {0, 20000};
	pair(&c, &s);
	if (pipe(p))
		die("pipe");
	top = (s > p[0] ? s : p[0]) + 1;
	FD_ZERO(&in);
	FD_ZERO(&wr);
	FD_ZERO(&ex);
	FD_SET(s, &in), FD_SET(p[0], &in);
	R(select(top, &in, NULL, NULL, &tv));
	out("left %ld", (long)tv.tv_sec * 1000000 + tv.tv_usec);
	FD_SET(s, &in), FD_SET(p[0], &in), FD_SET(s, &wr), FD_SET(s, &ex);
	put(c, "x", 1);
	readable(s, LONG);
	tv = (struct timeval){5, 0};
	R(select(top, &in, &wr, &ex, &tv));
	out("%d %d %d %d", FD_ISSET(s, &in), FD_ISSET(p[0], &in), FD_ISSET(s, &wr), FD_ISSET(s, &ex));
	put(p[1], "x", 1);
	FD_ZERO(&in);
	FD_SET(s, &in), FD_SET(p[0], &in);
	R(select(top, &in, NULL, NULL, NULL));
	shutdown(c, SHUT_WR);
	R(read(s, buf, 1));
	FD_ZERO(&in);
	FD_SET(s, &in);
	R(select(s + 1, &in, NULL, NULL, NULL));
	R(read(s, buf, 1));
	close(p[1]);
	FD_SET(p[1], &in);
	R(select(p[1] + 1 > top ? p[1] + 1 : top, &in, NULL, NULL, &tv));
}

static volatile int handled;
static void on_signal(int sig)
{
	handled = sig;
}

static void masks(void)
{
	int c, s, ep = ep_new();
	sigset_t block, none;
	struct epoll_event ev;
	struct timespec t = {2, 0};
	struct sigaction sa = {.sa_handler = on_signal};
	pair(&c, &s);
	sigaction(SIGUSR1, &sa, NULL);
	sigemptyset(&none);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	sigprocmask(SIG_BLOCK, &block, NULL);
	struct pollfd p = {s, POLLIN, 0};
	raise(SIGUSR1);
	R(poll(&p, 1, 10));
	out("handled %d", handled);
	R(ppoll(&p, 1, &t, &none));
	out("handled %d", handled == SIGUSR1);
	handled = 0;
	raise(SIGUSR1);
	fd_set in;
	FD_ZERO(&in);
	FD_SET(s, &in);
	R(pselect(s + 1, &in, NULL, NULL, &t, &none));
	out("handled %d", handled == SIGUSR1);
	handled = 0;
	ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1);
	raise(SIGUSR1);
	R(epoll_wait(ep, &ev, 1, 10));
	out("handled %d", handled);
	R(epoll_pwait(ep, &ev, 1, 2000, &none));
	out("handled %d", handled == SIGUSR1);
	put(c, "x", 1);
	R(epoll_pwait(ep, &ev, 1, 2000, &none));
	t = (struct timespec){0, 1000};
	read(s, buf, 1) ;
	R(epoll_pwait2(ep, &ev, 1, &t, NULL));
}

static void epoll_level(void)
{
	int c, s, ep = ep_new();
	pair(&c, &s);
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 0xfedcba9876543210));
	ep_show(ep, 8, 0);
	put(c, "abcd", 4);
	ep_show(ep, 8, LONG);
	ep_show(ep, 8, LONG);
	R(read(s, buf, 2));
	ep_show(ep, 8, LONG);
	R(read(s, buf, 2));
	ep_show(ep, 8, 10);
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLOUT, 0x1111));
	ep_show(ep, 8, LONG);
	R(ep_set(ep, EPOLL_CTL_MOD, s, 0, 0x2222));
	ep_show(ep, 8, 10);
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1));
	R(ep_set(ep, EPOLL_CTL_DEL, s, 0, 0));
	R(ep_set(ep, EPOLL_CTL_DEL, s, 0, 0));
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLIN, 0));
	put(c, "x", 1);
	ep_show(ep, 8, 10);
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 0x3333));
	ep_show(ep, 8, LONG);
	struct epoll_event *volatile null = NULL; /* which compilers refuse */
	R(epoll_wait(ep, null, 0, 0));
}

static void epoll_edge(void)
{
	int c, s, ep = ep_new();
	pair(&c, &s);
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLET, 7));
	ep_show(ep, 8, 10);
	put(c, "abcd", 4);
	ep_show(ep, 8, LONG);
	ep_show(ep, 8, 20);
	R(read(s, buf, 2));
	ep_show(ep, 8, 20);
	put(c, "efgh", 4);
	ep_show(ep, 8, LONG);
	ep_show(ep, 8, 20);
	nonblock(s, 1);
	while (read(s, buf, sizeof buf) > 0)
		;
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLOUT | EPOLLET, 8));
	ep_show(ep, 8, LONG);
	ep_show(ep, 8, 20);
	put(c, "i", 1);
	ep_show(ep, 8, LONG);
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLET, 9));
	ep_show(ep, 8, LONG);
	shutdown(c, SHUT_WR);
	ep_show(ep, 8, LONG);
	ep_show(ep, 8, 20);
}

static void epoll_edge_out(void)
{
	int c, s, ep = ep_new();
	size_t sent = 0;
	ssize_t rc;
	pair(&c, &s);
	nonblock(c, 1);
	nonblock(s, 1);
	R(ep_set(ep, EPOLL_CTL_ADD, c, EPOLLOUT | EPOLLET, 1));
	ep_show(ep, 8, LONG);
	ep_show(ep, 8, 10);
	while ((rc = write(c, buf, 65536)) > 0)
		sent += (size_t)rc;
	ep_show(ep, 8, 20);
	while (sent > 0)
		if ((rc = read(s, buf, sizeof buf)) > 0)
			sent -= (size_t)rc;
		else
			readable(s, LONG);
	ep_show(ep, 8, LONG);
	ep_show(ep, 8, 20);
	R(write(c, "x", 1));
}

static void epoll_oneshot(void)
{
	int c, s, ep = ep_new();
	pair(&c, &s);
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLONESHOT, 7));
	put(c, "a", 1);
	ep_show(ep, 8, LONG);
	ep_show(ep, 8, 20);
	put(c, "b", 1);
	ep_show(ep, 8, 20);
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT, 8));
	ep_show(ep, 8, LONG);
	R(read(s, buf, 10));
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT, 9));
	ep_show(ep, 8, 20);
	put(c, "c", 1);
	ep_show(ep, 8, LONG);
	close(c);
	ended(s);
	ep_show(ep, 8, 20);
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLOUT | EPOLLRDHUP | EPOLLONESHOT, 10));
	ep_show(ep, 8, LONG);
}

static void epoll_rdhup(void)
{
	int c, s, ep = ep_new();
	pair(&c, &s);
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLRDHUP, 7));
	put(c, "last", 4);
	shutdown(c, SHUT_WR);
	arrived(s, 4);
	ended(s);
	ep_show(ep, 8, LONG);
	R(read(s, buf, 10));
	ep_show(ep, 8, LONG);
	R(read(s, buf, 10));
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLRDHUP, 8));
	ep_show(ep, 8, LONG);
	close(c);
	nap(20);
	shutdown(s, SHUT_WR);
	nap(20);
	R(ep_set(ep, EPOLL_CTL_MOD, s, 0, 9));
	ep_show(ep, 8, LONG);
}

static void lowat(void)
{
	int c, s, five = 5;
	pair(&c, &s);
	R(setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &five, sizeof five));
	put(c, "abc", 3);
	R(readable(s, 50));
	put(c, "def", 3);
	R(readable(s, LONG));
	R(read(s, buf, 100));
	put(c, "gh", 2);
	arrived(s, 2);
	R(recv(s, buf, 100, MSG_DONTWAIT));
	shutdown(c, SHUT_WR);
	R(readable(s, LONG));
	R(read(s, buf, 100));
}

/* Both ends send many small messages before they read. A queue of the library is full by then, and
 * TCP's buffers are not: each way to wait for room goes on. */
enum { BY_POLL, BY_EPOLL, BY_EDGE, BY_TRIAL, WAYS, MANY = 1000 };

static int await_room(int how, int ep, int fd)
{
	struct pollfd p = {fd, POLLOUT, 0};
	struct epoll_event ev;

	if (how == BY_POLL)
		return poll(&p, 1, LONG);
	if (how != BY_TRIAL)
		return ep_hear(ep, &ev, 1, LONG);
	nap(1);
	return 1;
}

static void ready_small(void)
{
	for (int how = 0; how < WAYS; how++) {
		int fd[2], sent[2] = {0, 0};

		pair(&fd[0], &fd[1]);
		for (int i = 0; i < 2; i++) {
			int ep = ep_new();

			nonblock(fd[i], 1);
			ep_set(ep, EPOLL_CTL_ADD, fd[i], how == BY_EDGE ? EPOLLOUT | EPOLLET : EPOLLOUT, 1);
			while (sent[i] < MANY) {
				char c = (char)(sent[i] * 7 + i);

				if (send(fd[i], &c, 1, 0) == 1)
					sent[i]++;
				else if (await_room(how, ep, fd[i]) != 1)
					break;
			}
			close(ep);
			nonblock(fd[i], 0);
		}
		for (int i = 0; i < 2; i++) {
			char got[MANY];
			int wrong = 0;

			get(fd[i], got, (size_t)sent[!i]);
			for (int k = 0; k < sent[!i]; k++)
				wrong += got[k] != (char)(k * 7 + !i);
			out("sent %d, wrong %d", sent[i], wrong);
		}
		close(fd[0]);
		close(fd[1]);
	}
}

/* Who asks for room first gets as much as who sends until there is none. */
static void ready_much(void)
{
	enum { PART = 20000, LEAST = 1 << 20 };
	static char b[PART];
	int c, s;
	long sent = 0;

	pair(&c, &s);
	nonblock(c, 1);
	for (struct pollfd p = {c, POLLOUT, 0}; sent < LEAST && poll(&p, 1, 0) == 1;)
		sent += send(c, b, PART, 0);
	out("%d", sent >= LEAST);
}

const struct probe ready_probes[] = {
	{"poll-basic", poll_basic, 0},
	{"poll-mixed", poll_mixed, 0},
	{"poll-sleeps", poll_sleeps, 0},
	{"poll-hangup", poll_hangup, 0},
	{"select-mixed", select_mixed, 0},
	{"signal-masks", masks, 0},
	{"epoll-level", epoll_level, 0},
	{"epoll-edge", epoll_edge, 0},
	{"epoll-edge-out", epoll_edge_out, 0},
	{"epoll-oneshot", epoll_oneshot, 0},
	{"epoll-rdhup", epoll_rdhup, 0},
	{"rcvlowat", lowat, 0},
	{"ready-small", ready_small, 0},
	{"ready-much", ready_much, 0},
	{NULL, NULL, 0},
};

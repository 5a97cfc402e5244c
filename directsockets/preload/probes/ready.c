#include "probe.h"

/* Probes of poll, select and epoll. */

static char buf[1 << 20];

static int ep_new(void)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);
	if (fd < 0)
		die("epoll_create1");
	return fd;
}

static int ep_set(int ep, int op, int fd, unsigned events, unsigned long data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};
	return epoll_ctl(ep, op, fd, &ev);
}

/* Waits and writes what comes, sorted by data. */
static int ep_show(int ep, int max, int ms)
{
	struct epoll_event ev[64];
	int n = epoll_wait(ep, ev, max, ms);

	if (n < 0) {
		out("epoll_wait: %s", errname(errno));
		return n;
	}
	for (int i = 0; i < n; i++)
		for (int j = i + 1; j < n; j++)
			if (ev[j].data.u64 < ev[i].data.u64) {
				struct epoll_event t = ev[i];
				ev[i] = ev[j];
				ev[j] = t;
			}
	out("%d events", n);
	for (int i = 0; i < n; i++)
		out("  %#lx %s", (unsigned long)ev[i].data.u64, revents(ev[i].events));
	return n;
}

static void poll_basic(void)
{
	int c, s;
	pair(&c, &s);
	struct pollfd p = {s, POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM, 0};
	R(poll(&p, 1, 0));
	out("%#x", (unsigned)p.revents);
	put(c, "x", 1);
	p.events = POLLIN;
	R(poll(&p, 1, 1000));
	out("%s", revents((unsigned)p.revents));
	p.events = POLLIN | POLLRDNORM;
	R(poll(&p, 1, 1000));
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
	R(poll(f, 4, 1000));
	out("%s %s %s", revents((unsigned)f[0].revents), revents((unsigned)f[1].revents), revents((unsigned)f[2].revents));
	put(c, "x", 1);
	put(c2, "x", 1);
	nap(20);
	R(poll(f, 4, 1000));
	out("%s %s %s", revents((unsigned)f[0].revents), revents((unsigned)f[1].revents), revents((unsigned)f[2].revents));
	R(read(p[0], buf, 10));
	R(read(s2, buf, 10));
	R(poll(f, 4, 1000));
	out("%s %s %s", revents((unsigned)f[0].revents), revents((unsigned)f[1].revents), revents((unsigned)f[2].revents));
}

static void *write_later(void *p)
{
	nap(50);
	put(*(int *)p, "late", 4);
	return NULL;
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
	R(poll(f, 2, 5000));
	out("%s %s", revents((unsigned)f[0].revents), revents((unsigned)f[1].revents));
	pthread_join(t, NULL);
	R(read(s, buf, 10));
	pthread_create(&t, NULL, write_later, &pp[1]);
	R(poll(f, 2, 5000));
	out("%s %s", revents((unsigned)f[0].revents), revents((unsigned)f[1].revents));
	pthread_join(t, NULL);
}

static void poll_hangup(void)
{
	int c, s;
	pair(&c, &s);
	struct pollfd p = {s, POLLIN | POLLRDHUP, 0};
	shutdown(c, SHUT_WR);
	R(poll(&p, 1, 1000));
	out("%s", revents((unsigned)p.revents));
	p.events = POLLOUT;
	R(poll(&p, 1, 0));
	out("%s", revents((unsigned)p.revents));
	shutdown(s, SHUT_WR);
	nap(20);
	p.events = POLLIN | POLLOUT | POLLRDHUP;
	R(poll(&p, 1, 1000));
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
	readable(s, 1000);
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
	ep_show(ep, 8, 1000);
	ep_show(ep, 8, 1000);
	R(read(s, buf, 2));
	ep_show(ep, 8, 1000);
	R(read(s, buf, 2));
	ep_show(ep, 8, 10);
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLOUT, 0x1111));
	ep_show(ep, 8, 1000);
	R(ep_set(ep, EPOLL_CTL_MOD, s, 0, 0x2222));
	ep_show(ep, 8, 10);
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1));
	R(ep_set(ep, EPOLL_CTL_DEL, s, 0, 0));
	R(ep_set(ep, EPOLL_CTL_DEL, s, 0, 0));
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLIN, 0));
	put(c, "x", 1);
	ep_show(ep, 8, 10);
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 0x3333));
	ep_show(ep, 8, 1000);
	R(epoll_wait(ep, NULL, 0, 0));
}

static void epoll_edge(void)
{
	int c, s, ep = ep_new();
	pair(&c, &s);
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLET, 7));
	ep_show(ep, 8, 10);
	put(c, "abcd", 4);
	ep_show(ep, 8, 1000);
	ep_show(ep, 8, 20);
	R(read(s, buf, 2));
	ep_show(ep, 8, 20);
	put(c, "efgh", 4);
	ep_show(ep, 8, 1000);
	ep_show(ep, 8, 20);
	nonblock(s, 1);
	while (read(s, buf, sizeof buf) > 0)
		;
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLOUT | EPOLLET, 8));
	ep_show(ep, 8, 1000);
	ep_show(ep, 8, 20);
	put(c, "i", 1);
	ep_show(ep, 8, 1000);
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLET, 9));
	ep_show(ep, 8, 1000);
	shutdown(c, SHUT_WR);
	ep_show(ep, 8, 1000);
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
	ep_show(ep, 8, 1000);
	ep_show(ep, 8, 10);
	while ((rc = write(c, buf, 65536)) > 0)
		sent += (size_t)rc;
	ep_show(ep, 8, 20);
	while (sent > 0)
		if ((rc = read(s, buf, sizeof buf)) > 0)
			sent -= (size_t)rc;
		else
			readable(s, 1000);
	ep_show(ep, 8, 1000);
	ep_show(ep, 8, 20);
	R(write(c, "x", 1));
}

static void epoll_oneshot(void)
{
	int c, s, ep = ep_new();
	pair(&c, &s);
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLONESHOT, 7));
	put(c, "a", 1);
	ep_show(ep, 8, 1000);
	ep_show(ep, 8, 20);
	put(c, "b", 1);
	ep_show(ep, 8, 20);
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT, 8));
	ep_show(ep, 8, 1000);
	R(read(s, buf, 10));
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT, 9));
	ep_show(ep, 8, 20);
	put(c, "c", 1);
	ep_show(ep, 8, 1000);
	close(c);
	nap(20);
	ep_show(ep, 8, 20);
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLOUT | EPOLLRDHUP | EPOLLONESHOT, 10));
	ep_show(ep, 8, 1000);
}

static void epoll_rdhup(void)
{
	int c, s, ep = ep_new();
	pair(&c, &s);
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLRDHUP, 7));
	put(c, "last", 4);
	shutdown(c, SHUT_WR);
	nap(20);
	ep_show(ep, 8, 1000);
	R(read(s, buf, 10));
	ep_show(ep, 8, 1000);
	R(read(s, buf, 10));
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLRDHUP, 8));
	ep_show(ep, 8, 1000);
	close(c);
	nap(20);
	shutdown(s, SHUT_WR);
	nap(20);
	R(ep_set(ep, EPOLL_CTL_MOD, s, 0, 9));
	ep_show(ep, 8, 1000);
}

static void epoll_nested(void)
{
	int c, s, inner = ep_new(), outer = ep_new();
	pthread_t t;
	pair(&c, &s);
	R(ep_set(inner, EPOLL_CTL_ADD, s, EPOLLIN, 1));
	R(ep_set(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2));
	ep_show(outer, 8, 10);
	put(c, "x", 1);
	ep_show(outer, 8, 1000);
	ep_show(inner, 8, 1000);
	ep_show(outer, 8, 1000);
	R(read(s, buf, 10));
	ep_show(inner, 8, 10);
	ep_show(outer, 8, 10);
	pthread_create(&t, NULL, write_later, &c);
	ep_show(outer, 8, 5000);
	ep_show(inner, 8, 0);
	pthread_join(t, NULL);
	R(read(s, buf, 10));
}

static void epoll_polled(void)
{
	int c, s, ep = ep_new();
	pthread_t t;
	pair(&c, &s);
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1));
	ep_show(ep, 8, 0);
	R(readable(ep, 10));
	pthread_create(&t, NULL, write_later, &c);
	R(readable(ep, 5000));
	pthread_join(t, NULL);
	ep_show(ep, 8, 0);
	R(readable(ep, 10));
	R(read(s, buf, 10));
	ep_show(ep, 8, 0);
	R(readable(ep, 10));
}

static void epoll_two(void)
{
	int c, s, a = ep_new(), b = ep_new();
	pair(&c, &s);
	R(ep_set(a, EPOLL_CTL_ADD, s, EPOLLIN, 1));
	R(ep_set(b, EPOLL_CTL_ADD, s, EPOLLIN, 2));
	ep_show(a, 8, 10);
	ep_show(b, 8, 10);
	put(c, "x", 1);
	ep_show(a, 8, 1000);
	ep_show(b, 8, 1000);
	R(read(s, buf, 10));
	ep_show(a, 8, 10);
	ep_show(b, 8, 10);
	put(c, "y", 1);
	ep_show(b, 8, 1000);
	ep_show(a, 8, 1000);
}

struct waiter {
	int ep, n;
	pthread_t t;
	struct epoll_event ev;
};

static void *wait_in(void *p)
{
	struct waiter *w = p;
	w->n = epoll_wait(w->ep, &w->ev, 1, 3000);
	return NULL;
}

static void epoll_exclusive(void)
{
	int c, s;
	struct waiter w[2] = {{.ep = ep_new()}, {.ep = ep_new()}};
	pair_cold(&c, &s);
	R(ep_set(w[0].ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLEXCLUSIVE, 1));
	R(ep_set(w[1].ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLEXCLUSIVE, 2));
	warm(c, s);
	R(ep_set(w[1].ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLEXCLUSIVE, 2));
	for (int i = 0; i < 2; i++)
		pthread_create(&w[i].t, NULL, wait_in, &w[i]);
	nap(50);
	put(c, "x", 1);
	nap(50);
	put(c, "y", 1);
	nap(50);
	put(c, "z", 1);
	int some = 0;
	for (int i = 0; i < 2; i++) {
		pthread_join(w[i].t, NULL);
		some += w[i].n == 1;
	}
	out("some were woken %d", some > 0);
}

static void epoll_threads(void)
{
	int c[4], s[4], ep = ep_new();
	struct waiter w[4];
	unsigned seen = 0;
	for (int i = 0; i < 4; i++) {
		pair(&c[i], &s[i]);
		ep_set(ep, EPOLL_CTL_ADD, s[i], EPOLLIN | EPOLLONESHOT, (unsigned long)i);
	}
	for (int i = 0; i < 4; i++) {
		w[i] = (struct waiter){.ep = ep};
		pthread_create(&w[i].t, NULL, wait_in, &w[i]);
	}
	nap(50);
	for (int i = 0; i < 4; i++)
		put(c[i], "x", 1);
	for (int i = 0; i < 4; i++) {
		pthread_join(w[i].t, NULL);
		out("%d", w[i].n);
		seen |= 1u << w[i].ev.data.u64;
	}
	out("seen %#x", seen);
	/* one sleeps while another changes the set */
	w[0] = (struct waiter){.ep = ep};
	pthread_create(&w[0].t, NULL, wait_in, &w[0]);
	nap(50);
	R(ep_set(ep, EPOLL_CTL_MOD, s[2], EPOLLIN | EPOLLONESHOT, 77));
	pthread_join(w[0].t, NULL);
	out("%d %lu", w[0].n, (unsigned long)w[0].ev.data.u64);
	int c2, s2;
	pair(&c2, &s2);
	w[0] = (struct waiter){.ep = ep};
	pthread_create(&w[0].t, NULL, wait_in, &w[0]);
	nap(50);
	R(ep_set(ep, EPOLL_CTL_ADD, s2, EPOLLIN, 78));
	nap(50);
	put(c2, "x", 1);
	pthread_join(w[0].t, NULL);
	out("%d %lu", w[0].n, (unsigned long)w[0].ev.data.u64);
}

static void epoll_fair(void)
{
	int c[5], s[5], ep = ep_new(), p[2];
	unsigned seen = 0;
	struct epoll_event ev;
	if (pipe(p))
		die("pipe");
	for (int i = 0; i < 5; i++) {
		pair(&c[i], &s[i]);
		ep_set(ep, EPOLL_CTL_ADD, s[i], EPOLLIN, (unsigned long)i);
		put(c[i], "x", 1);
	}
	ep_set(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 5);
	put(p[1], "x", 1);
	nap(20);
	for (int i = 0; i < 100; i++)
		if (epoll_wait(ep, &ev, 1, 1000) == 1)
			seen |= 1u << ev.data.u64;
	out("seen %#x", seen);
}

static void epoll_mixed(void)
{
	int c, s, ep = ep_new(), tfd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), efd = eventfd(0, 0);
	struct itimerspec t = {{0, 0}, {0, 30000000}};
	unsigned long one = 1;
	pair(&c, &s);
	ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1);
	ep_set(ep, EPOLL_CTL_ADD, tfd, EPOLLIN, 2);
	ep_set(ep, EPOLL_CTL_ADD, efd, EPOLLIN, 3);
	ep_show(ep, 8, 0);
	timerfd_settime(tfd, 0, &t, NULL);
	ep_show(ep, 8, 5000);
	R(read(tfd, buf, 8));
	put(c, "x", 1);
	ep_show(ep, 8, 5000);
	put(efd, &one, 8);
	nap(10);
	int n = 0;
	for (int i = 0; i < 64 && n < 2; i++) {
		struct epoll_event ev[8];
		n = epoll_wait(ep, ev, 8, 1000);
	}
	out("both %d", n);
	R(read(efd, buf, 8));
	R(read(s, buf, 8));
	ep_show(ep, 8, 20);
}

static void epoll_close(void)
{
	int c, s, c2, s2, ep = ep_new();
	pair(&c, &s);
	pair(&c2, &s2);
	ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1);
	ep_set(ep, EPOLL_CTL_ADD, s2, EPOLLIN, 2);
	put(c, "x", 1);
	put(c2, "x", 1);
	nap(20);
	close(s);
	ep_show(ep, 8, 1000);
	int d = dup(s2);
	close(s2);
	ep_show(ep, 8, 1000); /* the socket is still open */
	R(read(d, buf, 10));
	ep_show(ep, 8, 10);
	close(d);
	ep_show(ep, 8, 10);
}

static void epoll_peer_closes(void)
{
	int c, s, ep = ep_new();
	pair(&c, &s);
	ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1);
	put(c, "bye", 3);
	close(c);
	nap(20);
	ep_show(ep, 8, 1000);
	R(read(s, buf, 3));
	ep_show(ep, 8, 1000);
	R(read(s, buf, 3));
	R(write(s, "x", 1));
	nap(20);
	ep_show(ep, 8, 1000);
	R(read(s, buf, 3));
}

static void epoll_before_connect(void)
{
	struct sockaddr_in a;
	int l = listener(&a), ep = ep_new(), err = -1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	socklen_t len = sizeof err;
	nap(20);
	R(ep_set(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT | EPOLLET, 5));
	int rc = connect(fd, (struct sockaddr *)&a, sizeof a);
	out("%s", rc == 0 || errno == EINPROGRESS ? "under way" : errname(errno));
	int s = accept(l, NULL, NULL);
	struct pollfd p = {fd, POLLOUT, 0};
	R(poll(&p, 1, 1000));
	R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len));
	out("%d", err);
	struct epoll_event ev;
	R(epoll_wait(ep, &ev, 1, 1000));
	warm(fd, s);
	put(s, "data", 4);
	while (epoll_wait(ep, &ev, 1, 1000) == 1 && !(ev.events & EPOLLIN))
		;
	out("%lu %s", (unsigned long)ev.data.u64, revents(ev.events & EPOLLIN));
	R(read(fd, buf, 10));
	R(read(fd, buf, 10));
}

static void many(void)
{
	enum { N = 60 };
	int c[N], s[N], ep = ep_new(), done = 0;
	struct epoll_event ev[16];
	for (int i = 0; i < N; i++) {
		pair(&c[i], &s[i]);
		nonblock(s[i], 1);
		ep_set(ep, EPOLL_CTL_ADD, s[i], EPOLLIN | (i % 2 ? EPOLLET : 0), (unsigned long)i);
	}
	pid_t pid = fork();
	if (pid == 0) {
		char b;
		for (int r = 0; r < 20; r++) {
			for (int i = 0; i < N; i++)
				put(c[i], "q", 1);
			for (int i = 0; i < N; i++)
				get(c[i], &b, 1);
		}
		_exit(0);
	}
	while (done < N * 20) {
		int n = epoll_wait(ep, ev, 16, 3000);
		if (n <= 0)
			break;
		for (int i = 0; i < n; i++) {
			ssize_t rc = read(s[ev[i].data.u64], buf, 100);
			if (rc > 0) {
				put(s[ev[i].data.u64], buf, (size_t)rc);
				done += (int)rc;
			}
		}
	}
	out("%d", done);
	finish(pid);
}

static void lowat(void)
{
	int c, s, five = 5;
	pair(&c, &s);
	R(setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &five, sizeof five));
	put(c, "abc", 3);
	R(readable(s, 50));
	put(c, "def", 3);
	R(readable(s, 1000));
	R(read(s, buf, 100));
	put(c, "gh", 2);
	nap(20);
	R(recv(s, buf, 100, MSG_DONTWAIT));
	shutdown(c, SHUT_WR);
	R(readable(s, 1000));
	R(read(s, buf, 100));
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
	{"epoll-nested", epoll_nested, 0},
	{"epoll-polled", epoll_polled, 0},
	{"epoll-two", epoll_two, 0},
	{"epoll-exclusive", epoll_exclusive, 0},
	{"epoll-threads", epoll_threads, 0},
	{"epoll-fair", epoll_fair, 0},
	{"epoll-mixed", epoll_mixed, 0},
	{"epoll-close", epoll_close, 0},
	{"epoll-peer-closes", epoll_peer_closes, 0},
	{"epoll-before-connect", epoll_before_connect, 0},
	{"many-connections", many, 0},
	{"rcvlowat", lowat, 0},
	{NULL, NULL, 0},
};

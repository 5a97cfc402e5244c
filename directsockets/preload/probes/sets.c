#include "probe.h"

/* Probes of epoll instances with several sockets, waiters, or each other in them. */

static char buf[1 << 16];

static void epoll_nested(void)
{
	int c, s, inner = ep_new(), outer = ep_new();
	pthread_t t;
	pair(&c, &s);
	R(ep_set(inner, EPOLL_CTL_ADD, s, EPOLLIN, 1));
	R(ep_set(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2));
	ep_show(outer, 8, 10);
	put(c, "x", 1);
	ep_show(outer, 8, LONG);
	ep_show(inner, 8, LONG);
	ep_show(outer, 8, LONG);
	R(read(s, buf, 10));
	ep_show(inner, 8, 10);
	ep_show(outer, 8, 10);
	pthread_create(&t, NULL, write_later, &c);
	ep_show(outer, 8, LONG);
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
	R(readable(ep, LONG));
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
	ep_show(a, 8, LONG);
	ep_show(b, 8, LONG);
	R(read(s, buf, 10));
	ep_show(a, 8, 10);
	ep_show(b, 8, 10);
	put(c, "y", 1);
	ep_show(b, 8, LONG);
	ep_show(a, 8, LONG);
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
	for (int i = 0; i < 5; i++)
		arrived(s[i], 1);
	for (int i = 0; i < 100; i++)
		if (ep_hear(ep, &ev, 1, LONG) == 1)
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
	ep_show(ep, 8, LONG);
	R(read(tfd, buf, 8));
	put(c, "x", 1);
	ep_show(ep, 8, LONG);
	put(efd, &one, 8);
	arrived(s, 1);
	int n = 0;
	for (int i = 0; i < 64 && n < 2; i++) {
		struct epoll_event ev[8];
		n = ep_hear(ep, ev, 8, LONG);
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
	arrived(s, 1);
	arrived(s2, 1);
	close(s);
	ep_show(ep, 8, LONG);
	int d = dup(s2);
	close(s2);
	ep_show(ep, 8, LONG); /* the socket is still open */
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
	ended(s);
	ep_show(ep, 8, LONG);
	R(read(s, buf, 3));
	ep_show(ep, 8, LONG);
	R(read(s, buf, 3));
	R(write(s, "x", 1));
	cut(s);
	ep_show(ep, 8, LONG);
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
	R(poll(&p, 1, LONG));
	R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len));
	out("%d", err);
	struct epoll_event ev;
	R(epoll_wait(ep, &ev, 1, LONG));
	warm(fd, s);
	put(s, "data", 4);
	while (ep_hear(ep, &ev, 1, LONG) == 1 && !(ev.events & EPOLLIN))
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
		int n = ep_hear(ep, ev, 16, LONG);
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

/* Edges while both ends fall asleep and wake: none may be lost. */
static void edge_stress(void)
{
	int c, s, ep = ep_new(), rounds = 0, all = fewer(10000);
	struct epoll_event ev[4];
	pair(&c, &s);
	nonblock(c, 1);
	nonblock(s, 1);
	pid_t pid = fork();
	if (pid == 0) {
		close(c);
		ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 1);
		for (;;) {
			ssize_t n;
			if (ep_hear(ep, ev, 4, LONG) <= 0)
				_exit(1);
			while ((n = read(s, buf, sizeof buf)) > 0)
				put(s, buf, (size_t)n);
			if (n == 0)
				_exit(0);
		}
	}
	close(s);
	int mine = ep_new();
	ep_set(mine, EPOLL_CTL_ADD, c, EPOLLIN, 2);
	for (; rounds < all; rounds++) {
		put(c, "ping", 4);
		if (rounds % 7 == 0)
			put(c, "more", 4);
		size_t want = rounds % 7 == 0 ? 8 : 4;
		while (want > 0 && ep_hear(mine, ev, 4, LONG) == 1) {
			ssize_t n = read(c, buf, sizeof buf);
			want -= n > 0 ? (size_t)n : 0;
		}
		if (want > 0)
			break;
	}
	out("%d rounds", rounds);
	close(c);
	finish(pid);
}

/* An instance that two processes have: what the child adds, the parent hears of too. */
static void epoll_fork_late(void)
{
	int c, s, c2, s2, ep = ep_new(), p[2];
	pair(&c, &s);
	pair(&c2, &s2);
	ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1);
	if (pipe(p))
		die("pipe");
	pid_t pid = fork();
	if (pid == 0) {
		R(ep_set(ep, EPOLL_CTL_ADD, s2, EPOLLIN | EPOLLET, 2));
		put(p[1], "x", 1);
		nap(200);
		_exit(0);
	}
	get(p[0], buf, 1);
	ep_show(ep, 4, 0);
	put(c2, "late", 4);
	ep_show(ep, 4, LONG);
	R(read(s2, buf, 10));
	put(c, "early", 5);
	ep_show(ep, 4, LONG);
	R(read(s, buf, 10));
	finish(pid);
	put(c, "again", 5);
	ep_show(ep, 4, LONG);
	R(read(s, buf, 10));
	close(s);
	R(read(c, buf, 10));
	R(ep_set(ep, EPOLL_CTL_DEL, s2, 0, 0));
	R(write(s2, "back", 4));
	R(read(c2, buf, 10));
}

/* A process that goes on in a child, as daemons do, with the instance it had before. */
static void epoll_daemon(void)
{
	int p[2];
	if (pipe(p))
		die("pipe");
	pid_t pid = fork();
	if (pid == 0) {
		int ep = ep_new();
		pid_t maker = getpid();
		if (fork() == 0) {
			int c, s;
			while (getppid() == maker)
				nap(1);
			pair(&c, &s);
			ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 3);
			put(c, "x", 1);
			ep_show(ep, 4, LONG);
			R(read(s, buf, 10));
			close(c);
			ep_show(ep, 4, LONG);
			R(read(s, buf, 10));
			put(p[1], "x", 1);
		}
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	close(p[1]);
	R(read(p[0], buf, 1));
}

enum { CROWD = 80 };

/* Polls all of set, and writes which are ready and what can be read there. */
static void show_crowd(struct pollfd *set, int ms)
{
	char b[4];

	R(poll(set, CROWD, ms));
	for (int i = 0; i < CROWD; i++) {
		if (!set[i].revents)
			continue;
		long n = set[i].revents & POLLIN ? read(set[i].fd, b, sizeof b) : -1;
		out("%d: %s, reads %ld", i, revents((unsigned)set[i].revents), n);
	}
}

struct crowd {
	int c[CROWD], s[CROWD], go[2];
};

/* The peer of all: acts when it is told to, a moment later, so that the other end sleeps. */
static void crowd_peer(void *arg)
{
	struct crowd *w = arg;
	char b;

	close(w->go[1]);
	for (int i = 0; i < CROWD; i++)
		close(w->s[i]);
	for (int step = 0; read(w->go[0], &b, 1) == 1; step++) {
		nap(30);
		switch (step) {
		case 0: put(w->c[20], "x", 1); break;
		case 1: put(w->c[23], "y", 1); break; /* on TCP, at first */
		case 2: close(w->c[21]); break;
		case 3: shutdown(w->c[22], SHUT_WR); break;
		default: kill(getpid(), SIGKILL);
		}
	}
}

/* A set of many sockets, most of which are idle. */
static void poll_crowd(void)
{
	static struct crowd w;
	struct pollfd set[CROWD];
	fd_set in;
	int top = 0, n;

	for (int i = 0; i < CROWD; i++) {
		(i % 4 == 3 ? pair_cold : pair)(&w.c[i], &w.s[i]);
		set[i] = (struct pollfd){w.s[i], POLLIN, 0};
	}
	show_crowd(set, 0);
	show_crowd(set, 10);
	put(w.c[7], "ab", 2);
	put(w.c[5], "a", 1);
	show_crowd(set, LONG);
	show_crowd(set, 10);
	set[6].events = POLLOUT;
	show_crowd(set, LONG);
	set[6].events = POLLIN | POLLRDHUP | POLLPRI;
	R(send(w.c[6], "o", 1, MSG_OOB));
	show_crowd(set, LONG);
	R(recv(w.s[6], &(char){0}, 1, MSG_OOB));
	R(shutdown(w.s[10], SHUT_RDWR));
	show_crowd(set, LONG);
	set[10].fd = -1;
	if (pipe(w.go))
		die("pipe");
	pid_t pid = start(crowd_peer, &w);
	for (int i = 0; i < CROWD; i++)
		close(w.c[i]);
	for (int step = 0; step < 5; step++) {
		put(w.go[1], "g", 1);
		if (step == 4) { /* killed: how many ends are reported at first varies */
			R(poll(set, CROWD, LONG) > 0);
			break;
		}
		show_crowd(set, LONG);
		if (step >= 2)
			set[21].fd = -1;
		if (step >= 3)
			set[22].fd = -1;
		if (step == 1) { /* the same by select */
			FD_ZERO(&in);
			for (int i = 0; i < CROWD; i++)
				if (set[i].fd >= 0) {
					FD_SET(set[i].fd, &in);
					top = set[i].fd > top ? set[i].fd : top;
				}
			struct timeval t = {0, 10000};
			R(select(top + 1, &in, NULL, NULL, &t));
		}
	}
	finish(pid);
	n = poll(set, CROWD, LONG); /* the peer of all is gone */
	out("all ended: %d", n);
}

const struct probe set_probes[] = {
	{"poll-crowd", poll_crowd, 0},
	{"epoll-nested", epoll_nested, 0},
	{"epoll-polled", epoll_polled, 0},
	{"epoll-two", epoll_two, 0},
	{"epoll-fair", epoll_fair, 0},
	{"epoll-mixed", epoll_mixed, 0},
	{"epoll-close", epoll_close, 0},
	{"epoll-peer-closes", epoll_peer_closes, 0},
	{"epoll-before-connect", epoll_before_connect, 0},
	{"epoll-fork-late", epoll_fork_late, 0},
	{"epoll-daemon", epoll_daemon, 1},
	{"many-connections", many, 0},
	{"edge-stress", edge_stress, 0},
	{NULL, NULL, 0},
};

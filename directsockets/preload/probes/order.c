#include "probe.h"

/* Probes of the order in which epoll and poll tell of several connections. One thread writes on one
 * of them, then on another: who is told about the second shall know of the first. What is asked of
 * the kernel here is what its ready list promises: that is empty at the beginning of each round, as
 * every one was looked at after it was read. */

enum { N = 3, ROUNDS = 300 };

static char buf[64];

struct side {
	int fd[N], go, done;
};

static unsigned next_random(unsigned *seed) { return random_below(seed, 0x8000); }

/* The same order in both processes. */
static void shuffle(int order[N], unsigned *seed)
{
	for (int i = 0; i < N; i++)
		order[i] = i;
	for (int i = N - 1; i > 0; i--) {
		int j = (int)(next_random(seed) % (unsigned)(i + 1)), t = order[i];
		order[i] = order[j];
		order[j] = t;
	}
}

static void writer(void *arg)
{
	struct side *w = arg;
	unsigned seed = 7;
	int order[N];
	char b;

	for (int r = 0; r < ROUNDS; r++) {
		get(w->go, &b, 1);
		shuffle(order, &seed);
		for (int i = 0; i < N; i++) {
			b = (char)('0' + i);
			put(w->fd[order[i]], &b, 1);
		}
		put(w->done, &b, 1);
		for (int i = 0; i < N; i++)
			get(w->fd[i], &b, 1);
	}
}

static pid_t begin(struct side *s, int tcp)
{
	struct side w;
	int go[2], done[2];

	if (pipe(go) || pipe(done))
		die("pipe");
	for (int i = 0; i < N; i++) {
		pair(&w.fd[i], &s->fd[i]);
		int none = 0; // with this option a connection stays on TCP
		if (i >= N - tcp && setsockopt(s->fd[i], SOL_SOCKET, SO_TIMESTAMPING, &none, sizeof none))
			die("SO_TIMESTAMPING");
	}
	w.go = go[0];
	w.done = done[1];
	s->go = go[1];
	s->done = done[0];
	pid_t pid = start(writer, &w);
	for (int i = 0; i < N; i++)
		close(w.fd[i]); // else nobody hears the child's end
	return pid;
}

/* Takes what is told in one call; early counts those that came before one that was not told about
 * yet. */
static int take(struct side *s, const struct epoll_event *ev, int n, unsigned *told, int *early)
{
	for (int i = 0; i < n; i++) {
		unsigned long at = ev[i].data.u64;
		char b;
		get(s->fd[at], &b, 1);
		*early += *told != (1u << (b - '0')) - 1;
		*told |= 1u << (b - '0');
		put(s->fd[at], &b, 1);
	}
	return n;
}

/* max events at once; late: all has come before the first look. */
static void order(int max, int late, int tcp)
{
	struct side s;
	pid_t pid = begin(&s, tcp);
	int ep = ep_new(), early = 0, several = 0;
	struct epoll_event ev[8];
	char b = 'g';

	for (int i = 0; i < N; i++)
		ep_set(ep, EPOLL_CTL_ADD, s.fd[i], EPOLLIN, (unsigned long)i);
	for (int r = 0; r < ROUNDS; r++) {
		unsigned told = 0;
		if (epoll_wait(ep, ev, 8, 0) != 0)
			die("something left");
		put(s.go, &b, 1);
		if (late)
			get(s.done, &b, 1);
		for (int calls = 0; told != (1u << N) - 1; calls++) {
			several += calls == 1;
			if (take(&s, ev, ep_hear(ep, ev, max, LONG), &told, &early) <= 0)
				die("nothing told");
		}
		if (!late)
			get(s.done, &b, 1);
	}
	out("%d rounds, %d told before what came before", ROUNDS, early);
	if (late)
		out("%d of them in several calls", several);
	finish(pid);
}

static void order_late(void) { order(8, 1, 0); }
static void order_racing(void) { order(8, 0, 0); }
static void order_one_by_one(void) { order(1, 1, 0); }

/* The same set, whatever the order, if one is on TCP: it shows that the kernel is asked. */
static void order_mixed(void)
{
	struct side s;
	pid_t pid = begin(&s, 1);
	int ep = ep_new(), missing = 0;
	struct epoll_event ev[8];
	char b = 'g';

	for (int i = 0; i < N; i++)
		ep_set(ep, EPOLL_CTL_ADD, s.fd[i], EPOLLIN, (unsigned long)i);
	for (int r = 0; r < ROUNDS; r++) {
		unsigned told = 0;
		int early = 0;
		if (epoll_wait(ep, ev, 8, 0) != 0)
			die("something left");
		put(s.go, &b, 1);
		while (told != (1u << N) - 1) {
			if (take(&s, ev, ep_hear(ep, ev, 8, LONG), &told, &early) <= 0)
				die("nothing told");
			missing += (told & (told + 1)) != 0; // told about one, not about one before
		}
		get(s.done, &b, 1);
	}
	out("%d rounds, %d calls told about one and not about what came before", ROUNDS, missing);
	finish(pid);
}

/* The one on TCP is written first: what is told first. */
static void order_tcp_first(void)
{
	int c, s, c2, s2, ep = ep_new(), none = 0, bad = 0;
	struct epoll_event ev[4];
	pair(&c, &s);
	pair(&c2, &s2);
	setsockopt(s2, SOL_SOCKET, SO_TIMESTAMPING, &none, sizeof none);
	ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1);
	ep_set(ep, EPOLL_CTL_ADD, s2, EPOLLIN, 2);
	for (int i = 0; i < 200; i++) {
		if (epoll_wait(ep, ev, 4, 0) != 0)
			die("something left");
		put(c2, "a", 1);
		while (readable(s2, LONG) != 1)
			;
		put(c, "b", 1);
		int n = ep_hear(ep, ev, 4, LONG);
		bad += n != 2 || ev[0].data.u64 != 2 || ev[1].data.u64 != 1;
		get(s, buf, 1);
		get(s2, buf, 1);
	}
	out("%d of 200 in another order", bad);
}

/* A connection of the listener l, that has been direct or not, and stays on TCP from now on or
 * not. */
static void from(int l, const struct sockaddr_in *addr, int *c, int *s, int direct, int tcp)
{
	int none = 0, one = 1;

	*c = dial(addr);
	*s = accept(l, NULL, NULL);
	if (*s < 0)
		die("accept");
	setsockopt(*c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (direct)
		warm(*c, *s);
	if (tcp && setsockopt(*s, SOL_SOCKET, SO_TIMESTAMPING, &none, sizeof none))
		die("SO_TIMESTAMPING");
}

/* One that was idle for long is written, and then the other, which is busy: who is told about that
 * knows of the first. */
static void order_idle(void)
{
	int c[2], s[2], ep = ep_new(), bad = 0;
	struct epoll_event ev[4];

	for (int i = 0; i < 2; i++) {
		pair(&c[i], &s[i]);
		ep_set(ep, EPOLL_CTL_ADD, s[i], EPOLLIN, (unsigned long)i);
	}
	for (int r = 0; r < 20; r++) {
		for (int i = 0; i < 600; i++) {
			put(c[1], "x", 1);
			if (ep_hear(ep, ev, 4, LONG) != 1 || ev[0].data.u64 != 1)
				die("another one");
			get(s[1], buf, 1);
		}
		if (epoll_wait(ep, ev, 4, 0) != 0)
			die("something left");
		put(c[0], "a", 1);
		put(c[1], "b", 1);
		int n = ep_hear(ep, ev, 4, LONG);
		bad += n < 1 || ev[0].data.u64 != 0;
		get(s[0], buf, 1);
		get(s[1], buf, 1);
		while (n < 2 && epoll_wait(ep, ev, 4, 0) > 0)
			;
	}
	out("%d of 20 in another order", bad);
}

/* Another process writes on TCP, and then this one on a direct connection, of the same server. */
static void order_processes(void)
{
	struct sockaddr_in addr;
	int l = listener(&addr), c, s, s2, go[2], done[2], ep = ep_new(), none = 0, bad = 0;
	struct epoll_event ev[4];
	char b = 'g';

	if (pipe(go) || pipe(done))
		die("pipe");
	from(l, &addr, &c, &s, 1, 0);
	pid_t pid = fork();
	if (pid == 0) {
		int c2 = dial(&addr);
		for (int i = 0; i < 100; i++) {
			get(go[0], &b, 1);
			put(c2, "a", 1);
			put(done[1], &b, 1);
		}
		_exit(0);
	}
	s2 = accept(l, NULL, NULL);
	if (s2 < 0 || setsockopt(s2, SOL_SOCKET, SO_TIMESTAMPING, &none, sizeof none))
		die("accept");
	ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1);
	ep_set(ep, EPOLL_CTL_ADD, s2, EPOLLIN, 2);
	for (int i = 0; i < 100; i++) {
		if (epoll_wait(ep, ev, 4, 0) != 0)
			die("something left");
		put(go[1], &b, 1);
		get(done[0], &b, 1);
		put(c, "b", 1);
		while (readable(s2, LONG) != 1)
			;
		int n = ep_hear(ep, ev, 4, LONG);
		bad += n < 1 || ev[0].data.u64 != 2;
		get(s, buf, 1);
		get(s2, buf, 1);
		while (n < 2 && epoll_wait(ep, ev, 4, 0) > 0)
			;
	}
	out("%d of 100 in another order", bad);
	finish(pid);
}

/* Sends back the byte of each of the N sockets that poll has reported, which leaves the set. How
 * many. */
static int answer(struct pollfd *p)
{
	int told = 0;
	char b;

	for (int i = 0; i < N; i++)
		if (p[i].revents) {
			get(p[i].fd, &b, 1);
			put(p[i].fd, &b, 1);
			p[i] = (struct pollfd){-1, 0, 0};
			told++;
		}
	return told;
}

/* A connection is made by the process to which bytes come, on TCP and direct, in one set. */
static void order_connecting(void)
{
	struct sockaddr_in addr;
	int l = listener(&addr), c[2], s[2], ep = ep_new(), rounds = 0;
	struct epoll_event ev[4];

	for (int i = 0; i < 2; i++) {
		from(l, &addr, &c[i], &s[i], 1, i);
		ep_set(ep, EPOLL_CTL_ADD, s[i], EPOLLIN, (unsigned long)i);
	}
	for (; rounds < 100; rounds++) {
		int c2 = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

		if (connect(c2, (struct sockaddr *)&addr, sizeof addr) && errno != EINPROGRESS)
			die("connect");
		ep_set(ep, EPOLL_CTL_ADD, c2, EPOLLOUT, 2);
		put(c[1], "a", 1);
		while (readable(s[1], LONG) != 1)
			;
		put(c[0], "b", 1);
		for (int seen = 0; seen != 7;) {
			int n = ep_hear(ep, ev, 4, LONG);
			if (n < 1)
				die("nothing");
			for (int k = 0; k < n; k++)
				seen |= 1 << ev[k].data.u64;
		}
		for (int i = 0; i < 2; i++)
			get(s[i], buf, 1);
		int s2 = accept(l, NULL, NULL);
		if (s2 < 0)
			die("accept");
		close(c2);
		close(s2);
	}
	out("%d rounds", rounds);
}

/* poll looks at the second first: so who is told about it is told about the first. */
static void order_poll(void)
{
	for (int tcp = 0; tcp < 2; tcp++) {
		struct side s;
		pid_t pid = begin(&s, tcp);
		struct pollfd p[N];
		unsigned seed = 7;
		int order[N], missing = 0;
		char b = 'g';

		for (int r = 0; r < ROUNDS; r++) {
			int left = N;
			shuffle(order, &seed);
			for (int i = 0; i < N; i++)
				p[i] = (struct pollfd){s.fd[order[N - 1 - i]], POLLIN, 0};
			put(s.go, &b, 1);
			while (left > 0) {
				if (poll(p, N, LONG) <= 0)
					die("nothing told");
				for (int i = 0; i < N; i++)
					for (int j = i + 1; p[i].revents && j < N; j++)
						missing += p[j].fd >= 0 && !p[j].revents;
				left -= answer(p);
			}
			get(s.done, &b, 1);
		}
		out("%d rounds, %d told about one and not about what came before", ROUNDS, missing);
		finish(pid);
	}
}

/* Three that are always ready, of which one call tells two: each gets its turn. */
static void order_turns(void)
{
	int c[N], s[N], ep = ep_new(), times[N] = {0};
	struct epoll_event ev[2];
	for (int i = 0; i < N; i++) {
		pair(&c[i], &s[i]);
		put(c[i], "x", 1);
		readable(s[i], LONG);
		ep_set(ep, EPOLL_CTL_ADD, s[i], EPOLLIN, (unsigned long)i);
	}
	for (int i = 0; i < 30; i++)
		for (int n = ep_hear(ep, ev, 2, LONG), k = 0; k < n; k++)
			times[ev[k].data.u64]++;
	out("%d %d %d", times[0], times[1], times[2]);
}

/* Two sets with one connection in common, each with another one that is idle: who asks the first
 * set leaves to the second what is to be known there. */
static void order_sets(void)
{
	enum { SLEEPS = 20 }; // after which a set no longer looks at one that is idle
	int c[3], s[3], ep[2] = {ep_new(), ep_new()};
	struct epoll_event ev[3];

	for (int i = 0; i < 3; i++)
		pair(&c[i], &s[i]);
	for (int i = 0; i < 2; i++) {
		ep_set(ep[i], EPOLL_CTL_ADD, s[i], EPOLLIN, (unsigned long)i);
		ep_set(ep[i], EPOLL_CTL_ADD, s[2], EPOLLIN, 2);
	}
	for (int i = 0; i < 2 * SLEEPS; i++) {
		pthread_t t;

		pthread_create(&t, NULL, write_later, &c[2]);
		ep_hear(ep[i % 2], ev, 3, LONG);
		pthread_join(t, NULL);
		get(s[2], buf, 4);
	}
	put(c[1], "x", 1);
	put(c[2], "x", 1);
	arrived(s[2], 1);
	out("%d", ep_hear(ep[0], ev, 3, 0));
	out("%d", ep_hear(ep[1], ev, 3, 0));
}

const struct probe order_probes[] = {
	{"order-late", order_late, 0},
	{"order-racing", order_racing, 0},
	{"order-one-by-one", order_one_by_one, 0},
	{"order-mixed", order_mixed, 0},
	{"order-tcp-first", order_tcp_first, 0},
	{"order-idle", order_idle, 0},
	{"order-processes", order_processes, 0},
	{"order-connecting", order_connecting, 0},
	{"order-poll", order_poll, 0},
	{"order-turns", order_turns, 0},
	{"order-sets", order_sets, 0},
	{NULL, NULL, 0},
};

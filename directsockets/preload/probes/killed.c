#include "probe.h"

/* Probes of what a program sees whose peer was killed, or has ended: a reset if the peer had left
 * bytes unread that were sent before, and an end otherwise. */

static char buf[100];

/* The peer of all probes: a process with one end, s. */
struct peer {
	int c, s, reads;
};

static void live(void *arg)
{
	const struct peer *p = arg;

	close(p->c);
	for (int left = p->reads; left > 0;)
		left -= (int)read(p->s, buf, (size_t)left);
	put(p->s, "here", 4);
	for (;;)
		pause();
}

/* A connection whose other end is another process's. It has read so many of the bytes that are sent
 * to it, and has sent 4. */
static int with_peer(pid_t *pid, const char *bytes, int reads, int cold)
{
	struct peer p = {.reads = reads};

	(cold ? pair_cold : pair)(&p.c, &p.s);
	*pid = start(live, &p);
	close(p.s);
	put(p.c, bytes, strlen(bytes));
	arrived(p.c, 4);
	nap(30); /* what was sent is older than the end, by more than the kernel's clock can hide */
	return p.c;
}

static void kill_now(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* What is left of c. */
static void rest(int c)
{
	struct pollfd p = {c, POLLIN | POLLOUT | POLLRDHUP, 0};

	R(poll(&p, 1, LONG));
	out("%s", revents((unsigned)p.revents));
	R(read(c, buf, sizeof buf));
	R(read(c, buf, sizeof buf));
	R(write(c, "x", 1));
	R(close(c));
}

static void killed_unread(void)
{
	struct sockaddr_in a;
	socklen_t n = sizeof a;
	int err = 0;
	pid_t pid;

	signal(SIGPIPE, SIG_IGN);
	int c = with_peer(&pid, "unread", 0, 0);
	kill_now(pid);
	cut(c);
	R(read(c, buf, 4)); /* what had arrived comes first */
	R(getpeername(c, (struct sockaddr *)&a, &n));
	rest(c);
	c = with_peer(&pid, "read, not all", 6, 0);
	R(read(c, buf, sizeof buf));
	int ep = ep_new();
	ep_set(ep, EPOLL_CTL_ADD, c, EPOLLIN | EPOLLRDHUP, 1);
	kill_now(pid);
	cut(c);
	ep_show(ep, 1, LONG);
	n = sizeof err;
	R(getsockopt(c, SOL_SOCKET, SO_ERROR, &err, &n));
	out("%s", errname(err));
	rest(c);
}

/* The first call after the end is a send. */
static void killed_send(void)
{
	pid_t pid;

	signal(SIGPIPE, SIG_IGN);
	int c = with_peer(&pid, "unread", 0, 0);
	kill_now(pid);
	cut(c);
	R(write(c, "x", 1));
	R(write(c, "x", 1));
	R(close(c));
}

/* Both directions have ended. */
static void killed_shut(void)
{
	pid_t pid;

	int c = with_peer(&pid, "unread", 0, 0);
	R(shutdown(c, SHUT_WR));
	R(read(c, buf, sizeof buf));
	kill_now(pid);
	R(read(c, buf, sizeof buf));
	R(close(c));
}

/* Nothing was unread when the peer ended. */
static void killed_read(void)
{
	pid_t pid;

	signal(SIGPIPE, SIG_IGN);
	int c = with_peer(&pid, "all", 3, 0);
	R(read(c, buf, sizeof buf));
	kill_now(pid);
	ended(c);
	nap(30);
	R(read(c, buf, sizeof buf));
	R(write(c, "late", 4));
	cut(c);
	rest(c);
}

/* What was sent after the end was not unread then, even if nobody has told c of the end. */
static void killed_late(void)
{
	pid_t pid;

	signal(SIGPIPE, SIG_IGN);
	int c = with_peer(&pid, "all", 3, 0);
	R(read(c, buf, sizeof buf));
	kill_now(pid);
	nap(30);
	R(write(c, "late", 4));
	R(read(c, buf, sizeof buf));
	R(close(c));
}

/* The peer has not sent anything since the connection became direct. */
static void killed_silent(void)
{
	pid_t pid;

	int c = with_peer(&pid, "w", 0, 1);
	kill_now(pid);
	R(read(c, buf, 4));
	R(read(c, buf, 4));
	R(close(c));
}

static void serve_and_die(void *p)
{
	int *fd = p;
	close(fd[0]);
	put(fd[1], "dying", 5);
	kill(getpid(), SIGKILL);
}

static void peer_killed(void)
{
	int fd[2];
	pair(&fd[0], &fd[1]);
	pid_t pid = start(serve_and_die, fd);
	close(fd[1]);
	finish(pid);
	R(read(fd[0], buf, 100));
	R(read(fd[0], buf, 100));
	signal(SIGPIPE, SIG_IGN);
	R(write(fd[0], "x", 1));
	cut(fd[0]);
	R(write(fd[0], "x", 1));
}

enum { MANY = 300000 };

static void send_and_die(void *p)
{
	static char all[MANY];
	int *fd = p;

	close(fd[0]);
	fill(all, MANY, 3);
	put(fd[1], all, MANY);
	kill(getpid(), SIGKILL);
}

/* A sender is killed with all that it has sent unread. */
static void killed_sender(void)
{
	static char all[MANY], got[MANY + 1];
	int fd[2];

	pair(&fd[0], &fd[1]);
	pid_t pid = start(send_and_die, fd);
	close(fd[1]);
	finish(pid);
	fill(all, MANY, 3);
	size_t n = get(fd[0], got, sizeof got);
	out("%zu bytes, %s", n, memcmp(got, all, MANY) ? "others" : "these");
	close(fd[0]);
}

static void sleep_and_die(void *p)
{
	int *fd = p;
	close(fd[0]);
	nap(100);
	kill(getpid(), SIGKILL);
}

static void killed_while_reading(void)
{
	int fd[2];
	pair(&fd[0], &fd[1]);
	pid_t pid = start(sleep_and_die, fd);
	close(fd[1]);
	R(read(fd[0], buf, 100));
	finish(pid);
}

static void peer_exits(void)
{
	int c, s;
	pair(&c, &s);
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		close(c);
		put(s, "the last", 8);
		exit(0);
	}
	close(s);
	R(read(c, buf, 100));
	R(read(c, buf, 100));
	finish(pid);
}

// Looks at c without sleeping, by poll or select, until there is more than room to send.
static void look(int c, unsigned events, int by_select)
{
	struct pollfd p = {c, (short)events, 0};
	long last = monotonic() + 5000;

	do {
		fd_set in, room;
		FD_ZERO(&in);
		FD_ZERO(&room);
		FD_SET(c, &in);
		if (events & POLLOUT)
			FD_SET(c, &room);
		if (!by_select)
			poll(&p, 1, 0);
		else if (select(c + 1, &in, &room, NULL, &(struct timeval){0, 0}) >= 0)
			p.revents = (short)((FD_ISSET(c, &in) ? POLLIN : 0) | (FD_ISSET(c, &room) ? POLLOUT : 0));
	} while (!(p.revents & ~POLLOUT) && monotonic() < last);
	out("%s", revents((unsigned)p.revents));
}

/* The end of one that was killed, for a program that never sleeps. */
static void killed_polled(void)
{
	pid_t pid;

	for (int i = 0; i < 4; i++) {
		int c = with_peer(&pid, "read", 4, 0);
		R(read(c, buf, 4));
		kill_now(pid);
		look(c, i & 1 ? POLLIN | POLLOUT : POLLIN, i & 2);
		R(read(c, buf, sizeof buf));
		R(close(c));
	}
}

struct victim {
	pid_t pid;
	int fd;
};

static void *kill_sleeping(void *victim)
{
	const struct victim *v = victim;

	nap(10);
	kill(v->pid, SIGKILL);
	return NULL;
}

/* Who waits for bytes and for the end is told at once that there is something to be read, too. */
static void killed_told(void)
{
	enum { POLL, LEVEL, EDGE, HOWS };
	struct victim v;
	pthread_t t;
	int otherwise[HOWS] = {0};

	for (int i = 0; i < HOWS * 10; i++) {
		int c = with_peer(&v.pid, "read", 4, 0), ep = ep_new();
		struct pollfd p = {c, POLLIN | POLLRDHUP, 0};
		struct epoll_event ev = {0};
		R(read(c, buf, 4));
		if (i % HOWS != POLL)
			ep_set(ep, EPOLL_CTL_ADD, c, EPOLLIN | EPOLLRDHUP | (i % HOWS == EDGE ? EPOLLET : 0), 1);
		pthread_create(&t, NULL, kill_sleeping, &v);
		if (i % HOWS == POLL)
			poll(&p, 1, LONG);
		else
			ep_hear(ep, &ev, 1, LONG);
		unsigned said = i % HOWS == POLL ? (unsigned)p.revents : ev.events;
		otherwise[i % HOWS] += said != (POLLIN | POLLRDHUP);
		pthread_join(t, NULL);
		waitpid(v.pid, NULL, 0);
		R(read(c, buf, sizeof buf));
		close(ep);
		close(c);
	}
	out("told otherwise: %d %d %d", otherwise[POLL], otherwise[LEVEL], otherwise[EDGE]);
}

/* The peer has ended its direction, and is killed with bytes unread. */
static void half_live(void *arg)
{
	const struct peer *p = arg;

	close(p->c);
	shutdown(p->s, SHUT_WR);
	for (;;)
		pause();
}

static void killed_half(void)
{
	struct peer p = {0};
	struct sockaddr_in a;

	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < 4; i++) {
		int err = 0, ep = ep_new();
		socklen_t n = sizeof err, len = sizeof a;

		pair(&p.c, &p.s);
		ep_set(ep, EPOLL_CTL_ADD, p.c, EPOLLIN | EPOLLRDHUP | EPOLLET, 1);
		pid_t pid = start(half_live, &p);
		close(p.s);
		put(p.c, "unread", 6);
		ended(p.c);
		ep_show(ep, 1, LONG);
		R(read(p.c, buf, sizeof buf));
		nap(30);
		kill_now(pid);
		if (i != 3)
			cut(p.c);
		ep_show(ep, 1, LONG);
		if (i == 1) {
			R(getsockopt(p.c, SOL_SOCKET, SO_ERROR, &err, &n));
			out("%s", errname(err));
		}
		if (i != 2)
			R(write(p.c, "x", 1));
		R(getpeername(p.c, (struct sockaddr *)&a, &len));
		rest(p.c);
		close(ep);
	}
}

enum { BY_CLOSE, BY_EXIT, BY_EXIT_NOW, WAYS };

/* One that shares s with another ends it. The other one was killed, so it is never the last. */
static void ends_shared(void *arg)
{
	const struct peer *p = arg;
	pid_t other;

	close(p->c);
	if ((other = fork()) == 0) {
		put(p->s, "x", 1);
		for (;;)
			pause();
	}
	readable(p->s, LONG);
	kill_now(other);
	if (p->reads == BY_CLOSE)
		close(p->s);
	else if (p->reads == BY_EXIT)
		exit(0);
	_exit(0);
}

/* The last close finds bytes unread that have just come. */
static void killed_sharer(void)
{
	struct peer p;
	char b;

	signal(SIGPIPE, SIG_IGN);
	for (p.reads = 0; p.reads < WAYS; p.reads++) {
		pair(&p.c, &p.s);
		pid_t pid = start(ends_shared, &p);
		close(p.s);
		get(p.c, &b, 1); /* the other one uses it, too */
		put(p.c, "unread", 6);
		finish(pid);
		cut(p.c);
		rest(p.c);
	}
}

const struct probe killed_probes[] = {
	{"killed-half", killed_half, 0},
	{"killed-sharer", killed_sharer, 0},
	{"killed-told", killed_told, 0},
	{"killed-polled", killed_polled, 0},
	{"killed-unread", killed_unread, 0},
	{"killed-send", killed_send, 0},
	{"killed-shut", killed_shut, 0},
	{"killed-read", killed_read, 0},
	{"killed-late", killed_late, 0},
	{"killed-silent", killed_silent, 1},
	{"peer-killed", peer_killed, 0},
	{"killed-sender", killed_sender, 0},
	{"killed-while-reading", killed_while_reading, 0},
	{"peer-exits", peer_exits, 0},
	{NULL, NULL, 0},
};

#include "probe.h"

/* Probes of connect to AF_UNSPEC, which disconnects a socket: its peer reads what was sent, and is
 * reset then. */

static char buf[64];

enum { ROUNDS = 300, FEW = 30 };

static const struct sockaddr none = {.sa_family = AF_UNSPEC};

/* A connection is disconnected, and its socket connected to another server. Its descriptors and its
 * place in a set stay. */
static void disconnect(int by_copy, unsigned flags)
{
	struct sockaddr_in a;
	int c, s, ep = ep_new(), l = listener(&a);
	pair(&c, &s);
	int d = dup(c);
	ep_set(ep, EPOLL_CTL_ADD, c, EPOLLIN | flags, 1);
	put(s, "old", 3);
	arrived(c, 3);
	R(connect(by_copy ? d : c, &none, sizeof none));
	R(send(c, "x", 1, MSG_NOSIGNAL));
	R(connect(by_copy ? d : c, (struct sockaddr *)&a, sizeof a));
	int s2 = accept(l, NULL, NULL);
	ep_show(ep, 4, 20);
	out("%d", readable(c, 20));
	R(recv(c, buf, 10, MSG_DONTWAIT));
	for (int i = 0; i < ROUNDS; i++) {
		put(i & 1 ? c : d, "there", 5);
		get(s2, buf, 5);
		put(s2, "back", 4);
		int n = readable(c, LONG);
		get(i & 2 ? c : d, buf, 4);
		if (n != 1 || memcmp(buf, "back", 4))
			out("%d: %.4s", n, buf);
	}
	put(s2, "!", 1);
	ep_show(ep, 4, LONG);
	close(s2);
	ended(c);
	R(read(c, buf, 10));
	R(read(d, buf, 10));
	close(c);
	close(d);
	close(s);
	close(l);
}

static void disconnects(void)
{
	disconnect(0, 0);
	disconnect(1, 0);
	disconnect(0, EPOLLET);
}

enum { UNREAD_HERE = 1, UNREAD_THERE = 2, SENDS_FIRST = 4, SHUT_HERE = 8, SHUT_THERE = 16, CASES = 32 };

/* What each end sees of it, as the bits of how say. */
static void disconnect_one(int from, int to, unsigned how)
{
	struct pollfd p = {to, POLLIN | POLLOUT | POLLRDHUP, 0};

	if (how & UNREAD_HERE) {
		put(to, "here", 4);
		arrived(from, 4);
	}
	if (how & UNREAD_THERE) {
		put(from, "there", 5);
		arrived(to, 5);
	}
	if (how & SHUT_HERE) {
		R(shutdown(from, SHUT_WR));
		ended(to);
	}
	if (how & SHUT_THERE) {
		R(shutdown(to, SHUT_WR));
		ended(from);
	}
	R(connect(from, &none, sizeof none));
	R(poll(&p, 1, LONG));
	cut(to);
	R(poll(&p, 1, LONG));
	out("%u: %s", how, revents((unsigned)p.revents));
	if (how & SENDS_FIRST)
		R(send(to, "x", 1, MSG_NOSIGNAL));
	for (int i = 0; i < 3; i++)
		R(recv(to, buf, 3, MSG_DONTWAIT));
	R(send(to, "x", 1, MSG_NOSIGNAL));
	R(recv(from, buf, 3, MSG_DONTWAIT));
	R(send(from, "x", 1, MSG_NOSIGNAL));
}

static void disconnect_unread(void)
{
	int c, s;

	for (unsigned how = 0; how < CASES; how++)
		for (int server = 0; server < 2; server++) {
			pair(&c, &s);
			disconnect_one(server ? s : c, server ? c : s, how);
			close(c);
			close(s);
		}
}

/* A thread that receives, and tells what. */
static void *receives(void *arg)
{
	ssize_t n = recv((int)(intptr_t)arg, buf, sizeof buf, 0);

	return (void *)(intptr_t)(n < 0 ? -errno : n);
}

/* A thread sleeps in a receive on either end. */
static void disconnect_wakes(void)
{
	pthread_t own, peers;
	void *got;
	int c, s;

	pair(&c, &s);
	pthread_create(&own, NULL, receives, (void *)(intptr_t)c);
	pthread_create(&peers, NULL, receives, (void *)(intptr_t)s);
	nap(20);
	R(connect(c, &none, sizeof none));
	pthread_join(own, &got);
	int own_error = -(int)(intptr_t)got; /* EPIPE by newer kernels */
	out("%d", own_error == EPIPE || own_error == ECONNRESET || own_error == ENOTCONN);
	pthread_join(peers, &got);
	out("%s", errname(-(int)(intptr_t)got));
	close(c);
	close(s);
}

struct sharing {
	int c, go[2], done[2];
	unsigned how;
	struct sockaddr_in a;
};

static void step(int fd)
{
	char b = 0;

	put(fd, &b, 1);
}

static void await(int fd)
{
	char b;

	if (get(fd, &b, 1) != 1)
		die("step");
}

/* The child: it, or its parent, disconnects the socket that they share, and connects it again. Both
 * use it then. */
static void shares(void *arg)
{
	struct sharing *x = arg;

	for (int i = 0; i < 4; i++) {
		await(x->go[0]);
		switch (i) {
		case 0:
			if (x->how & 1)
				R(connect(x->c, &none, sizeof none));
			break;
		case 1:
			R(recv(x->c, buf, 3, MSG_DONTWAIT));
			R(send(x->c, "x", 1, MSG_NOSIGNAL));
			break;
		case 2:
			if (x->how & 2)
				R(connect(x->c, (struct sockaddr *)&x->a, sizeof x->a));
			break;
		case 3:
			for (int k = 0; k < FEW; k++) {
				get(x->c, buf, 4);
				if (memcmp(buf, "ping", 4))
					out("the child has %.4s", buf);
				put(x->c, "pong", 4);
				step(x->done[1]);
				await(x->go[0]);
			}
			break;
		}
		step(x->done[1]);
	}
}

/* The end of x, which reaches the new server, s2; of the old one, s, and of the listener. */
static void share_end(const struct sharing *x, int s, int s2, int l)
{
	close(x->c);
	R(recv(s2, buf, 20, 0));
	close(s2);
	close(s);
	close(l);
	for (int i = 0; i < 2; i++)
		close(x->go[i]), close(x->done[i]);
}

static void disconnect_share(unsigned how)
{
	struct sharing x = {.how = how};
	int s, l = listener(&x.a);

	pair(&x.c, &s);
	if (pipe(x.go) || pipe(x.done))
		die("pipe");
	pid_t pid = start(shares, &x);
	put(s, "unread here", 11);
	put(x.c, "unread there", 12);
	arrived(x.c, 11);
	arrived(s, 12);
	step(x.go[1]);
	await(x.done[0]);
	if (!(how & 1))
		R(connect(x.c, &none, sizeof none));
	R(recv(x.c, buf, 3, MSG_DONTWAIT));
	R(send(x.c, "x", 1, MSG_NOSIGNAL));
	step(x.go[1]);
	await(x.done[0]);
	cut(s);
	R(recv(s, buf, 20, MSG_DONTWAIT));
	out("%.12s", buf);
	R(recv(s, buf, 20, MSG_DONTWAIT));
	R(send(s, "x", 1, MSG_NOSIGNAL));
	step(x.go[1]);
	await(x.done[0]);
	if (!(how & 2))
		R(connect(x.c, (struct sockaddr *)&x.a, sizeof x.a));
	int s2 = accept(l, NULL, NULL);
	step(x.go[1]);
	for (int i = 0; i < FEW; i++) {
		put(s2, "ping", 4);
		await(x.done[0]);
		get(s2, buf, 4);
		put(x.c, "here", 4);
		get(s2, buf + 4, 4);
		put(s2, "back", 4);
		get(x.c, buf + 8, 4);
		if (memcmp(buf, "ponghereback", 12))
			out("%.12s", buf);
		step(x.go[1]);
	}
	await(x.done[0]);
	finish(pid);
	share_end(&x, s, s2, l);
}

static void disconnect_shared(void)
{
	for (unsigned how = 0; how < 4; how++)
		disconnect_share(how);
}

/* The child: it uses the socket that it shares, when told: with the old server until both are
 * direct, if early is not set, and with the new one. */
static void shares_early(void *arg)
{
	struct sharing *x = arg;

	if (!x->how)
		for (int k = 0; k < ROUNDS; k++) {
			put(x->c, "warm", 4);
			get(x->c, buf, 4);
		}
	step(x->done[1]);
	await(x->go[0]);
	R(send(x->c, "x", 1, MSG_NOSIGNAL));
	step(x->done[1]);
	await(x->go[0]);
	for (int k = 0; k < ROUNDS; k++) {
		put(x->c, "ping", 4);
		get(x->c, buf, 4);
		if (memcmp(buf, "pong", 4))
			out("the child has %.4s", buf);
	}
}

/* The parent, which has not used the socket, disconnects it and connects it again: before the child
 * has used it (early), or when that has it direct. */
static void disconnect_early(unsigned early)
{
	struct sharing x = {.how = early};
	int s, l = listener(&x.a);

	pair_cold(&x.c, &s);
	if (pipe(x.go) || pipe(x.done))
		die("pipe");
	pid_t pid = start(shares_early, &x);
	if (!early)
		for (int k = 0; k < ROUNDS; k++) {
			get(s, buf, 4);
			put(s, "back", 4);
		}
	await(x.done[0]);
	R(connect(x.c, &none, sizeof none));
	cut(s);
	R(recv(s, buf, 20, MSG_DONTWAIT));
	step(x.go[1]);
	await(x.done[0]);
	R(connect(x.c, (struct sockaddr *)&x.a, sizeof x.a));
	int s2 = accept(l, NULL, NULL);
	step(x.go[1]);
	for (int k = 0; k < ROUNDS; k++) {
		R(recv(s, buf, 20, MSG_DONTWAIT) > 0);
		if (get(s2, buf, 4) != 4 || memcmp(buf, "ping", 4))
			out("the server has %.4s", buf);
		put(s2, "pong", 4);
	}
	finish(pid);
	put(x.c, "last", 4);
	get(s2, buf, 4);
	out("%.4s", buf);
	share_end(&x, s, s2, l);
}

static void disconnect_shared_early(void)
{
	disconnect_early(1);
	disconnect_early(0);
}

const struct probe disconnect_probes[] = {
	{"disconnect", disconnects, 0},
	{"disconnect-unread", disconnect_unread, 0},
	{"disconnect-wakes", disconnect_wakes, 0},
	{"disconnect-shared", disconnect_shared, 0},
	{"disconnect-shared-early", disconnect_shared_early, 1},
	{0},
};

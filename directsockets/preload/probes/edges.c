#include "probe.h"

/* Probes of what epoll tells while connections become direct, and
 * of sequences that nobody thought of. */

static char buf[4096];

static int told(int ep, int ms)
{
	struct epoll_event ev = {0};
	int n = ep_hear(ep, &ev, 1, ms);

	return n == 1 ? (int)ev.events : -n;
}

enum { ROUNDS = 40 };

/* Reads half of what comes with each edge, so that bytes are unread when the mode changes. */
static void edge_unread(void)
{
	int c, s, ep = ep_new(), edges = 0, again = 0;
	pair(&c, &s);
	ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLET, 1);
	for (int i = 0; i < ROUNDS; i++) {
		put(c, "xy", 2);
		edges += told(ep, LONG) == EPOLLIN;
		again += told(ep, 2) != 0;
		get(s, buf, 1);
		put(s, "k", 1);
		get(c, buf, 1);
		again += told(ep, 2) != 0;
	}
	out("%d edges, %d more", edges, again);
	R(get(s, buf, ROUNDS));
	out("%d", told(ep, 2));
}

/* Asks for room too, of which there is enough all the time. */
static void edge_both(void)
{
	int c, s, ep = ep_new(), edges = 0, again = 0;
	pair(&c, &s);
	nonblock(s, 1);
	ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 1);
	out("%s", revents((unsigned)told(ep, LONG)));
	for (int i = 0; i < ROUNDS; i++) {
		put(c, "x", 1);
		edges += told(ep, LONG) == (EPOLLIN | EPOLLOUT);
		again += told(ep, 2) != 0;
		while (read(s, buf, sizeof buf) > 0)
			;
		put(s, "k", 1);
		get(c, buf, 1);
		again += told(ep, 2) != 0;
	}
	out("%d edges, %d more", edges, again);
	shutdown(c, SHUT_WR);
	out("%s", revents((unsigned)told(ep, LONG)));
	out("%s", revents((unsigned)told(ep, 20)));
}

/* Once told, it is not told again until it is asked for, whatever becomes direct meanwhile. */
static void once(unsigned flags)
{
	int c, s, ep = ep_new(), first = 0, again = 0, left = 0;
	pair(&c, &s);
	ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLONESHOT | flags, 1);
	for (int i = 0; i < ROUNDS; i++) {
		put(c, "xy", 2);
		first += told(ep, LONG) == EPOLLIN;
		get(s, buf, 1);
		again += told(ep, 2) != 0;
		put(s, "k", 1);
		get(c, buf, 1);
		put(c, "z", 1);
		again += told(ep, 2) != 0;
		ep_set(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT | flags, 1);
		left += told(ep, LONG) == EPOLLIN;
		get(s, buf, 2);
		ep_set(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT | flags, 1);
		again += told(ep, 2) != 0;
	}
	out("%d told, %d of those left, %d more", first, left, again);
}

static void oneshot_modes(void) { once(0); }
static void oneshot_edge_modes(void) { once(EPOLLET); }

/* An instance in another, or polled: readable if and only if it has something to tell. */
static void nested_modes(void)
{
	for (int how = 0; how < 6; how++) {
		int c, s, outer = ep_new(), inner = ep_new(), seen = 0, empty = 0, more = 0;
		unsigned outer_flags = how & 1 ? EPOLLET : 0, inner_flags = how & 2 ? EPOLLET : 0;
		pair(&c, &s);
		ep_set(inner, EPOLL_CTL_ADD, s, EPOLLIN | inner_flags, 1);
		if (how < 4)
			ep_set(outer, EPOLL_CTL_ADD, inner, EPOLLIN | outer_flags, 2);
		for (int i = 0; i < ROUNDS / 2; i++) {
			put(c, "xy", 2);
			int outside = how < 4 ? told(outer, LONG) : readable(inner, LONG);
			int inside = told(inner, 0);
			seen += outside > 0 && inside > 0;
			empty += outside > 0 && inside == 0;
			get(s, buf, 2);
			put(s, "k", 1);
			get(c, buf, 1);
			outside = how < 4 ? told(outer, 5) : readable(inner, 5);
			more += outside > 0;
			inside = told(inner, 0);
			more += inside > 0;
		}
		out("outer %#x inner %#x: %d, %d empty, %d more", outer_flags, inner_flags, seen, empty, more);
	}
}

/* ---- at random ----------------------------------------------------------------- */

enum { SOCKETS = 5, STEPS = 700 };

struct random_set {
	int c[SOCKETS], s[SOCKETS], unread[SOCKETS], ended[SOCKETS], ep;
	unsigned seed;
};

static unsigned pick(struct random_set *r, unsigned n) { return random_below(&r->seed, n); }

/* What was written has arrived, also if the kernel takes its time. */
static void arrive(struct random_set *r, int i)
{
	struct pollfd p = {r->s[i], POLLRDHUP, 0};
	int n = -1;

	for (int k = 0; k < LONG && (ioctl(r->s[i], FIONREAD, &n) || n < r->unread[i]); k++)
		nap(1);
	if (r->ended[i])
		poll(&p, 1, LONG);
}

static void random_write(struct random_set *r, int i)
{
	size_t n = 1 + pick(r, 4) * 150;

	if (r->ended[i])
		return;
	put(r->c[i], buf, n);
	r->unread[i] += (int)n;
	arrive(r, i);
}

static void random_read(struct random_set *r, int i)
{
	int n = pick(r, 2) ? r->unread[i] : (int)pick(r, (unsigned)r->unread[i] + 1);

	if (n == 0)
		return;
	get(r->s[i], buf, (size_t)n);
	r->unread[i] -= n;
}

static void random_answer(struct random_set *r, int i)
{
	put(r->s[i], buf, 10);
	get(r->c[i], buf, 10);
}

static void random_control(struct random_set *r, int i)
{
	static const unsigned what[] = {EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLRDHUP, 0};
	static const unsigned how[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};
	static const int ops[] = {EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL};
	int op = ops[pick(r, 4)];
	unsigned events = what[pick(r, 6)] | how[pick(r, 4)];

	if (ep_set(r->ep, op, r->s[i], events, (unsigned long)(i + 1) << 40 | pick(r, 100)))
		out("%d %d: %s", op, i, errname(errno));
}

static void random_end(struct random_set *r, int i)
{
	if (r->ended[i] || pick(r, 12) > 0)
		return;
	shutdown(r->c[i], SHUT_WR);
	r->ended[i] = 1;
	arrive(r, i);
}

static void at_random(unsigned seed)
{
	static void (*const steps[])(struct random_set *, int) = {random_write, random_write, random_read, random_read, random_answer,
								  random_control, random_control, random_end};
	struct random_set r = {.ep = ep_new(), .seed = seed};

	for (int i = 0; i < SOCKETS; i++)
		pair(&r.c[i], &r.s[i]);
	for (int k = 0; k < STEPS; k++) {
		int i = (int)pick(&r, SOCKETS);
		steps[pick(&r, sizeof steps / sizeof *steps)](&r, i);
		if (pick(&r, 3) == 0)
			ep_show(r.ep, 64, 1);
	}
	for (int i = 0; i < SOCKETS; i++) {
		close(r.c[i]);
		close(r.s[i]);
	}
	ep_show(r.ep, 64, 1);
	close(r.ep);
}

/* The kernel of the other end has all that fd has sent by TCP. */
static void acked(int fd)
{
	struct tcp_info t;
	socklen_t n = sizeof t;

	for (int i = 0; i < LONG && !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &t, &n) && t.tcpi_unacked; i++)
		nap(1);
}

/* A read that wants all gets all, though the first bytes came before the direction moved over, and
 * the last after: a short one says that there is no more, and who reads on edges believes it.
 * early: reads before that one have noticed the move; else it does. */
static void read_across(int early)
{
	enum { BYTES = 3, TRIES = 400 };
	int c, s, unread = 0, moved = 0;

	pair_cold(&c, &s);
	nonblock(s, 1);
	put(s, "k", 1);
	get(c, buf, 1);
	for (int i = 0; i < TRIES && moved < 3; i++) {
		put(c, "xyz", BYTES);
		unread += BYTES;
		moved += has_library() ? direct(c) & 1 : 1;
		if (early || !moved) {
			unread -= read(s, buf, 1) == 1;
			nap(!moved);
		}
	}
	acked(c);
	int n = (int)read(s, buf, sizeof buf);
	out(n == unread ? "all" : "short: %d of %d", n, unread);
	close(c);
	close(s);
}

/* The same when the direction goes back to TCP: it does when a descriptor of it is passed on. */
static void read_back(void)
{
	struct iovec v = {buf, 1};
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.h = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	int c, s, u[2];

	pair(&c, &s);
	nonblock(s, 1);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, u))
		die("socketpair");
	put(c, "abc", 3);
	memcpy(CMSG_DATA(&control.h), &c, sizeof c);
	R(sendmsg(u[0], &m, 0));
	put(c, "def", 3);
	acked(c);
	R(read(s, buf, sizeof buf));
	R(read(s, buf, sizeof buf));
}

static void short_read(void)
{
	for (int i = 0; i < 6; i++)
		read_across(i % 2);
	read_back();
}

static void random_1(void) { at_random(1); }
static void random_2(void) { at_random(20); }
static void random_3(void) { at_random(300); }

/* Makes a connection whose server has the number at. */
static void pair_at(int at, int *c, int *s)
{
	pair(c, s);
	if (*c == at) {
		*c = dup(at);
		close(at);
	}
	if (*s != at && dup2(*s, at) == at) {
		close(*s);
		*s = at;
	}
}

/* Has fd go back to TCP. */
static void back(int fd)
{
	int over[2];

	socketpair(AF_UNIX, SOCK_STREAM, 0, over);
	pass_fd(over[0], fd);
	close(over[0]);
	close(over[1]);
}

/* Two messages on a connection in ep, which goes back to TCP before them. */
static void told_on_tcp(int ep, int c, int s)
{
	back(c);
	for (int i = 0; i < 2; i++) {
		put(c, "x", 1);
		ep_show(ep, 4, LONG);
		get(s, buf, 1);
	}
	ep_show(ep, 4, 10);
}

/* A member's number is another connection's in the same set by now, since the first has a duplicate
 * of it: the kernel knows members by number and socket. first: which goes back to TCP, or ends,
 * before the other. */
static void dup_reuse(unsigned events, int first)
{
	int c[2], s[2], d, ep = ep_new();

	pair(&c[0], &s[0]);
	ep_set(ep, EPOLL_CTL_ADD, s[0], events, 1);
	d = dup(s[0]);
	close(s[0]);
	pair_at(s[0], &c[1], &s[1]);
	R(ep_set(ep, EPOLL_CTL_ADD, s[1], events, 2));
	put(c[0], "x", 1);
	ep_show(ep, 4, LONG);
	get(d, buf, 1);
	put(c[1], "y", 1);
	ep_show(ep, 4, LONG);
	get(s[1], buf, 1);
	if (first)
		told_on_tcp(ep, c[0], d);
	close(d);
	told_on_tcp(ep, c[1], s[1]);
	close(c[1]);
	ep_show(ep, 4, LONG);
}

static void dup_reuse_level(void) { dup_reuse(EPOLLIN | EPOLLRDHUP, 0); }
static void dup_reuse_edge(void) { dup_reuse(EPOLLIN | EPOLLET | EPOLLRDHUP, 0); }
static void dup_back_level(void) { dup_reuse(EPOLLIN | EPOLLRDHUP, 1); }
static void dup_back_edge(void) { dup_reuse(EPOLLIN | EPOLLET | EPOLLRDHUP, 1); }

const struct probe edge_probes[] = {
	{"edge-unread", edge_unread, 0},
	{"edge-both", edge_both, 0},
	{"oneshot-modes", oneshot_modes, 0},
	{"oneshot-edge-modes", oneshot_edge_modes, 0},
	{"nested-modes", nested_modes, 0},
	{"short-read", short_read, 0},
	{"epoll-random-1", random_1, 0},
	{"epoll-random-2", random_2, 0},
	{"epoll-random-3", random_3, 0},
	{"epoll-dup-reuse", dup_reuse_level, 0},
	{"epoll-dup-reuse-edge", dup_reuse_edge, 0},
	{"epoll-dup-back", dup_back_level, 0},
	{"epoll-dup-back-edge", dup_back_edge, 0},
	{NULL, NULL, 0},
};

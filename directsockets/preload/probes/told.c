// How the end of a connection, errors and SO_RCVLOWAT are told, while the two directions are in
// different places and bytes are unread.
#include "udp.h"

// A pair of which the server's direction is direct, while n bytes from the client are unread on
// TCP.
static void half(int *c, int *s, int n)
{
	char b[16] = "from the server", big[4096];

	fill(big, sizeof big, 1);
	pair_cold(c, s);
	put(*c, big, (size_t)n);
	arrived(*s, n);
	for (int i = 0; i < (has_library() ? LONG : 4) && !(direct(*s) & 1); i++) {
		put(*s, b, sizeof b);
		get(*c, b, sizeof b);
		if (i > 3)
			nap(1);
	}
}

static void polled(int fd)
{
	struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};

	int n = poll(&p, 1, 0);
	out("poll %d %s", n, revents((unsigned)p.revents));
}

static void received(int fd, int n)
{
	char b[4096];
	ssize_t rc = recv(fd, b, (size_t)n, MSG_DONTWAIT);

	out("recv %zd %s", rc, rc < 0 ? errname(errno) : "");
}

static void error_of(int fd)
{
	int err = -1;
	socklen_t n = sizeof err;

	getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n);
	out("SO_ERROR %s", err > 0 ? errname(err) : "0");
}

// close with unread bytes resets, wherever they are.
static void close_early(void)
{
	int c, s;

	half(&c, &s, 300);
	put(s, "last", 4);
	arrived(c, 4);
	close(s);
	cut(c);
	polled(c);
	received(c, 100);
	received(c, 100);
	received(c, 100);
	R(send(c, "x", 1, MSG_NOSIGNAL));
}

// What is unread on TCP is still read once both directions are shut down here.
static void shutdown_early(void)
{
	int c, s;

	half(&c, &s, 300);
	R(shutdown(s, SHUT_RD));
	polled(s);
	R(shutdown(s, SHUT_WR));
	received(s, 100);
	received(s, 100);
	received(s, 100);
	received(s, 100);
	received(c, 100);
}

static void show_ends(int ep, int edge, int fd)
{
	ep_show(ep, 8, 0);
	ep_show(edge, 8, 0);
	polled(fd);
}

// A direction that is shut down here for reading is told as ended, and so are a reset and its
// error.
static void told_ends(void)
{
	int c, s, ep = ep_new(), edge = ep_new();

	pair(&c, &s);
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLRDHUP, 1));
	R(ep_set(edge, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLRDHUP | EPOLLET, 2));
	put(c, "some", 4);
	put(s, "unread", 6);
	arrived(s, 4);
	show_ends(ep, edge, s);
	R(shutdown(s, SHUT_RD));
	show_ends(ep, edge, s);
	received(s, 2);
	put(c, "more", 4);
	arrived(s, 6);
	show_ends(ep, edge, s);
	arrived(c, 6);
	close(c);
	cut(s);
	show_ends(ep, edge, s);
	error_of(s);
	show_ends(ep, edge, s);
	received(s, 100);
	received(s, 100);
	R(send(s, "x", 1, MSG_NOSIGNAL));
	show_ends(ep, edge, s);
}

// A reset is the first thing that a send tells after shutdown, and recvmmsg before any bytes.
static void errors_first(void)
{
	int c, s;
	char b[100];
	struct iovec v = {b, sizeof b};
	struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}}};

	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < 3; i++) {
		pair(&c, &s);
		put(s, "unread", 6);
		put(c, "some", 4);
		arrived(c, 6);
		arrived(s, 4);
		if (i < 2)
			R(shutdown(s, SHUT_WR));
		close(c);
		cut(s);
		if (i == 0)
			R(send(s, "x", 1, 0));
		R(recvmmsg(s, m, 2, MSG_DONTWAIT, NULL));
		out("%u", m[0].msg_len);
		R(send(s, "x", 1, 0));
		received(s, 100);
		received(s, 100);
		R(send(s, "x", 1, 0));
		close(s);
	}
}

// poll, with SO_RCVLOWAT, while bytes are in two places, and at the end of the connection.
static void lowat_two(void)
{
	int c, s, sum = 0, low = 40000;
	char b[1000] = "";

	pair_cold(&c, &s);
	R(setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
	while (sum < 60000 && readable(s, 1) == 0) {
		put(c, b, sizeof b);
		sum += (int)sizeof b;
		arrived(s, sum);
	}
	out("told at %d", sum);
	polled(s);
}

static void lowat_ends(void)
{
	int low = 500;

	for (int i = 0; i < 3; i++) {
		int c, s, ep = ep_new();

		pair(&c, &s);
		R(setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
		R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1));
		if (i == 1) {
			put(s, "unread", 6);
			arrived(c, 6);
		}
		put(c, "some", 4);
		arrived(s, 4);
		polled(s);
		ep_show(ep, 1, 0);
		if (i == 2)
			R(shutdown(c, SHUT_WR));
		else
			close(c);
		ended(s);
		polled(s);
		ep_show(ep, 1, 0);
		close(s);
		close(ep);
	}
}

// Peeks that move on by themselves, where the kernel has them for TCP.
static void peek_off(void)
{
	int c, s, from = 2;
	char b[100] = "";

	pair(&c, &s);
	R(setsockopt(s, SOL_SOCKET, SO_PEEK_OFF, &from, sizeof from));
	put(c, "0123456789", 10);
	arrived(s, 10);
	for (int i = 0; i < 4; i++) {
		ssize_t n = recv(s, b, 3, MSG_PEEK | MSG_DONTWAIT);
		out("peek %.*s %s", n > 0 ? (int)n : 0, b, n < 0 ? errname(errno) : "");
	}
	ssize_t n = recv(s, b, 4, MSG_DONTWAIT);
	out("recv %.*s", n > 0 ? (int)n : 0, b);
	n = recv(s, b, 4, MSG_PEEK | MSG_DONTWAIT);
	out("peek %.*s", n > 0 ? (int)n : 0, b);
}

// SO_RCVLOWAT of a listener, and of a socket before it is connected.
static void lowat_before(void)
{
	struct sockaddr_in addr;
	int l = listener(&addr), c = socket(AF_INET, SOCK_STREAM, 0), low = 5, one = 1;

	R(setsockopt(l, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
	R(setsockopt(c, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
	R(connect(c, (struct sockaddr *)&addr, sizeof addr));
	int s = accept(l, NULL, NULL), end[] = {c, s};
	setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	for (int i = 0; i < (has_library() ? LONG : 4) && direct(c) + direct(s) < 6; i++)
		for (int from = 0; from < 2; from++) {
			char b[5];
			put(end[from], "five!", 5);
			get(end[!from], b, 5);
		}
	for (int from = 0; from < 2; from++) {
		put(end[from], "thre", 3);
		arrived(end[!from], 3);
		out("3: %d", readable(end[!from], 0));
		put(end[from], "to", 2);
		arrived(end[!from], 5);
		out("5: %d", readable(end[!from], 0));
	}
}

// A thread that sleeps until there is as much as SO_RCVLOWAT asks for is told when that is less.
struct looker {
	int fd, set, tid;
};

static void *look(void *arg)
{
	struct looker *l = arg;
	struct pollfd p = {l->fd, POLLIN, 0};
	struct epoll_event ev;
	int ep = ep_new();

	ep_set(ep, EPOLL_CTL_ADD, l->fd, EPOLLIN, 1);
	__atomic_store_n(&l->tid, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	long n = l->set ? ep_hear(ep, &ev, 1, LONG) : poll(&p, 1, LONG);
	close(ep);
	return (void *)n;
}

static void lowat_lowered(void)
{
	for (int set = 0; set < 2; set++) {
		int c, s, low = 100;
		pthread_t t;
		void *n;

		pair(&c, &s);
		struct looker l = {s, set, 0};
		R(setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
		put(c, "some", 4);
		arrived(s, 4);
		pthread_create(&t, NULL, look, &l);
		udp_asleep(&l.tid);
		low = 4;
		R(setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
		pthread_join(t, &n);
		out("told %ld", (long)n);
		still_direct(c, s);
		close(c);
		close(s);
	}
}

// Vectors that are too long for the kernel.
static void long_vectors(void)
{
	int c, s;
	char b[10] = "";
	struct iovec v[2] = {{b, (size_t)-1}, {b, 1}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 1};

	pair(&c, &s);
	put(c, "some", 4);
	arrived(s, 4);
	for (int n = 1; n < 3; n++) {
		R(readv(s, v, n));
		R(writev(s, v, n));
		m.msg_iovlen = (size_t)n;
		R(recvmsg(s, &m, MSG_DONTWAIT));
		R(sendmsg(s, &m, MSG_DONTWAIT));
	}
	received(s, 10);
}

const struct probe told_probes[] = {
	{"close-early", close_early, 1},
	{"shutdown-early", shutdown_early, 1},
	{"told-ends", told_ends, 0},
	{"errors-first", errors_first, 0},
	{"lowat-two", lowat_two, 1},
	{"lowat-ends", lowat_ends, 0},
	{"peek-off", peek_off, 0},
	{"lowat-before", lowat_before, 1},
	{"lowat-lowered", lowat_lowered, 0},
	{"long-vectors", long_vectors, 0},
	{NULL, NULL, 0},
};

#include "probe.h"

/* Probes of the flags of send and recv. */

static char buf[1 << 18], buf2[1 << 18];

static void peek(void)
{
	int c, s;
	pair(&c, &s);
	put(c, "abcdef", 6);
	R(recv(s, buf, 3, MSG_PEEK));
	out("%.3s", buf);
	R(recv(s, buf, 10, MSG_PEEK));
	out("%.6s", buf);
	R(recv(s, buf, 2, 0));
	R(recv(s, buf, 10, MSG_PEEK));
	out("%.4s", buf);
	R(recv(s, buf, 10, 0));
	R(recv(s, buf, 10, MSG_PEEK | MSG_DONTWAIT));
	/* across messages */
	put(c, "12", 2);
	put(c, "34", 2);
	arrived(s, 4);
	R(readable(s, LONG));
	R(recv(s, buf, 10, MSG_PEEK));
	R(recv(s, buf, 10, 0));
}

/* A peek sees bytes in both places, the segment and TCP, after the sender has gone back to TCP. */
static void peek_demoted(void)
{
	int c, s, over[2], got;
	pair(&c, &s);
	put(c, "abc", 3);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, over))
		die("socketpair");
	pass_fd(over[0], c); /* whoever gets it may be without the library */
	put(c, "def", 3);
	arrived(s, 6);
	R(ioctl(s, FIONREAD, &got));
	out("%d to read", got);
	R(recv(s, buf, 5, MSG_PEEK));
	R(recv(s, buf, 10, MSG_PEEK | MSG_DONTWAIT));
	out("%.6s", buf);
	R(recv(s, NULL, 10, MSG_PEEK | MSG_TRUNC));
	R(recv(s, buf, 6, MSG_PEEK | MSG_WAITALL));
	R(recv(s, buf, 10, 0));
	out("%.6s", buf);
	R(recv(s, buf, 10, MSG_DONTWAIT));
}

static void peek_large(void)
{
	int c, s;
	pair(&c, &s);
	fill(buf, 200000, 7);
	put(c, buf, 100000);
	nap(50);
	size_t n = 0;
	while (n < 50000)
		n = (size_t)recv(s, buf2, 50000, MSG_PEEK | MSG_WAITALL);
	out("%zu same %d", n, memcmp(buf, buf2, 50000) == 0);
	out("%zu same %d", get(s, buf2, 100000), memcmp(buf, buf2, 100000) == 0);
	R(recv(s, buf2, 1, MSG_DONTWAIT));
}

static void waitall(void)
{
	int c, s;
	pthread_t t;
	pair(&c, &s);
	put(c, "first", 5);
	pthread_create(&t, NULL, write_later, &c);
	R(recv(s, buf, 9, MSG_WAITALL));
	out("%.9s", buf);
	pthread_join(t, NULL);
	put(c, "end", 3);
	shutdown(c, SHUT_WR);
	R(recv(s, buf, 11, MSG_WAITALL));
	R(recv(s, buf, 11, MSG_WAITALL));
	put(s, "x", 1);
	R(recv(c, buf, 11, MSG_WAITALL | MSG_DONTWAIT));
}

static void dontwait(void)
{
	int c, s;
	pair(&c, &s);
	R(recv(s, buf, 10, MSG_DONTWAIT));
	put(c, "a", 1);
	readable(s, LONG);
	R(recv(s, buf, 10, MSG_DONTWAIT));
	R(recv(s, buf, 10, MSG_DONTWAIT));
}

static void truncate_flag(void)
{
	int c, s;
	pair(&c, &s);
	put(c, "0123456789", 10);
	readable(s, LONG);
	memset(buf, '-', 10);
	R(recv(s, buf, 4, MSG_TRUNC));
	out("%.4s", buf);
	R(recv(s, buf, 10, 0));
	out("%.6s", buf);
}

static void more_flag(void)
{
	int c, s, one = 1, zero = 0;
	pair(&c, &s);
	R(send(c, "head ", 5, MSG_MORE));
	R(send(c, "body", 4, 0));
	out("%zu %.9s", get(s, buf, 9), buf);
	R(setsockopt(c, IPPROTO_TCP, TCP_CORK, &one, sizeof one));
	R(write(c, "corked ", 7));
	R(write(c, "bytes", 5));
	R(setsockopt(c, IPPROTO_TCP, TCP_CORK, &zero, sizeof zero));
	out("%zu %.12s", get(s, buf, 12), buf);
	R(setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
	socklen_t len = sizeof zero;
	R(getsockopt(c, IPPROTO_TCP, TCP_NODELAY, &zero, &len));
	out("%d", zero);
}

static void oob(void)
{
	int c, s, at = -1;
	pair(&c, &s);
	put(c, "abc", 3);
	R(send(c, "!", 1, MSG_OOB));
	put(c, "def", 3);
	struct pollfd p = {s, POLLPRI, 0};
	R(poll(&p, 1, LONG));
	out("%s", revents((unsigned)p.revents));
	nap(20);
	R(recv(s, buf + 50, 10, MSG_OOB));
	out("%c", buf[50]);
	size_t n = 0;
	while (n < 6) {
		ssize_t rc = read(s, buf + n, 10);
		if (rc <= 0)
			break;
		n += (size_t)rc;
	}
	out("%.6s", buf);
	R(ioctl(s, SIOCATMARK, &at));
	R(recv(s, buf, 10, MSG_OOB));
	put(s, "reply", 5);
	R(read(c, buf, 10));
}

/* What of "abc!def" read says, in which ! is urgent: it stops before that. */
static void to_mark(int inlined)
{
	int c, s, at = -1;
	pair(&c, &s);
	R(setsockopt(s, SOL_SOCKET, SO_OOBINLINE, &inlined, sizeof inlined));
	put(c, "abc", 3);
	R(send(c, "!", 1, MSG_OOB));
	put(c, "def", 3);
	struct pollfd p = {s, POLLPRI, 0};
	R(poll(&p, 1, LONG));
	nap(20);
	R(ioctl(s, SIOCATMARK, &at));
	out("%d", at);
	R(recv(s, buf, 64, MSG_PEEK));
	out("%zd %.3s", recv(s, buf, 64, 0), buf);
	R(ioctl(s, SIOCATMARK, &at));
	out("%d", at);
	R(sockatmark(s));
	if (!inlined) {
		R(recv(s, buf, 1, MSG_OOB));
		out("%c", buf[0]);
	}
	out("%zd %.3s", recv(s, buf, 64, 0), buf);
	R(sockatmark(s));
}

static void oob_mark(void)
{
	to_mark(0);
	to_mark(1);
}

/* Urgent data is sent while bytes are unread, which the peer, who makes no call, need not send
 * again. how: 0, the end has shut nothing down; SHUT_RD + 1 or SHUT_WR + 1, that. */
static void oob_while_unread(int how)
{
	int c, s;

	pair(&c, &s);
	put(c, "unread", 6);
	arrived(s, 6);
	if (how)
		R(shutdown(s, how - 1));
	R(send(s, "!", 1, MSG_OOB | MSG_NOSIGNAL));
	R(recv(s, buf, 1, MSG_OOB));
	R(recv(s, buf, 4, MSG_DONTWAIT));
	R(recv(s, buf, 10, MSG_DONTWAIT));
	out("%.2s", buf);
	R(recv(s, buf, 10, MSG_DONTWAIT));
	close(s);
	close(c);
}

static void oob_unread(void)
{
	for (int how = 0; how <= SHUT_WR + 1; how++)
		oob_while_unread(how);
}

/* An end offers that has unread bytes after urgent data: the kernel says that there are none. */
static void oob_offer(void)
{
	int c, s;

	pair_cold(&c, &s);
	R(send(s, "abc!", 4, MSG_OOB));
	put(s, "def", 3);
	nap(20);
	R(recv(c, buf, 1, MSG_OOB));
	R(recv(c, buf, 10, 0));
	for (int i = 0; i < 40; i++) {
		put(c, "go on", 5);
		get(s, buf, 5);
	}
	out("%zd %.3s", recv(c, buf, 10, 0), buf);
	put(s, "reply", 5);
	out("%zu %.5s", get(c, buf, 5), buf);
	is_direct(); /* TCP has all of it */
	close(s);
	close(c);
}

struct waiter {
	int fd, returned;
	ssize_t n;
};

static void *wait_all(void *arg)
{
	struct waiter *w = arg;

	w->n = recv(w->fd, buf, 100, MSG_WAITALL);
	__atomic_store_n(&w->returned, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* A receive waits for more than what comes before urgent data. */
static void oob_waitall(void)
{
	static const char more[100];
	pthread_t t;

	for (int how = 0; how < 4; how++) {
		struct waiter w = {0};
		int c, inlined = how & 1;

		(how & 2 ? pair_cold : pair)(&c, &w.fd);
		setsockopt(w.fd, SOL_SOCKET, SO_OOBINLINE, &inlined, sizeof inlined);
		put(c, "abc", 3);
		pthread_create(&t, NULL, wait_all, &w);
		for (int n = 3; n > 0; nap(1)) /* it has them, and waits */
			ioctl(w.fd, FIONREAD, &n);
		nap(20);
		R(send(c, "!", 1, MSG_OOB));
		for (long last = monotonic() + LONG / 6; !__atomic_load_n(&w.returned, __ATOMIC_SEQ_CST) && monotonic() < last;)
			nap(1);
		out("returned %d", __atomic_load_n(&w.returned, __ATOMIC_SEQ_CST));
		put(c, more, sizeof more);
		pthread_join(t, NULL);
		out("%zd %.*s", w.n, w.n > 0 ? (int)w.n : 0, buf);
		R(recv(w.fd, buf, 1, MSG_OOB));
		R(recv(w.fd, buf, sizeof buf, 0));
		close(c);
		close(w.fd);
	}
}

const struct probe flag_probes[] = {
	{"peek", peek, 0},
	{"peek-large", peek_large, 0},
	{"peek-demoted", peek_demoted, 0},
	{"waitall", waitall, 0},
	{"dontwait", dontwait, 0},
	{"msg-trunc", truncate_flag, 0},
	{"msg-more-cork", more_flag, 0},
	{"oob", oob, 0},
	{"oob-unread", oob_unread, 0},
	{"oob-waitall", oob_waitall, 0},
	{"oob-mark", oob_mark, 0},
	{"oob-offer", oob_offer, 0},
	{NULL, NULL, 0},
};

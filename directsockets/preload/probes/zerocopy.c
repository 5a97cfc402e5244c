#include "probe.h"

#include <linux/errqueue.h>

/* Probes of MSG_ZEROCOPY. When completions are told, and in how many pieces, is the kernel's to
 * choose: what counts is which numbers are told, once each, and how. */

static char buf[65536], got[65536];

struct seen {
	unsigned next; /* the number that is to come */
	int wrong, copied, flags, level, type;
	size_t len;
};

/* Reads one message of the error queue. False: there is none. */
static int completion(int fd, struct seen *w)
{
	char control[128];
	struct msghdr m = {.msg_control = control, .msg_controllen = sizeof control};
	ssize_t n = recvmsg(fd, &m, MSG_ERRQUEUE);

	if (n < 0 && errno == EAGAIN)
		return 0;
	struct cmsghdr *c = n == 0 ? CMSG_FIRSTHDR(&m) : NULL;
	if (!c)
		die("no control message");
	struct sock_extended_err e;
	memcpy(&e, CMSG_DATA(c), sizeof e);
	w->wrong += e.ee_info != w->next || e.ee_data < e.ee_info || e.ee_errno != 0 || e.ee_origin != SO_EE_ORIGIN_ZEROCOPY;
	w->next = e.ee_data + 1;
	w->copied = e.ee_code;
	w->flags = m.msg_flags;
	w->level = c->cmsg_level;
	w->type = c->cmsg_type;
	w->len = c->cmsg_len;
	return 1;
}

/* Waits until n sends were reported. */
static void complete(int fd, struct seen *w, unsigned n)
{
	for (int i = 0; i < LONG / 10 && w->next < n; i++)
		if (!completion(fd, w)) {
			struct pollfd p = {fd, 0, 0};
			poll(&p, 1, 10);
		}
	out("%u told, %d wrong, code %d, flags %#x, level %d type %d, %zu bytes", w->next, w->wrong, w->copied, (unsigned)w->flags, w->level, w->type, w->len);
}

static void enable(int fd)
{
	int one = 1;

	R(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one));
}

static void zerocopy(void)
{
	int c, s;
	struct seen w = {0};
	pair(&c, &s);
	R(send(c, buf, 100, MSG_ZEROCOPY)); /* without SO_ZEROCOPY it means nothing */
	get(s, got, 100);
	struct pollfd p = {c, POLLIN, 0};
	R(poll(&p, 1, 20));
	R(completion(c, &w));
	enable(c);
	fill(buf, sizeof buf, 3);
	for (int i = 0; i < 5; i++) {
		R(send(c, buf, 20000, MSG_ZEROCOPY));
		get(s, got, 20000);
		out("same %d", !memcmp(buf, got, 20000));
	}
	complete(c, &w, 5);
	R(poll(&p, 1, 0));
	out("%s", revents((unsigned)p.revents));
	R(completion(c, &w));
	R(send(c, buf, 0, MSG_ZEROCOPY));
	R(send(c, buf, 10, 0));
	get(s, got, 10);
	struct iovec v[2] = {{buf, 7}, {buf, 3000}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
	R(sendmsg(c, &m, MSG_ZEROCOPY));
	get(s, got, 3007);
	complete(c, &w, 6);
	still_direct(c, s);
}

/* Room for control data that is too small; calls that cannot take it. */
static void zerocopy_short(void)
{
	int c, s;
	char control[30];
	pair(&c, &s);
	enable(c);
	for (int i = 0; i < 3; i++) {
		send(c, buf, 5000, MSG_ZEROCOPY);
		get(s, got, 5000);
		struct pollfd p = {c, 0, 0};
		R(poll(&p, 1, LONG));
		out("%s", revents((unsigned)p.revents));
		struct msghdr m = {.msg_control = control, .msg_controllen = i ? sizeof control : 0};
		if (i < 2) {
			R(recvmsg(c, &m, MSG_ERRQUEUE));
			out("flags %#x, %zu bytes", (unsigned)m.msg_flags, (size_t)m.msg_controllen);
		} else {
			R(recv(c, got, 100, MSG_ERRQUEUE));
		}
		R(recv(c, got, 100, MSG_ERRQUEUE));
		R(poll(&p, 1, 0));
	}
}

static void zerocopy_epoll(void)
{
	int c, s, ep = ep_new();
	struct seen w = {0};
	pair(&c, &s);
	enable(c);
	ep_set(ep, EPOLL_CTL_ADD, c, EPOLLIN, 7);
	ep_show(ep, 4, 0);
	for (unsigned i = 0; i < 3; i++) {
		send(c, buf, 5000, MSG_ZEROCOPY);
		get(s, got, 5000);
		ep_show(ep, 4, LONG);
		complete(c, &w, i + 1);
		ep_show(ep, 4, 0);
	}
}

static void *sleeper(void *fd)
{
	struct pollfd p = {*(int *)fd, 0, 0};
	int n;
	do
		n = poll(&p, 1, -1);
	while (n < 0 && errno == EINTR);
	return (void *)(long)(n == 1 && p.revents == POLLERR);
}

static void *ep_sleeper(void *ep)
{
	struct epoll_event e;
	return (void *)(long)(ep_hear(*(int *)ep, &e, 1, -1) == 1 && e.events == EPOLLERR);
}

/* Threads that do nothing but wait for completions. */
static void zerocopy_threads(void)
{
	int c, s, ep = ep_new();
	pthread_t a, b;
	void *r;
	pair(&c, &s);
	enable(c);
	ep_set(ep, EPOLL_CTL_ADD, c, 0, 7);
	pthread_create(&a, NULL, sleeper, &c);
	pthread_create(&b, NULL, ep_sleeper, &ep);
	nap(100);
	R(send(c, buf, 5000, MSG_ZEROCOPY));
	get(s, got, 5000);
	pthread_join(a, &r);
	out("poll %ld", (long)r);
	pthread_join(b, &r);
	out("epoll %ld", (long)r);
}

enum { SOME = 3 }; /* of which the second has SO_ZEROCOPY */

static void *poll_sleeper(void *fds)
{
	struct pollfd p[SOME];
	int n;
	for (int i = 0; i < SOME; i++)
		p[i] = (struct pollfd){((int *)fds)[i], POLLIN, 0};
	do
		n = poll(p, SOME, -1);
	while (n < 0 && errno == EINTR);
	return (void *)(long)(n == 1 && p[1].revents == POLLERR);
}

static void *select_sleeper(void *fds)
{
	fd_set in;
	int n;
	do {
		FD_ZERO(&in);
		for (int i = 0; i < SOME; i++)
			FD_SET(((int *)fds)[i], &in);
		n = select(FD_SETSIZE, &in, NULL, NULL, NULL);
	} while (n < 0 && errno == EINTR);
	return (void *)(long)(n == 1 && FD_ISSET(((int *)fds)[1], &in));
}

/* The same, of several connections: each thread alone, then both. */
static void zerocopy_sets(void)
{
	static void *(*const sleepers[])(void *) = {poll_sleeper, select_sleeper};
	int c[SOME], s[SOME];
	struct seen w = {0};
	for (int i = 0; i < SOME; i++)
		pair(&c[i], &s[i]);
	enable(c[1]);
	for (unsigned round = 0; round < 6; round++) {
		unsigned which = round % 3 + 1;
		pthread_t t[2];
		void *r;
		for (unsigned i = 0; i < 2; i++)
			if (which >> i & 1)
				pthread_create(&t[i], NULL, sleepers[i], c);
		nap(50);
		R(send(c[1], buf, 5000, MSG_ZEROCOPY));
		get(s[1], got, 5000);
		for (unsigned i = 0; i < 2; i++)
			if (which >> i & 1) {
				pthread_join(t[i], &r);
				out("%s %ld", i ? "select" : "poll", (long)r);
			}
		complete(c[1], &w, round + 1);
	}
}

/* Numbers go on, whatever way the bytes go: beginning on TCP, and back there. */
static void zerocopy_numbers(void)
{
	int c, s;
	struct seen w = {0};
	pair_cold(&c, &s);
	enable(c);
	for (unsigned i = 0; i < 100; i++) {
		send(c, buf, 2000, MSG_ZEROCOPY);
		get(s, got, 2000);
		put(s, got, 1);
		get(c, got, 1);
		if (i % 10 == 0)
			nap(1);
	}
	complete(c, &w, 100);
	put(s, "unread", 6);
	send(c, "!", 1, MSG_OOB); /* what is direct goes back */
	for (unsigned i = 0; i < 20; i++) {
		send(c, buf, 2000, MSG_ZEROCOPY);
		get(s, got, 2000);
	}
	complete(c, &w, 120);
}

static void zerocopy_ipv6(void)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	socklen_t len = sizeof a;
	struct seen w = {0};
	int l = socket(AF_INET6, SOCK_STREAM, 0);
	if (bind(l, (struct sockaddr *)&a, sizeof a) || listen(l, 5) || getsockname(l, (struct sockaddr *)&a, &len))
		die("listen");
	nap(20);
	int c = socket(AF_INET6, SOCK_STREAM, 0);
	R(connect(c, (struct sockaddr *)&a, sizeof a));
	int s = accept(l, NULL, NULL);
	warm(c, s);
	enable(c);
	R(send(c, buf, 3000, MSG_ZEROCOPY));
	get(s, got, 3000);
	complete(c, &w, 1);
}

const struct probe zerocopy_probes[] = {
	{"zerocopy", zerocopy, 0},
	{"zerocopy-short", zerocopy_short, 0},
	{"zerocopy-epoll", zerocopy_epoll, 0},
	{"zerocopy-threads", zerocopy_threads, 0},
	{"zerocopy-sets", zerocopy_sets, 0},
	{"zerocopy-numbers", zerocopy_numbers, 1},
	{"zerocopy-ipv6", zerocopy_ipv6, 0},
	{NULL, NULL, 0},
};

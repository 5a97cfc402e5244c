#include "probe.h"

/* Probes of moving bytes on one connection. */

static char buf[1 << 20], buf2[1 << 20];

static void echo(void)
{
	int c, s;
	pair(&c, &s);
	R(write(c, "hello", 5));
	R(read(s, buf, sizeof buf));
	out("%.5s", buf);
	R(write(s, "world!", 6));
	R(read(c, buf, 3));
	R(read(c, buf + 3, 100));
	out("%.6s", buf);
}

static void banner(void)
{
	int c, s;
	pair(&c, &s);
	R(write(s, "220 ready\r\n", 11));
	R(read(c, buf, sizeof buf));
	R(write(c, "QUIT\r\n", 6));
	R(read(s, buf, sizeof buf));
	close(s);
	R(read(c, buf, sizeof buf));
	R(close(c));
}

static void halfclose(void)
{
	int c, s;
	pair(&c, &s);
	R(write(c, "request", 7));
	R(shutdown(c, SHUT_WR));
	R(read(s, buf, sizeof buf));
	R(read(s, buf, sizeof buf));
	R(read(s, buf, sizeof buf));
	R(write(s, "response", 8));
	R(read(c, buf, sizeof buf));
	R(close(s));
	R(read(c, buf, sizeof buf));
}

static void nonblock_later(void)
{
	int c, s, one = 1, zero = 0;
	pthread_t t;
	pair(&c, &s);
	nonblock(s, 1);
	R(read(s, buf, 10));
	nonblock(s, 0);
	pthread_create(&t, NULL, write_later, &c);
	R(read(s, buf, 10));
	pthread_join(t, NULL);
	R(ioctl(s, FIONBIO, &one));
	R(read(s, buf, 10));
	R(fcntl(s, F_GETFL) & O_NONBLOCK);
	R(ioctl(s, FIONBIO, &zero));
	pthread_create(&t, NULL, write_later, &c);
	R(read(s, buf, 10));
	pthread_join(t, NULL);
	/* the flag belongs to the socket, not to the descriptor */
	int d = dup(s);
	nonblock(d, 1);
	R(read(s, buf, 10));
}

static void backpressure(void)
{
	int c, s;
	size_t sent = 0, got = 0;
	ssize_t rc;
	struct pollfd p;
	pair(&c, &s);
	nonblock(c, 1);
	nonblock(s, 1);
	while ((rc = write(c, buf, 65536)) > 0)
		sent += (size_t)rc;
	out("%s, some %d", errname(errno), sent > 0);
	p = (struct pollfd){c, POLLOUT, 0};
	R(poll(&p, 1, 50));
	while (got < sent) {
		rc = read(s, buf2, sizeof buf2);
		if (rc > 0)
			got += (size_t)rc;
		else
			readable(s, LONG);
	}
	out("all came %d", got == sent);
	R(poll(&p, 1, LONG));
	out("%s", revents((unsigned)p.revents));
	R(write(c, "x", 1));
}

static void *slow_reader(void *p)
{
	nap(50);
	size_t n = get(*(int *)p, buf2, sizeof buf2);
	return (void *)n;
}

static void blocking_send(void)
{
	int c, s;
	pthread_t t;
	void *n;
	size_t total = 8 << 20, got = 0;
	pair(&c, &s);
	fill(buf, sizeof buf, 3);
	pid_t pid = fork();
	if (pid == 0) {
		for (size_t i = 0; i < total; i += sizeof buf)
			put(c, buf, sizeof buf);
		_exit(0);
	}
	while (got < total) {
		pthread_create(&t, NULL, slow_reader, &s);
		pthread_join(t, &n);
		out("%zu same %d", (size_t)n, memcmp(buf, buf2, sizeof buf) == 0);
		got += (size_t)n;
	}
	finish(pid);
}

static void vectors(void)
{
	int c, s;
	char a[3], b[5], d[100];
	pair(&c, &s);
	struct iovec w[4] = {{"one ", 4}, {NULL, 0}, {"two ", 4}, {"three", 5}};
	R(writev(c, w, 4));
	struct iovec r[3] = {{a, 3}, {b, 5}, {d, 100}};
	R(readv(s, r, 3));
	out("%.3s|%.5s|%.5s", a, b, d);
	R(writev(c, w, 0));
	R(writev(c, w, atoi("-1")));
	R(writev(c, w + 1, 1));
	struct iovec many[1025];
	for (int i = 0; i < 1025; i++)
		many[i] = (struct iovec){buf + i * 16, 16};
	fill(buf, 16384, 1);
	R(writev(c, many, 1024));
	out("%zu %d", get(s, buf2, 16384), memcmp(buf, buf2, 16384) == 0);
	R(writev(c, many, 1025));
}

static void msgs(void)
{
	int c, s;
	char a[4], name[64], ctl[64];
	pair(&c, &s);
	struct iovec w[2] = {{"ping", 4}, {"pong", 4}}, r[2] = {{a, 4}, {buf, 100}};
	struct msghdr m = {.msg_iov = w, .msg_iovlen = 2};
	R(sendmsg(c, &m, 0));
	m = (struct msghdr){.msg_iov = r, .msg_iovlen = 2, .msg_name = name, .msg_namelen = sizeof name, .msg_control = ctl, .msg_controllen = sizeof ctl, .msg_flags = 77};
	R(recvmsg(s, &m, 0));
	out("%.4s%.4s namelen %u controllen %zu flags %d", a, buf, m.msg_namelen, m.msg_controllen, m.msg_flags);
	m = (struct msghdr){.msg_iov = r, .msg_iovlen = 2};
	R(recvmsg(s, &m, MSG_DONTWAIT));
	m = (struct msghdr){0};
	R(sendmsg(c, &m, 0));
	R(recvmsg(s, &m, MSG_DONTWAIT));
}

static void mmsgs(void)
{
	int c, s;
	pair(&c, &s);
	struct iovec w[3] = {{"aa", 2}, {"bbb", 3}, {"c", 1}}, r[3] = {{buf, 2}, {buf + 8, 3}, {buf + 16, 10}};
	struct mmsghdr m[3] = {{.msg_hdr = {.msg_iov = &w[0], .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &w[1], .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &w[2], .msg_iovlen = 1}}};
	R(sendmmsg(c, m, 3, 0));
	out("%u %u %u", m[0].msg_len, m[1].msg_len, m[2].msg_len);
	arrived(s, 6);
	for (int i = 0; i < 3; i++)
		m[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &r[i], .msg_iovlen = 1}};
	R(recvmmsg(s, m, 3, 0, NULL));
	out("%u %u %u %.2s %.3s %.1s", m[0].msg_len, m[1].msg_len, m[2].msg_len, buf, buf + 8, buf + 16);
	put(c, "zz", 2);
	R(recvmmsg(s, m, 3, MSG_WAITFORONE, NULL));
	R(recvmmsg(s, m, 3, MSG_DONTWAIT, NULL));
}

static void sendto_address(void)
{
	int c, s;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9)}, from;
	socklen_t len = sizeof from;
	pair(&c, &s);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	R(sendto(c, "x", 1, 0, (struct sockaddr *)&a, sizeof a));
	memset(&from, 0, sizeof from);
	R(recvfrom(s, buf, 10, 0, (struct sockaddr *)&from, &len));
	out("len %u family %d", len, from.sin_family);
	struct iovec w = {"y", 1};
	struct msghdr m = {.msg_iov = &w, .msg_iovlen = 1, .msg_name = &a, .msg_namelen = sizeof a};
	R(sendmsg(c, &m, 0));
	R(recvfrom(s, buf, 10, 0, NULL, NULL));
}

static void fionread(void)
{
	int c, s, n = -1;
	pair(&c, &s);
	R(ioctl(s, FIONREAD, &n));
	out("%d", n);
	put(c, "12345", 5);
	readable(s, LONG);
	R(ioctl(s, FIONREAD, &n));
	out("%d", n);
	put(c, buf, 20000);
	arrived(s, 20005);
	ioctl(s, FIONREAD, &n);
	out("%d", n);
	get(s, buf, 20000);
	R(ioctl(s, FIONREAD, &n));
	out("%d", n);
}

static void zero_lengths(void)
{
	int c, s;
	pair(&c, &s);
	R(write(c, "", 0));
	R(send(c, "", 0, 0));
	R(recv(s, buf, 10, MSG_DONTWAIT));
	put(c, "x", 1);
	readable(s, LONG);
	R(read(s, buf, 0));
	R(recv(s, buf, 0, 0));
	R(read(s, buf, 10));
}

static void large(void)
{
	int c, s;
	unsigned long sum = 0, want = 0;
	size_t total = 64 << 20, n = 0;
	pair(&c, &s);
	fill(buf, sizeof buf, 11);
	pid_t pid = fork();
	if (pid == 0) {
		for (size_t i = 0; i < total; i += sizeof buf)
			put(c, buf, sizeof buf);
		_exit(0);
	}
	for (size_t i = 0; i < total; i++)
		want = want * 31 + (unsigned char)buf[i % sizeof buf];
	while (n < total) {
		ssize_t rc = read(s, buf2, sizeof buf2);
		if (rc <= 0)
			die("read");
		for (ssize_t i = 0; i < rc; i++)
			sum = sum * 31 + (unsigned char)buf2[i];
		n += (size_t)rc;
	}
	out("%zu bytes, same %d", n, sum == want);
	finish(pid);
}

static void both_ways(void)
{
	int c, s;
	size_t cs = 0, sc = 0, cr = 0, sr = 0, total = 4 << 20;
	pair(&c, &s);
	nonblock(c, 1);
	nonblock(s, 1);
	fill(buf, 65536, 2);
	while (cr < total || sr < total) {
		struct pollfd p[2] = {{c, (short)(POLLIN | (cs < total ? POLLOUT : 0)), 0}, {s, (short)(POLLIN | (sc < total ? POLLOUT : 0)), 0}};
		if (poll(p, 2, LONG) <= 0)
			die("poll");
		ssize_t rc;
		if ((p[0].revents & POLLOUT) && (rc = write(c, buf + cs % 65536, 65536 - cs % 65536)) > 0)
			cs += (size_t)rc;
		if ((p[1].revents & POLLOUT) && (rc = write(s, buf + sc % 65536, 65536 - sc % 65536)) > 0)
			sc += (size_t)rc;
		if ((p[0].revents & POLLIN) && (rc = read(c, buf2, 65536)) > 0) {
			for (ssize_t i = 0; i < rc; i++)
				if (buf2[i] != buf[(cr + (size_t)i) % 65536])
					die("wrong byte");
			cr += (size_t)rc;
		}
		if ((p[1].revents & POLLIN) && (rc = read(s, buf2, 65536)) > 0) {
			for (ssize_t i = 0; i < rc; i++)
				if (buf2[i] != buf[(sr + (size_t)i) % 65536])
					die("wrong byte");
			sr += (size_t)rc;
		}
	}
	out("both %d %d", cr == total, sr == total);
}

static void sizes(void)
{
	int c, s;
	static const size_t n[] = {1, 2, 119, 120, 121, 239, 240, 241, 480, 481, 1000, 4095, 4096, 4097, 65535, 65536, 65537, 131072, 300001};
	pair(&c, &s);
	fill(buf, 400000, 9);
	for (unsigned i = 0; i < sizeof n / sizeof *n; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			put(c, buf, n[i]);
			_exit(0);
		}
		size_t got = get(s, buf2, n[i]);
		out("%zu same %d", got, memcmp(buf, buf2, n[i]) == 0);
		waitpid(pid, NULL, 0);
	}
}

static void chk_forms(void)
{
	int c, s;
	ssize_t __read_chk(int, void *, size_t, size_t);
	ssize_t __recv_chk(int, void *, size_t, size_t, int);
	ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
	int __poll_chk(struct pollfd *, nfds_t, int, size_t);
	pair(&c, &s);
	put(c, "0123456789", 10);
	struct pollfd p = {s, POLLIN, 0};
	R(__poll_chk(&p, 1, 1000, sizeof p));
	R(__read_chk(s, buf, 3, sizeof buf));
	R(__recv_chk(s, buf + 3, 3, sizeof buf, 0));
	R(__recvfrom_chk(s, buf + 6, 10, sizeof buf, 0, NULL, NULL));
	out("%.10s", buf);
}

/* Pointers that are none. */
static void bad_pointers(void)
{
	int c, s;
	char *volatile null = NULL, *volatile one = (char *)1, *volatile last = (char *)-1;
	pair(&c, &s);
	struct iovec v[2] = {{buf, 0}, {one, 10}};
	R(write(c, null, 10));
	R(write(c, last, 10));
	R(writev(c, v, 2));
	put(c, "data", 4);
	readable(s, LONG);
	R(read(s, one, 10));
	R(recv(s, last, 10, 0));
	R(recv(s, null, 2, MSG_TRUNC));
	R(read(s, null, 0));
	R(read(s, buf, 10));
	out("%.2s", buf);
	R(write(c, null, 0));
}

static void *reset_later(void *fd)
{
	struct linger l = {1, 0};

	nap(50);
	setsockopt(*(int *)fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
	close(*(int *)fd);
	return NULL;
}

/* recvmmsg has got some when the connection is reset: the next call is told. */
static void mmsgs_reset(void)
{
	char b[3];
	struct iovec v = {b, 1};
	struct mmsghdr m[3] = {{.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}}};
	pthread_t t;

	for (int i = 0; i < 3; i++) {
		int c, s, err = 0;
		socklen_t n = sizeof err;
		pair(&c, &s);
		put(c, "ab", 2);
		pthread_create(&t, NULL, reset_later, &c);
		R(recvmmsg(s, m, 3, 0, NULL));
		pthread_join(t, NULL);
		if (i == 0)
			R(recvmmsg(s, m, 3, 0, NULL));
		if (i == 1) {
			R(getsockopt(s, SOL_SOCKET, SO_ERROR, &err, &n));
			out("%s", errname(err));
		}
		R(recv(s, b, 1, 0));
		R(recv(s, b, 1, 0));
		close(s);
	}
}

const struct probe io_probes[] = {
	{"echo", echo, 0},
	{"banner", banner, 0},
	{"halfclose", halfclose, 0},
	{"nonblock-later", nonblock_later, 0},
	{"backpressure", backpressure, 0},
	{"blocking-send", blocking_send, 0},
	{"vectors", vectors, 0},
	{"msgs", msgs, 0},
	{"mmsgs", mmsgs, 0},
	{"mmsgs-reset", mmsgs_reset, 0},
	{"sendto-address", sendto_address, 0},
	{"fionread", fionread, 0},
	{"zero-lengths", zero_lengths, 0},
	{"large", large, 0},
	{"both-ways-64k", both_ways, 0},
	{"sizes", sizes, 0},
	{"chk-forms", chk_forms, 0},
	{"bad-pointers", bad_pointers, 0},
	{NULL, NULL, 0},
};

// A call that succeeds leaves errno as it was, as the C library's own do: programs set it to 0,
// read to the end of a connection, and take what it is then for an error.
#include "probe.h"

enum { MARK = 4242, MUCH = 6 << 20 };

// KEPT says about a call that succeeds whether errno was kept.
#define KEPT(call) \
	do { \
		errno = MARK; \
		long rc_ = (long)(call); \
		kept(#call, rc_, errno); \
	} while (0)

static void kept(const char *what, long rc, int now)
{
	if (rc < 0)
		out("%s: failed with %s", what, errname(now));
	else if (now != MARK)
		out("%s: errno has become %s", what, errname(now));
	else
		out("%s: kept", what);
}

struct mate {
	pthread_t thread;
	int fd, pause; // ms before it begins
	size_t writes, reads;
};

// A mate reads and writes so much, after a pause.
static void *mate(void *arg)
{
	struct mate *m = arg;
	static char buf[65536];

	usleep((unsigned)m->pause * 1000);
	for (ssize_t n; m->reads > 0 && (n = read(m->fd, buf, sizeof buf < m->reads ? sizeof buf : m->reads)) > 0;)
		m->reads -= (size_t)n;
	for (ssize_t n; m->writes > 0 && (n = write(m->fd, buf, sizeof buf < m->writes ? sizeof buf : m->writes)) > 0;)
		m->writes -= (size_t)n;
	return NULL;
}

static void mate_begin(struct mate *m, int fd, int pause, size_t reads, size_t writes)
{
	*m = (struct mate){.fd = fd, .pause = pause, .reads = reads, .writes = writes};
	pthread_create(&m->thread, NULL, mate, m);
}

static void mate_end(struct mate *m) { pthread_join(m->thread, NULL); }

static char much[MUCH];

// Reads and writes that sleep, and those that need not.
static void errno_io(void)
{
	struct mate m;
	struct iovec v[2] = {{much, 100}, {much + 100, 100}};
	struct msghdr h = {.msg_iov = v, .msg_iovlen = 2};
	int c, s;

	pair(&c, &s);
	KEPT(write(c, much, 10));
	KEPT(send(c, much, 10, 0));
	KEPT(writev(c, v, 2));
	KEPT(sendmsg(c, &h, 0));
	KEPT(recv(s, much, 10, MSG_PEEK));
	KEPT(recv(s, much, 10, MSG_DONTWAIT));
	KEPT(read(s, much, 10));
	KEPT(recv(s, much, 400, MSG_WAITALL));
	for (int i = 0; i < 3; i++) {
		mate_begin(&m, c, 30, 0, 5000);
		KEPT(read(s, much, 1));
		KEPT(recv(s, much, 4999, MSG_WAITALL));
		mate_end(&m);
		mate_begin(&m, s, 30, MUCH, 1);
		KEPT(write(c, much, MUCH));
		KEPT(read(c, much, 1));
		mate_end(&m);
	}
	mate_begin(&m, c, 0, 0, MUCH);
	KEPT(recv(s, much, MUCH, MSG_WAITALL));
	mate_end(&m);
	KEPT(shutdown(c, SHUT_WR));
	KEPT(read(s, much, 1));
	KEPT(close(s));
	KEPT(read(c, much, 1));
	KEPT(close(c));
}

// All that waits for readiness, at once and with sleep.
static void errno_wait(void)
{
	struct mate m;
	struct epoll_event e = {.events = EPOLLIN};
	struct timeval none = {0, 0};
	int c, s, ep;

	pair(&c, &s);
	struct pollfd p = {s, POLLIN, 0};
	fd_set set;
	FD_ZERO(&set);
	FD_SET(s, &set);
	KEPT(poll(&p, 1, 0));
	KEPT(select(s + 1, &set, NULL, NULL, &none));
	KEPT(ep = epoll_create1(0));
	KEPT(epoll_ctl(ep, EPOLL_CTL_ADD, s, &e));
	KEPT(epoll_wait(ep, &e, 1, 0));
	for (int i = 0; i < 3; i++) {
		mate_begin(&m, c, 30, 0, 1);
		KEPT(poll(&p, 1, -1));
		FD_SET(s, &set);
		KEPT(select(s + 1, &set, NULL, NULL, NULL));
		KEPT(read(s, much, 1));
		mate_end(&m);
		mate_begin(&m, c, 30, 0, 1);
		KEPT(epoll_wait(ep, &e, 1, -1));
		KEPT(read(s, much, 1));
		mate_end(&m);
		mate_begin(&m, c, 30, 0, 1);
		KEPT(select(s + 1, &set, NULL, NULL, NULL));
		KEPT(read(s, much, 1));
		mate_end(&m);
	}
	e.events = EPOLLIN | EPOLLOUT | EPOLLET;
	KEPT(epoll_ctl(ep, EPOLL_CTL_MOD, s, &e));
	KEPT(epoll_wait(ep, &e, 1, -1));
	KEPT(epoll_ctl(ep, EPOLL_CTL_DEL, s, &e));
	KEPT(close(ep));
	still_direct(c, s);
	close(c);
	close(s);
}

// A connection's life: from its socket, through the change to the direct path, to its end.
static void errno_life(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int l, c, s, one = 1, n, changed = 0;

	KEPT(l = socket(AF_INET, SOCK_STREAM, 0));
	KEPT(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	KEPT(bind(l, (struct sockaddr *)&a, sizeof a));
	KEPT(listen(l, 1));
	KEPT(getsockname(l, (struct sockaddr *)&a, &len));
	KEPT(c = socket(AF_INET, SOCK_STREAM, 0));
	KEPT(connect(c, (struct sockaddr *)&a, sizeof a));
	KEPT(s = accept(l, NULL, NULL));
	KEPT(setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
	errno = MARK;
	for (int i = 0; i < 20000; i++) {
		changed |= write(c, much, 100) == 100 && errno != MARK;
		changed |= recv(s, much, 100, MSG_WAITALL) == 100 && errno != MARK;
		changed |= write(s, much, 100) == 100 && errno != MARK;
		changed |= recv(c, much, 100, MSG_WAITALL) == 100 && errno != MARK;
		if (!(i % 100))
			usleep(100), errno = MARK;
	}
	out("turns: %s", changed ? "errno was changed" : "kept");
	KEPT(ioctl(s, FIONREAD, &n));
	KEPT(fcntl(s, F_GETFL));
	KEPT(fcntl(s, F_SETFL, O_RDWR | O_NONBLOCK));
	len = sizeof n;
	KEPT(getsockopt(s, SOL_SOCKET, SO_ERROR, &n, &len));
	KEPT(n = dup(s));
	KEPT(dup2(n, s));
	KEPT(close(n));
	n = open("/proc/self/exe", O_RDONLY);
	KEPT(sendfile(c, n, NULL, 1000));
	close(n);
	int p[2];
	pipe(p);
	KEPT(splice(s, NULL, p[1], NULL, 1000, 0));
	KEPT(splice(p[0], NULL, c, NULL, 1000, 0));
	KEPT(shutdown(c, SHUT_RDWR));
	KEPT(close(c));
	KEPT(close(s));
	KEPT(close(l));
	close(p[0]);
	close(p[1]);
}

const struct probe errno_probes[] = {
	{"errno-io", errno_io, 0},
	{"errno-wait", errno_wait, 0},
	{"errno-life", errno_life, 1},
	{NULL, NULL, 0},
};

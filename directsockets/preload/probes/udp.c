// Datagrams: bytes, boundaries, addresses, flags, errors.
#include "udp.h"

#include <dlfcn.h>

static void (*moved)(unsigned long n[4]);

unsigned long through(void)
{
	unsigned long n[4] = {0};

	*(void **)&moved = dlsym(RTLD_DEFAULT, "exnds_datagrams");
	if (moved)
		moved(n);
	return n[0];
}

int udp_socket(struct sockaddr_in *addr)
{
	socklen_t len = sizeof *addr;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	memset(addr, 0, sizeof *addr);
	addr->sin_family = AF_INET;
	addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)addr, sizeof *addr) || getsockname(fd, (struct sockaddr *)addr, &len))
		die("udp_socket");
	return fd;
}

ssize_t to(int server, int client, const char *text)
{
	struct sockaddr_in a;
	socklen_t len = sizeof a;

	getsockname(client, (struct sockaddr *)&a, &len);
	return sendto(server, text, strlen(text), 0, (struct sockaddr *)&a, len);
}

// Receives a datagram, and what the kernel says with it: without that, one with control data that
// the socket has asked for cannot come through memory.
static ssize_t take(int fd, int flags)
{
	static union {
		char b[256];
		struct cmsghdr align;
	} u;
	char b[16];
	struct iovec v = {b, sizeof b};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = u.b, .msg_controllen = sizeof u.b};

	return recvmsg(fd, &m, flags);
}

void udp_warm(int c, int s)
{
	long last = monotonic() + LONG;

	for (int i = 0; monotonic() < last; i++) {
		unsigned long before = through();
		if (send(c, "w", 1, 0) != 1 || take(s, 0) != 1 || to(s, c, "w") != 1 || take(c, 0) != 1)
			die("warm");
		if (has_library() ? through() == before + 2 : i == 4)
			break;
		// What was sent by the kernel has all come: nothing is left.
		take(c, MSG_DONTWAIT);
		take(s, MSG_DONTWAIT);
		nap(2);
	}
	if (through())
		is_direct();
}

void udp_pair(int *c, int *s)
{
	struct sockaddr_in a, b;

	*s = udp_socket(&a);
	*c = udp_socket(&b);
	if (connect(*c, (struct sockaddr *)&a, sizeof a))
		die("connect");
	if (!is_cold())
		udp_warm(*c, *s);
}

void shown(const char *buf, ssize_t n)
{
	if (n < 0)
		out("  %s", errname(errno));
	else
		out("  %zd bytes: %.*s%s", n, (int)(n < 24 ? n : 24), buf, n > 24 ? "..." : "");
}

void show(int fd, int flags)
{
	static char b[70000];

	shown(b, recv(fd, b, sizeof b, flags));
}

void quiet(int fd) { show(fd, MSG_DONTWAIT); }

int drain(int fd)
{
	static char b[70000];
	int n = 0;

	while (recv(fd, b, sizeof b, MSG_DONTWAIT) >= 0)
		n++;
	return n;
}

// Boundaries, and datagrams without bytes.
static void boundaries(void)
{
	int c, s;

	udp_pair(&c, &s);
	R(send(c, "one", 3, 0));
	R(send(c, "", 0, 0));
	R(send(c, "three", 5, 0));
	R(write(c, "", 0));
	R(write(c, "five", 4));
	for (int i = 0; i < 5; i++)
		show(s, 0);
	quiet(s);
	char b[8];
	R(send(c, "unread", 6, 0));
	R(read(s, b, 0));
	R(recv(s, b, 0, 0));
	quiet(s);
}

// Each size up to the largest, whole; larger ones are refused.
static void sizes(void)
{
	static const int of[] = {1, 47, 48, 49, 111, 112, 113, 1400, 4096, 9000, 16384, 40000, 65506, 65507};
	static char a[70000], b[70000];
	int c, s, wrong = 0;

	udp_pair(&c, &s);
	fill(a, sizeof a, 7);
	for (unsigned i = 0; i < sizeof of / sizeof *of; i++)
		for (int k = 0; k < 20; k++) {
			ssize_t n = send(c, a + k, (size_t)of[i], 0), r = recv(s, b, sizeof b, 0);
			wrong += n != of[i] || r != n || memcmp(a + k, b, (size_t)n) != 0;
		}
	out("%d wrong", wrong);
	R(send(c, a, 65508, 0));
	R(send(c, a, sizeof a, 0));
	R(send(c, "after", 5, 0));
	show(s, 0);
}

// What does not fit is cut, and MSG_TRUNC says how long it was. MSG_PEEK leaves it.
static void flags(void)
{
	char b[16], d[16];
	struct iovec v[2] = {{b, 3}, {d, 4}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
	int c, s, n = -1;

	udp_pair(&c, &s);
	R(send(c, "0123456789", 10, 0));
	R(send(c, "abcdefghij", 10, 0));
	arrived(s, 1);
	R(ioctl(s, FIONREAD, &n));
	out("%d", n);
	R(recv(s, b, 4, MSG_PEEK));
	R(recv(s, b, 4, MSG_PEEK | MSG_TRUNC));
	R(recvmsg(s, &m, MSG_PEEK));
	out("%.3s %.4s flags %#x", b, d, m.msg_flags);
	R(recv(s, b, 4, MSG_TRUNC));
	R(recvmsg(s, &m, 0));
	out("%.3s %.4s flags %#x", b, d, m.msg_flags);
	R(ioctl(s, FIONREAD, &n));
	out("%d", n);
	quiet(s);
	R(recv(s, b, 4, MSG_PEEK | MSG_DONTWAIT));
	R(send(c, "waitall", 7, MSG_DONTWAIT | MSG_NOSIGNAL));
	R(recv(s, b, sizeof b, MSG_WAITALL));
	R(send(c, "x", 1, MSG_OOB));
	R(recv(s, b, sizeof b, MSG_OOB | MSG_DONTWAIT));
}

// Who sent it: by all calls that say so, into room that is too small, too.
static void names(void)
{
	struct sockaddr_in a, own;
	socklen_t len = sizeof a;
	char b[16];
	struct iovec v = {b, sizeof b};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_name = &a, .msg_namelen = sizeof a};
	int c, s;

	udp_pair(&c, &s);
	getsockname(c, (struct sockaddr *)&own, &len);
	for (int i = 0; i < 5; i++)
		send(c, "name", 4, 0);
	memset(&a, 0, sizeof a);
	R(recvfrom(s, b, sizeof b, 0, (struct sockaddr *)&a, &len));
	out("%d %d", len, memcmp(&a, &own, sizeof a));
	memset(&a, 0, sizeof a);
	len = 4;
	R(recvfrom(s, b, sizeof b, 0, (struct sockaddr *)&a, &len));
	out("%d %d %d", len, a.sin_port == own.sin_port, a.sin_addr.s_addr);
	R(recvmsg(s, &m, 0));
	out("%d %d flags %#x", m.msg_namelen, memcmp(&a, &own, sizeof a), m.msg_flags);
	m.msg_namelen = 6;
	memset(&a, 0, sizeof a);
	R(recvmsg(s, &m, 0));
	out("%d %d", m.msg_namelen, a.sin_addr.s_addr);
	len = (socklen_t)-1;
	R(recvfrom(s, b, sizeof b, 0, (struct sockaddr *)&a, &len));
	quiet(s);
}

// Many at once, with a time and with MSG_WAITFORONE.
static void many(void)
{
	enum { N = 6 };
	char b[N][8];
	struct iovec v[N];
	struct mmsghdr m[N];
	struct timespec t = {1, 0};
	int c, s;

	udp_pair(&c, &s);
	memset(m, 0, sizeof m);
	for (int i = 0; i < N; i++) {
		snprintf(b[i], sizeof b[i], "many%d", i);
		v[i] = (struct iovec){b[i], 5};
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	R(sendmmsg(c, m, N, 0));
	memset(b, 0, sizeof b);
	arrived(s, 1);
	R(recvmmsg(s, m, 2, 0, NULL));
	R(recvmmsg(s, m + 2, N - 2, MSG_WAITFORONE, NULL));
	for (int i = 0; i < N; i++)
		out("%u %.5s", m[i].msg_len, b[i]);
	R(recvmmsg(s, m, N, MSG_DONTWAIT, NULL));
	R(send(c, "timed", 5, 0));
	R(recvmmsg(s, m, 1, 0, &t));
	out("%.5s %d", b[0], t.tv_sec == 0 || (t.tv_sec == 1 && t.tv_nsec == 0));
	R(sendmmsg(c, m, 0, 0));
}

// Memory that is not there.
static void pointers(void)
{
	char *bad = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), b[8];
	struct iovec v = {bad, 8}, w = {b, 8};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1}, k = {.msg_iov = &w, .msg_iovlen = 1, .msg_name = bad, .msg_namelen = 16};
	socklen_t len = 16;
	int c, s;

	udp_pair(&c, &s);
	R(send(c, bad, 8, 0));
	R(sendmsg(c, &m, 0));
	R(sendto(c, "x", 1, 0, (struct sockaddr *)bad, 16));
	R(send(c, "first", 5, 0));
	R(send(c, "second", 6, 0));
	R(send(c, "third", 5, 0));
	R(send(c, "fourth", 6, 0));
	R(recv(s, bad, 8, 0)); // which loses it
	R(recvmsg(s, &k, 0));
	R(recvfrom(s, b, 8, 0, (struct sockaddr *)bad, &len));
	R(recv(s, b, 8, 0));
	R(recvmsg(s, (struct msghdr *)bad, MSG_DONTWAIT));
	quiet(s);
}

// An ICMP error comes back from a port that nobody has any more.
static void refused(void)
{
	struct sockaddr_in a;
	socklen_t len = sizeof a;
	int c, s;

	udp_pair(&c, &s);
	getsockname(s, (struct sockaddr *)&a, &len);
	R(send(c, "last", 4, 0));
	show(s, 0);
	close(s);
	R(send(c, "into nothing", 12, 0));
	R(send(c, "again", 5, 0));
	R(send(c, "and again", 9, 0));
	show(c, 0);
	quiet(c);
	s = socket(AF_INET, SOCK_DGRAM, 0);
	R(bind(s, (struct sockaddr *)&a, sizeof a));
	R(send(c, "back", 4, 0));
	show(s, 0);
	if (!is_cold())
		udp_warm(c, s);
	R(send(c, "warm again", 10, 0));
	show(s, 0);
}

// A pending error is reported before waiting datagrams are received, and instead of a send. Direct
// datagrams follow that rule, too.
static void refused_first(void)
{
	struct sockaddr_in a;
	struct mmsghdr m[2];
	int c, s, one = 1;

	udp_pair(&c, &s);
	R(setsockopt(s, IPPROTO_IP, IP_RECVERR, &one, sizeof one));
	close(udp_socket(&a));
	for (int i = 0; i < 3; i++) {
		R(sendto(s, "nobody", 6, 0, (struct sockaddr *)&a, sizeof a));
		R(send(c, "after that", 10, 0));
		quiet(s);
		quiet(s);
		R(sendto(s, "nobody", 6, 0, (struct sockaddr *)&a, sizeof a));
		R(to(s, c, "not sent"));
		R(to(s, c, "sent"));
		quiet(c);
		quiet(c);
		R(sendto(s, "nobody", 6, 0, (struct sockaddr *)&a, sizeof a));
		R(send(c, "one", 3, 0));
		memset(m, 0, sizeof m);
		R(recvmmsg(s, m, 2, MSG_DONTWAIT, NULL));
		R(recvmmsg(s, m, 2, MSG_DONTWAIT, NULL));
	}
}

struct ends {
	int c, s;
};

static void *leaves(void *arg)
{
	struct ends *e = arg;

	nap(50);
	close(e->s);
	nap(10);
	send(e->c, "to nobody", 9, 0);
	return NULL;
}

// recvmmsg has got some when a datagram is refused: the next call is told, whichever it is.
static void refused_later(void)
{
	char b;
	struct iovec v = {&b, 1};
	struct mmsghdr m[3] = {{.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}}};
	pthread_t t;

	for (int i = 0; i < 5; i++) {
		struct ends e;
		int err = 0;
		socklen_t n = sizeof err;
		udp_pair(&e.c, &e.s);
		to(e.s, e.c, "a");
		pthread_create(&t, NULL, leaves, &e);
		R(recvmmsg(e.c, m, 3, 0, NULL));
		pthread_join(t, NULL);
		if (i == 0)
			R(recvmmsg(e.c, m, 3, MSG_DONTWAIT, NULL));
		else if (i == 1)
			R(getsockopt(e.c, SOL_SOCKET, SO_ERROR, &err, &n));
		else if (i == 2)
			R(send(e.c, "to nobody", 9, 0));
		else if (i == 3)
			R(readable(e.c, 0));
		out("%s", errname(err));
		quiet(e.c);
		quiet(e.c);
		close(e.c);
	}
}

// connect elsewhere, and to nothing; a datagram from another than the peer does not come.
static void reconnect(void)
{
	struct sockaddr_in a, b, none = {.sin_family = AF_UNSPEC};
	int c, s, other = udp_socket(&b);
	socklen_t len = sizeof a;

	udp_pair(&c, &s);
	R(to(other, c, "stranger"));
	R(to(s, c, "peer"));
	show(c, 0);
	quiet(c);
	R(send(c, "to the first", 12, 0));
	R(connect(c, (struct sockaddr *)&b, sizeof b));
	R(send(c, "to the second", 13, 0));
	show(s, 0);
	show(other, 0);
	R(to(s, c, "old peer"));
	R(to(other, c, "new peer"));
	show(c, 0);
	quiet(c);
	R(connect(c, (struct sockaddr *)&none, sizeof none));
	R(send(c, "to whom", 7, 0));
	R(sendto(c, "you", 3, 0, (struct sockaddr *)&b, sizeof b));
	show(other, 0);
	R(getpeername(c, (struct sockaddr *)&a, &len));
	R(shutdown(c, SHUT_WR));
	R(sendto(s, "x", 1, 0, NULL, 0));
}

// From one that is connected, an address goes elsewhere, or nowhere.
static void elsewhere(void)
{
	struct sockaddr_in b, bad = {.sin_family = AF_INET};
	int c, s, other = udp_socket(&b);

	udp_pair(&c, &s);
	R(sendto(c, "elsewhere", 9, 0, (struct sockaddr *)&b, sizeof b));
	show(other, 0);
	R(send(c, "to the peer", 11, 0));
	show(s, 0);
	R(sendto(c, "port 0", 6, 0, (struct sockaddr *)&bad, sizeof bad));
	R(sendto(c, "short", 5, 0, (struct sockaddr *)&b, 4));
	bad.sin_family = AF_INET6;
	R(sendto(c, "family", 6, 0, (struct sockaddr *)&bad, sizeof bad));
	quiet(s);
	quiet(other);
}

static void shut(void)
{
	int c, s;

	udp_pair(&c, &s);
	R(to(s, c, "before"));
	R(shutdown(c, SHUT_WR));
	R(send(c, "x", 1, MSG_NOSIGNAL));
	show(c, 0);
	R(to(s, c, "after"));
	show(c, 0);
	R(shutdown(c, SHUT_RD));
	show(c, 0);
	R(shutdown(s, SHUT_WR));
}

static void nothing(int s) { (void)s; }

// A signal comes in a poll that has something to report: that, and nothing of the other entries. A
// TCP connection is one of them, so that the kernel gets a set of the library's.
static void signalled(void)
{
	struct sigaction sa = {.sa_handler = nothing};
	sigset_t one, all;
	int c, s, a, b, p[2];

	udp_pair(&c, &s);
	pair(&a, &b);
	sigaction(SIGUSR1, &sa, NULL);
	sigemptyset(&all);
	sigemptyset(&one);
	sigaddset(&one, SIGUSR1);
	if (pipe(p))
		die("pipe");
	send(c, "a", 1, 0);
	sigprocmask(SIG_BLOCK, &one, NULL);
	raise(SIGUSR1);
	struct pollfd f[3] = {{p[0], POLLIN, POLLIN}, {s, POLLIN, 0}, {b, POLLIN, 0}};
	R(ppoll(f, 3, &(struct timespec){.tv_sec = 60}, &all));
	out("%s %s %s", revents((unsigned)f[0].revents), revents((unsigned)f[1].revents), revents((unsigned)f[2].revents));
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	show(s, 0);
	quiet(s);
}

const struct probe udp_probes[] = {
	{"udp-boundaries", boundaries, 0},
	{"udp-sizes", sizes, 0},
	{"udp-flags", flags, 0},
	{"udp-names", names, 0},
	{"udp-many", many, 0},
	{"udp-pointers", pointers, 0},
	{"udp-refused", refused, 0},
	{"udp-refused-first", refused_first, 0},
	{"udp-refused-later", refused_later, 0},
	{"udp-reconnect", reconnect, 0},
	{"udp-elsewhere", elsewhere, 0},
	{"udp-shutdown", shut, 0},
	{"udp-signalled", signalled, 0},
	{NULL, NULL, 0},
};

// Datagrams whose senders say in control messages what is different with them.
#include "udp.h"

#include <pthread.h>

// What a sender says.
static union {
	char b[256];
	struct cmsghdr align;
} said;
static size_t length;

static void say(int level, int type, const void *value, size_t n)
{
	struct cmsghdr *c = (void *)(said.b + length);

	memset(c, 0, CMSG_SPACE(n));
	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(n);
	memcpy(CMSG_DATA(c), value, n);
	length += CMSG_SPACE(n);
}

static void say_number(int level, int type, int v) { say(level, type, &v, sizeof v); }

static void say_source(uint32_t from, int interface)
{
	struct in_pktinfo i = {.ipi_ifindex = interface, .ipi_spec_dst.s_addr = htonl(from)};

	say(IPPROTO_IP, IP_PKTINFO, &i, sizeof i);
}

// Sends text with what was said, and forgets that.
static ssize_t send_said(int c, const char *text)
{
	struct iovec v = {(void *)(uintptr_t)text, strlen(text)};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = said.b, .msg_controllen = length};

	length = 0;
	return sendmsg(c, &m, 0);
}

// Receives a datagram, and writes what it is, from whom, and what the kernel says with it.
static void come(int s)
{
	union {
		char b[256];
		struct cmsghdr align;
	} u;
	char b[64];
	struct sockaddr_in from;
	struct iovec v = {b, sizeof b};
	struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &v, .msg_iovlen = 1,
			   .msg_control = u.b, .msg_controllen = sizeof u.b};
	int n = (int)recvmsg(s, &m, MSG_DONTWAIT);

	out("  %d %.*s", n, n > 0 ? n : 0, b);
	if (n >= 0)
		out("    from %#x", ntohl(from.sin_addr.s_addr));
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); n >= 0 && c; c = CMSG_NXTHDR(&m, c))
		out("    %d %d: %d", c->cmsg_level, c->cmsg_type, *CMSG_DATA(c));
}

// Since before, n datagrams have gone through memory, if any can.
static void straight(unsigned long before, unsigned long n)
{
	if (has_library() && !is_cold() && through() - before != n)
		out("%lu of %lu through memory", through() - before, n);
}

static void says(void)
{
	int c, s, one = 1;
	uint16_t size = 3;
	unsigned long before;

	udp_pair(&c, &s);
	R(setsockopt(s, IPPROTO_IP, IP_RECVTOS, &one, sizeof one));
	R(setsockopt(s, IPPROTO_IP, IP_RECVTTL, &one, sizeof one));
	if (!is_cold())
		udp_warm(c, s);
	before = through();
	say_number(IPPROTO_IP, IP_TOS, 2);
	R(send_said(c, "class"));
	say(IPPROTO_IP, IP_TOS, &(unsigned char){0x48}, 1);
	R(send_said(c, "short class"));
	say_number(IPPROTO_IP, IP_TTL, 7);
	R(send_said(c, "hops"));
	say_source(INADDR_LOOPBACK, 0);
	say_number(IPPROTO_IP, IP_TOS, 1);
	R(send_said(c, "own source"));
	say_source(0, 0);
	R(send_said(c, "no source"));
	R(send(c, "nothing", 7, 0));
	straight(before, 6);
	for (int i = 0; i < 7; i++)
		come(s);

	before = through();
	say(IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
	say_number(IPPROTO_IP, IP_TOS, 3);
	R(send_said(c, "onetwosixten"));
	say(IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
	R(send_said(c, "fivsix7"));
	say(IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
	R(send_said(c, "1"));
	straight(before, 8);
	for (int i = 0; i < 9; i++)
		come(s);

	// What only the kernel does, or refuses.
	say_source(INADDR_LOOPBACK + 1, 0);
	R(send_said(c, "other source"));
	come(s);
	say_source(INADDR_LOOPBACK, 1);
	R(send_said(c, "interface"));
	come(s);
	R(send(c, "after", 5, 0));
	come(s);
	say_number(IPPROTO_IP, IP_TOS, 256);
	R(send_said(c, "no class"));
	say_number(IPPROTO_IP, IP_TTL, 0);
	R(send_said(c, "no hops"));
	say(IPPROTO_IP, IP_TTL, &(unsigned char){5}, 1);
	R(send_said(c, "short hops"));
	say(IPPROTO_UDP, UDP_SEGMENT, &one, sizeof one);
	R(send_said(c, "long size"));
	say_number(IPPROTO_IP, IP_TOS, 2);
	((struct cmsghdr *)(void *)said.b)->cmsg_len = 200;
	R(send_said(c, "too long"));
	say_number(IPPROTO_IP, IP_TOS, 2);
	length = 7;
	R(send_said(c, "no message"));
	come(s);
	come(s);
}

enum { TRAINS = 30, CARS = 8 };

// Receives what trains sends, and says what is not in its place.
static void *cars(void *arg)
{
	char b[16], want[16];

	for (int i = 0; i < TRAINS * CARS; i++) {
		ssize_t n = recv(*(int *)arg, b, sizeof b, 0);
		snprintf(want, sizeof want, "%04d", i);
		if (n != 4 || memcmp(b, want, 4))
			return "in disorder";
	}
	return "all in order";
}

// Trains to a thread that sleeps between them, or does not.
static void trains(void)
{
	char b[CARS * 4 + 1];
	int c, s;
	uint16_t size = 4;
	pthread_t thread;
	void *what;

	udp_pair(&c, &s);
	if (pthread_create(&thread, NULL, cars, &s))
		die("pthread_create");
	for (int i = 0; i < TRAINS; i++) {
		for (int k = 0; k < CARS; k++)
			snprintf(b + 4 * k, 5, "%04u", (unsigned)(i * CARS + k) % 10000);
		say(IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
		if (send_said(c, b) != CARS * 4)
			out("train %d: %s", i, errname(errno));
		if (i % 2)
			nap(2);
	}
	pthread_join(thread, &what);
	out("%s", (char *)what);
}

enum { PIECES = 120, CAR = 40 };

// Receives the cars of pieces.
static void *whole_cars(void *arg)
{
	char b[2 * CAR];

	for (int i = 0; i < TRAINS * (PIECES / CAR); i++) {
		ssize_t n = recv(*(int *)arg, b, sizeof b, 0);
		if (n != CAR || b[0] != b[CAR - 1])
			return "cut";
	}
	return "all whole";
}

// Trains of many vectors to a thread that sleeps between them.
static void pieces(void)
{
	char b[PIECES];
	struct iovec v[PIECES];
	struct msghdr m = {.msg_iov = v, .msg_iovlen = PIECES, .msg_control = said.b};
	int c, s;
	uint16_t size = CAR;
	pthread_t thread;
	void *what;

	udp_pair(&c, &s);
	for (int i = 0; i < PIECES; i++) {
		b[i] = (char)(i / CAR);
		v[i] = (struct iovec){b + i, 1};
	}
	if (pthread_create(&thread, NULL, whole_cars, &s))
		die("pthread_create");
	for (int i = 0; i < TRAINS; i++) {
		say(IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
		m.msg_controllen = length;
		length = 0;
		if (sendmsg(c, &m, 0) != PIECES)
			out("train %d: %s", i, errname(errno));
		nap(2);
	}
	pthread_join(thread, &what);
	out("%s", (char *)what);
}

// Addresses that the kernel reads otherwise than as they stand there: what follows comes after.
static void names(void)
{
	struct sockaddr_storage to;
	socklen_t n = sizeof to;
	static const socklen_t lengths[] = {0, sizeof(struct sockaddr_in), sizeof to, sizeof to + 100};
	int c, s;

	udp_pair(&c, &s);
	for (unsigned i = 0; i < 2 * sizeof lengths / sizeof *lengths; i++) {
		struct iovec v = {"odd", 3};
		struct msghdr m = {.msg_name = &to, .msg_namelen = lengths[i / 2], .msg_iov = &v, .msg_iovlen = 1};

		if (!is_cold())
			udp_warm(c, s);
		getsockname(s, (struct sockaddr *)&to, &n);
		if (i % 2)
			to.ss_family = AF_UNSPEC;
		R(sendmsg(c, &m, 0));
		R(send(c, "after", 5, 0));
		show(s, 0);
		show(s, 0);
		quiet(s);
	}
}

// Room for what the kernel says with a datagram, of any size.
static void room(void)
{
	union {
		char b[96];
		struct cmsghdr align;
	} u;
	char *bad = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), b[8];
	struct iovec v = {b, sizeof b};
	int c, s, one = 1;

	udp_pair(&c, &s);
	R(setsockopt(s, IPPROTO_IP, IP_RECVTOS, &one, sizeof one));
	R(setsockopt(s, IPPROTO_IP, IP_RECVTTL, &one, sizeof one));
	if (!is_cold())
		udp_warm(c, s);
	for (size_t n = 0; n <= 56; n += 4) {
		struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = u.b, .msg_controllen = n};

		memset(&u, 0, sizeof u);
		send(c, "room", 4, 0);
		R(recvmsg(s, &m, 0));
		out("%zu: %zu, flags %#x, %zu %d %d", n, m.msg_controllen, m.msg_flags, u.align.cmsg_len, u.align.cmsg_level, u.align.cmsg_type);
	}
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = bad, .msg_controllen = 64};
	send(c, "nowhere", 7, 0);
	R(recvmsg(s, &m, 0));
	out("%zu, flags %#x", m.msg_controllen, m.msg_flags);
}

// Is something there, by a call that does not wait?
static int glance(int s, int ep, int how)
{
	struct epoll_event ev;
	struct timeval t = {0, 0};
	fd_set in;

	FD_ZERO(&in);
	FD_SET(s, &in);
	return how == 0 ? readable(s, 0) : how == 1 ? select(s + 1, &in, NULL, NULL, &t) : ep_hear(ep, &ev, 1, 0);
}

// A receiver that only glances hears of what comes after datagrams that the kernel has dropped.
static void glances(void)
{
	enum { FLOOD = 20 };
	static char b[60000];

	for (int how = 0; how < 3; how++) {
		int c, s, ep = ep_new(), sent = 0;
		long end = monotonic() + LONG / 3;

		udp_pair(&c, &s);
		R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1));
		for (int i = 0; i < FLOOD; i++)
			sent += send(c, b, sizeof b, MSG_CONFIRM) == sizeof b;
		while (glance(s, ep, how) > 0)
			sent -= recv(s, b, sizeof b, 0) == sizeof b;
		out("%d: lost %d", how, sent > 0);
		R(send(c, "last", 4, 0));
		ssize_t n = -1;
		while (n != 4 && monotonic() < end) // a busy kernel may be late with what is before it
			if (glance(s, ep, how) > 0)
				n = recv(s, b, sizeof b, MSG_DONTWAIT);
			else
				nap(1);
		shown(b, n);
		close(ep);
	}
}

const struct probe udpsays_probes[] = {
	{"udp-says", says, 0},
	{"udp-trains", trains, 0},
	{"udp-pieces", pieces, 0},
	{"udp-names-odd", names, 0},
	{"udp-room", room, 0},
	{"udp-glances", glances, 0},
	{NULL, NULL, 0},
};

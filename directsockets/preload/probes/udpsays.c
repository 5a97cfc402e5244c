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
			snprintf(b + 4 * k, 5, "%04d", i * CARS + k);
		say(IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
		if (send_said(c, b) != CARS * 4)
			out("train %d: %s", i, errname(errno));
		if (i % 2)
			nap(2);
	}
	pthread_join(thread, &what);
	out("%s", (char *)what);
}

const struct probe udpsays_probes[] = {
	{"udp-says", says, 0},
	{"udp-trains", trains, 0},
	{NULL, NULL, 0},
};

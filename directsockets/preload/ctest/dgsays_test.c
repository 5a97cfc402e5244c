// What control messages say: a sender's, whatever they look like, and the kernel's to a receiver
// that takes trains as they are.
#include "flow.h"

#include <netinet/udp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>

static union {
	uint8_t b[8192];
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

static void say_source4(uint32_t a)
{
	struct in_pktinfo i = {.ipi_spec_dst.s_addr = htonl(a)};

	say(IPPROTO_IP, IP_PKTINFO, &i, sizeof i);
}

static const uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 2};
static const uint8_t six[16] = {[0] = 0xfd, [15] = 9}, none[16];

static void say_source6(int type, const uint8_t a[16])
{
	struct in6_pktinfo i = {0};

	memcpy(&i.ipi6_addr, a, 16);
	say(IPPROTO_IPV6, type, &i, sizeof i);
}

// Reads n bytes of what was said, and forgets it.
static bool read_said(int family, const uint8_t to[16], size_t n, struct ds_dg_says *s)
{
	static struct ds_dgram d;
	struct msghdr h = {.msg_control = said.b, .msg_controllen = n};

	d.family = (uint8_t)family;
	*s = (struct ds_dg_says){.tos = -1, .ttl = -1};
	length = 0;
	return ds_dg_control(&d, &h, to, s);
}

// The source is read whatever else is said, as a datagram from another one is none of the flow's.
static void sources(void)
{
	struct ds_dg_says s;

	for (int i = 0; i < 40; i++)
		say_number(IPPROTO_IP, IP_TOS, i);
	say_source4(INADDR_LOOPBACK + 1);
	CHECK(read_said(AF_INET, mapped, length, &s) && s.sourced && !memcmp(s.source, mapped, 16) && s.tos == 39, "after many messages");
	say_source4(INADDR_LOOPBACK + 1);
	say_source4(0);
	CHECK(read_said(AF_INET, mapped, length, &s) && !s.sourced, "0 takes it back");
	say_source4(INADDR_LOOPBACK + 1);
	CHECK(!read_said(AF_INET6, mapped, length, &s) && s.sourced && !memcmp(s.source, mapped, 16), "IPv4 from a socket of IPv6");
	say_source6(IPV6_PKTINFO, mapped);
	CHECK(!read_said(AF_INET6, mapped, length, &s) && s.sourced && !memcmp(s.source, mapped, 16), "the same as one of IPv6");
	say_source6(IPV6_PKTINFO, six);
	say_source6(IPV6_PKTINFO, none);
	CHECK(read_said(AF_INET6, six, length, &s) && s.sourced && !memcmp(s.source, six, 16), ":: takes nothing back");
	say_source6(IPV6_2292PKTINFO, six);
	CHECK(read_said(AF_INET6, six, length, &s) && s.sourced && !memcmp(s.source, six, 16), "by its old name");
	say_number(IPPROTO_IP, IP_TOS, 1);
	CHECK(!read_said(AF_INET6, six, length, &s), "the kernel ignores it");
}

// Lengths that are none: nothing beyond them is read. The last message needs no bytes after it.
static void lengths(void)
{
	static const size_t bad[] = {0, 1, sizeof(struct cmsghdr) - 1, 200, (size_t)INT32_MAX + 1, SIZE_MAX, SIZE_MAX - 7, SIZE_MAX - 15};
	uint16_t size = 7;
	struct ds_dg_says s;

	for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
		for (int second = 0; second < 2; second++) {
			if (second)
				say_number(IPPROTO_IP, IP_TOS, 1);
			struct cmsghdr *c = (void *)(said.b + length);
			say_number(IPPROTO_IP, IP_TTL, 1);
			c->cmsg_len = bad[i];
			CHECK(!read_said(AF_INET, mapped, length, &s), "length %zx, message %d", bad[i], second);
		}
	say_number(IPPROTO_IP, IP_TOS, 2);
	say(IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
	CHECK(read_said(AF_INET, mapped, length - 6, &s) && s.train == 7 && s.tos == 2, "train %d", s.train);
	for (size_t n = 0; n < sizeof(struct cmsghdr); n++)
		CHECK(read_said(AF_INET, mapped, n, &s) && s.tos == -1, "%zu bytes", n);
}

// What ends with memory that is there: no byte after it is read, of any length.
static void ends(void)
{
	uint8_t *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ds_dgram d = {.family = AF_INET};
	uint32_t seed = 1;

	mprotect(p + 4096, 4096, PROT_NONE);
	for (int i = 0; i < 20000; i++) {
		size_t n = (seed >> 8) % 128 / 8 * 8;
		struct msghdr h = {.msg_control = p + 4096 - n, .msg_controllen = n};
		struct ds_dg_says s = {.tos = -1, .ttl = -1};

		for (size_t k = 0; k < n; k += 4) {
			static const uint32_t often[] = {0, 1, 2, 16, 17, 18, 20, 24, 28, 36, 103};
			seed = seed * 1664525 + 1013904223;
			memcpy(p + 4096 - n + k, seed >> 31 ? &seed : &often[(seed >> 16) % 11], 4);
		}
		seed = seed * 1664525 + 1013904223;
		d.family = seed >> 31 ? AF_INET : AF_INET6;
		bool all = ds_dg_control(&d, &h, mapped, &s);
		CHECK(!all || (s.tos >= -1 && s.tos < 256 && s.ttl >= -1 && s.ttl < 256), "tos %d, ttl %d", s.tos, s.ttl);
	}
	munmap(p, 8192);
}

// A train that the kernel gives as one counts as its datagrams.
static void together(void)
{
	enum { CARS = 5, SIZE = 10 };
	struct ds_dgram *d = ds_dg_new(AF_INET, DS_NONBLOCK_YES);
	static struct ds_dg_in in;
	struct sockaddr_in from, to;
	struct flow f;
	int c = udp_socket(&from), s = udp_socket(&to), one = 1;
	union {
		uint8_t b[256];
		struct cmsghdr align;
	} u;
	uint8_t b[100];
	uint16_t size = SIZE;
	struct iovec v = {b, CARS * SIZE - 1};
	struct msghdr m = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &v, .msg_iovlen = 1, .msg_control = said.b};

	fresh(&f, RING);
	in = (struct ds_dg_in){.seg = f.rx, .alive = -1, .counters = ds_stats_counters(NULL)};
	CHECK(ds_address((void *)&from, in.seg.info.addr[0], &in.seg.info.port[0]), "address");
	d->flows[0] = &in;
	d->nin = 1;
	d->looked = d->swept = ds_ticks();
	d->hard = true; /* the flow does not wake: all goes by the kernel */
	if (setsockopt(s, IPPROTO_UDP, 104 /* UDP_GRO */, &one, sizeof one) < 0) {
		printf("this kernel has no UDP_GRO\n");
	} else {
		ds_dg_option(d, s, IPPROTO_UDP, 104, &one, sizeof one);
		memset(b, 'x', sizeof b);
		say(IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
		m.msg_controllen = length;
		CHECK(sendmsg(c, &m, 0) == CARS * SIZE - 1 && sendto(c, b, SIZE, 0, (void *)&to, sizeof to) == SIZE, "send");
		for (int i = 0; i < 2; i++) {
			v.iov_len = sizeof b;
			m = (struct msghdr){.msg_iov = &v, .msg_iovlen = 1, .msg_control = u.b, .msg_controllen = sizeof u.b};
			CHECK(ds_dg_recvmsg(d, s, &m, 0) == (i ? SIZE : CARS * SIZE - 1), "not as one");
		}
		CHECK(in.seg.taken == CARS + 1, "%d datagrams", (int)in.seg.taken);
	}
	d->nin = d->nlisted = 0;
	d->flows[0] = NULL;
	ds_dg_put(d);
	close(c);
	close(s);
	free(f.mem);
}

// ---- a train for which there is no room at once

enum { TRAINS = 5, LENGTH = 60, BYTES = 1000 };

static void *reads_late(void *arg)
{
	static uint8_t b[DS_DG_MAX];
	struct flow *f = arg;

	nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	for (int i = 0; i < TRAINS * LENGTH; i++) {
		while (!ds_dg_there(&f->rx))
			sched_yield();
		CHECK(take(f, b) == BYTES && b[0] == i % 256, "datagram %d", i);
	}
	return NULL;
}

// By a rule a sender that may block waits until all of it is there.
static void waits_for_room(void)
{
	static uint8_t b[LENGTH * BYTES];
	struct ds_dgram *d = ds_dg_new(AF_INET, DS_NONBLOCK_NO);
	struct ds_dg_out o = {.state = DG_OUT_UP, .alive = -1, .reliable = true, .counters = ds_stats_counters(NULL)};
	struct sockaddr_in from, to;
	struct flow f;
	int s = udp_socket(&from), r = udp_socket(&to);
	uint16_t size = BYTES;
	pthread_t th;

	fresh(&f, RING);
	o.seg = f.tx;
	flow_ends(&o, &from, &to);
	struct ds_dg_dest *t = ds_dg_dest(d, o.seg.info.addr[1], o.seg.info.port[1]);
	t->flow = &o;
	d->nout = 1;
	CHECK(pthread_create(&th, NULL, reads_late, &f) == 0, "thread");
	length = 0;
	say(IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
	for (int i = 0; i < TRAINS; i++) {
		struct iovec v = {b, sizeof b};
		struct msghdr m = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &v, .msg_iovlen = 1, .msg_control = said.b, .msg_controllen = length};
		uintptr_t word = 0;
		struct ds_dg_sent sent = {.number = {&word, word}};

		for (int k = 0; k < LENGTH; k++)
			b[k * BYTES] = (uint8_t)(i * LENGTH + k);
		ssize_t n = ds_dg_sendmsg(d, s, &m, 0, &sent);
		CHECK(n == sizeof b, "train %d: %zd bytes", i, n);
		if (failures)
			exit(1);
	}
	pthread_join(th, NULL);
	length = 0;
	t->flow = NULL;
	d->nout = 0;
	ds_dg_put(d);
	close(s);
	close(r);
	free(f.mem);
}

int main(void)
{
	waits_for_room();
	sources();
	lengths();
	ends();
	together();
	CHECK(ds_dg_missteps == 0, "%u steps that no table has", ds_dg_missteps);
	if (failures)
		return 1;
	printf("ok\n");
	return 0;
}

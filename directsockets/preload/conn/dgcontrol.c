/* What the control messages of a send ask for, and the options of its socket (SPEC 10.3). */
#include "conn/dgram.h"
#include "conn/inner.h"

#include <errno.h>
#include <netinet/udp.h>
#include <string.h>

#ifndef IPV6_2292PKTINFO
#define IPV6_2292PKTINFO 2
#endif

static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};

/* The number of a message of a class of traffic, or of hops, as the kernel takes it: an int, or, if
 * short_too, a byte. False: it is none from low to 255. */
static bool number(const struct cmsghdr *c, bool short_too, int low, int *v)
{
	if (c->cmsg_len == CMSG_LEN(sizeof *v))
		memcpy(v, CMSG_DATA(c), sizeof *v);
	else if (short_too && c->cmsg_len == CMSG_LEN(1))
		*v = *CMSG_DATA(c);
	else
		return false;
	return *v >= low && *v <= 255;
}

/* Reads a source of IPv4: 0 is none, whatever a message before says. False: it asks for an
 * interface, too. */
static bool source4(const struct cmsghdr *c, struct ds_dg_says *s)
{
	struct in_pktinfo p;

	if (c->cmsg_len != CMSG_LEN(sizeof p))
		return false;
	memcpy(&p, CMSG_DATA(c), sizeof p);
	s->sourced = p.ipi_spec_dst.s_addr != 0;
	memcpy(s->source, v4, sizeof v4);
	memcpy(s->source + sizeof v4, &p.ipi_spec_dst, sizeof p.ipi_spec_dst);
	return p.ipi_ifindex == 0;
}

/* The same of IPv6, where :: leaves the source as it is; or of IPv4 on a socket of IPv6. */
static bool source6(const struct cmsghdr *c, bool mapped, struct ds_dg_says *s)
{
	static const uint8_t none[16];
	struct in6_pktinfo p;

	if (c->cmsg_len < CMSG_LEN(sizeof p))
		return false;
	memcpy(&p, CMSG_DATA(c), sizeof p);
	bool some = memcmp((uint8_t *)&p.ipi6_addr + (mapped ? sizeof v4 : 0), none, mapped ? 4 : sizeof none) != 0;
	if (some)
		memcpy(s->source, &p.ipi6_addr, sizeof s->source);
	s->sourced = some || (s->sourced && !mapped);
	return p.ipi6_ifindex == 0 && c->cmsg_len == CMSG_LEN(sizeof p);
}

/* Reads the size of a train's datagrams. */
static bool train(const struct cmsghdr *c, struct ds_dg_says *s)
{
	if (c->cmsg_len != CMSG_LEN(sizeof s->train))
		return false;
	memcpy(&s->train, CMSG_DATA(c), sizeof s->train);
	return s->train != 0;
}

/* Reads one of them. False: it is the kernel's. */
static bool says(const struct cmsghdr *c, bool four, bool mapped, struct ds_dg_says *s)
{
	if (c->cmsg_level == IPPROTO_UDP)
		return c->cmsg_type == UDP_SEGMENT && train(c, s);
	if ((four || mapped) && c->cmsg_level == IPPROTO_IP)
		return c->cmsg_type == IP_TOS	    ? number(c, true, 0, &s->tos)
			: c->cmsg_type == IP_TTL     ? number(c, false, 1, &s->ttl)
			: c->cmsg_type == IP_PKTINFO && source4(c, s);
	if (!four && c->cmsg_level == IPPROTO_IPV6)
		return c->cmsg_type == IPV6_TCLASS	 ? number(c, false, 0, &s->tos)
			: c->cmsg_type == IPV6_HOPLIMIT ? number(c, false, 1, &s->ttl)
			: (c->cmsg_type == IPV6_PKTINFO || c->cmsg_type == IPV6_2292PKTINFO) && source6(c, mapped, s);
	return false;
}

/* Reads all, as the kernel does, each once: another thread may write there. To an IPv4 address from
 * a socket of IPv6 the kernel makes the send, whatever they say. */
bool ds_dg_control(const struct ds_dgram *d, const struct msghdr *h, const uint8_t to[16], struct ds_dg_says *s)
{
	enum { MOST = 1 << 16 };
	uint8_t one[CMSG_SPACE(sizeof(struct in6_pktinfo))] __attribute__((aligned(8)));
	struct cmsghdr *c = (void *)one;
	const uint8_t *at = h->msg_control;
	size_t left = h->msg_controllen;
	bool four = d->family == AF_INET, mapped = !four && !memcmp(to, v4, sizeof v4), all = true;

	if (left > MOST || !ds_readable(at, left))
		return false;
	while (left >= sizeof *c) {
		memcpy(one, at, sizeof *c);
		size_t n = c->cmsg_len;
		if (n < CMSG_LEN(0) || n > left)
			return false;
		memcpy(one + sizeof *c, at + sizeof *c, (n < sizeof one ? n : sizeof one) - sizeof *c);
		all = says(c, four, mapped, s) && all; /* the source is read in any case */
		n = CMSG_ALIGN(n) < left ? CMSG_ALIGN(n) : left;
		at += n;
		left -= n;
	}
	return all && !mapped;
}

/* What an option of fd says; other: it does not. */
static uint8_t option(int fd, int level, int name, uint8_t other)
{
	int v = other;
	socklen_t n = sizeof v;

	return REAL(getsockopt, fd, level, name, &v, &n) == 0 && v > 0 && v < 256 ? (uint8_t)v : other;
}

void ds_dg_marks(struct ds_dg_out *o, int fd)
{
	bool ip4 = !memcmp(o->seg.info.addr[1], v4, 12);

	o->tos = option(fd, ip4 ? IPPROTO_IP : IPPROTO_IPV6, ip4 ? IP_TOS : IPV6_TCLASS, 0);
	o->ttl = option(fd, ip4 ? IPPROTO_IP : IPPROTO_IPV6, ip4 ? IP_TTL : IPV6_UNICAST_HOPS, 64);
}

bool ds_dg_shareable(int fd)
{
	/* The program may have set that by a call that the library does not see. */
	static const int names[] = {SO_REUSEADDR, SO_REUSEPORT};
	bool shareable = false;
	int saved = errno;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		int set = 0;
		socklen_t n = sizeof set;
		shareable |= REAL(getsockopt, fd, SOL_SOCKET, names[i], &set, &n) < 0 || set;
	}
	errno = saved;
	return shareable;
}

bool ds_dg_failed(struct ds_dgram *d, int fd)
{
	int saved = errno, err = 0;
	socklen_t n = sizeof err;

	if (__builtin_expect(!DS_GET(d->asks), 1))
		return false;
	DS_SET(d->asks, false);
	if (REAL(getsockopt, fd, SOL_SOCKET, SO_ERROR, &err, &n) < 0)
		err = 0;
	errno = err ? err : saved;
	return err != 0;
}

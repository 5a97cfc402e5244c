/* What the control messages of a send ask for, and the options of its socket (SPEC 10.3). */
#include "conn/dgram.h"
#include "conn/inner.h"

#include <netinet/udp.h>
#include <string.h>

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

/* Reads a source of IPv4. False: it asks for an interface, too. */
static bool source4(const struct cmsghdr *c, struct ds_dg_says *s)
{
	struct in_pktinfo p;

	if (c->cmsg_len != CMSG_LEN(sizeof p))
		return false;
	memcpy(&p, CMSG_DATA(c), sizeof p);
	s->sourced |= p.ipi_spec_dst.s_addr != 0;
	memcpy(s->source, v4, sizeof v4);
	memcpy(s->source + sizeof v4, &p.ipi_spec_dst, sizeof p.ipi_spec_dst);
	return p.ipi_ifindex == 0;
}

/* The same of IPv6. */
static bool source6(const struct cmsghdr *c, struct ds_dg_says *s)
{
	static const uint8_t none[16];
	struct in6_pktinfo p;

	if (c->cmsg_len != CMSG_LEN(sizeof p))
		return false;
	memcpy(&p, CMSG_DATA(c), sizeof p);
	s->sourced |= memcmp(&p.ipi6_addr, none, sizeof none) != 0;
	memcpy(s->source, &p.ipi6_addr, sizeof s->source);
	return p.ipi6_ifindex == 0;
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
static bool says(const struct cmsghdr *c, bool four, struct ds_dg_says *s)
{
	if (c->cmsg_level == IPPROTO_UDP)
		return c->cmsg_type == UDP_SEGMENT && train(c, s);
	if (four && c->cmsg_level == IPPROTO_IP)
		return c->cmsg_type == IP_TOS	    ? number(c, true, 0, &s->tos)
			: c->cmsg_type == IP_TTL     ? number(c, false, 1, &s->ttl)
			: c->cmsg_type == IP_PKTINFO && source4(c, s);
	if (!four && c->cmsg_level == IPPROTO_IPV6)
		return c->cmsg_type == IPV6_TCLASS	 ? number(c, false, 0, &s->tos)
			: c->cmsg_type == IPV6_HOPLIMIT ? number(c, false, 1, &s->ttl)
			: c->cmsg_type == IPV6_PKTINFO && source6(c, s);
	return false;
}

bool ds_dg_control(const struct ds_dgram *d, const struct msghdr *h, const uint8_t to[16], struct ds_dg_says *s)
{
	uint8_t mine[DS_DG_CONTROL] __attribute__((aligned(8)));
	bool four = d->family == AF_INET;

	if (h->msg_controllen > sizeof mine || !ds_readable(h->msg_control, h->msg_controllen) || (!four && !memcmp(to, v4, sizeof v4)))
		return false;
	memcpy(mine, h->msg_control, h->msg_controllen); /* another thread may write there */
	struct msghdr m = {.msg_control = mine, .msg_controllen = h->msg_controllen};
	bool all = true; /* the source is read in any case */
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_len < CMSG_LEN(0) || (uint8_t *)c + c->cmsg_len > mine + m.msg_controllen)
			return false;
		all = says(c, four, s) && all;
	}
	return all;
}

/* What an option of fd says; other: it does not. */
static uint8_t option(int fd, int level, int name, uint8_t other)
{
	int v = other;
	socklen_t n = sizeof v;

	return REAL(getsockopt)(fd, level, name, &v, &n) == 0 && v > 0 && v < 256 ? (uint8_t)v : other;
}

void ds_dg_marks(struct ds_dg_out *o, int fd)
{
	bool ip4 = !memcmp(o->seg.info.addr[1], v4, 12);

	o->tos = option(fd, ip4 ? IPPROTO_IP : IPPROTO_IPV6, ip4 ? IP_TOS : IPV6_TCLASS, 0);
	o->ttl = option(fd, ip4 ? IPPROTO_IP : IPPROTO_IPV6, ip4 ? IP_TTL : IPV6_UNICAST_HOPS, 64);
}

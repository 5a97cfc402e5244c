/* Who has the address of a flow's other end (SPEC 10.4): a socket that is closed leaves its port to
 * others, but not the segment. */
#include "conn/dgram.h"
#include "conn/inner.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <sys/syscall.h>

enum { LOOK_US = 100000 }; /* 64 flows cost 0.4 % of a processor */

bool ds_dg_reached(const uint8_t from[16], uint16_t from_port, const uint8_t to[16], uint16_t to_port, uint64_t *cookie)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	bool ip4 = !memcmp(to, v4, 12);
	size_t skip = ip4 ? 12 : 0;
	struct {
		struct nlmsghdr h;
		struct inet_diag_req_v2 r;
	} ask = {.h = {.nlmsg_len = sizeof ask, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
		 .r = {.sdiag_family = ip4 ? AF_INET : AF_INET6, .sdiag_protocol = IPPROTO_UDP, .idiag_states = UINT32_MAX}};
	union {
		struct {
			struct nlmsghdr h;
			struct inet_diag_msg m;
		} said;
		char room[4096];
	} u;
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	int saved = errno, fd = (int)ds_syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	bool found = false;

	ask.r.id.idiag_sport = htons(from_port);
	ask.r.id.idiag_dport = htons(to_port);
	memcpy(ask.r.id.idiag_src, from + skip, 16 - skip);
	memcpy(ask.r.id.idiag_dst, to + skip, 16 - skip);
	ask.r.id.idiag_cookie[0] = ask.r.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	if (fd >= 0 && ds_syscall(SYS_sendto, fd, &ask, sizeof ask, 0, &kernel, sizeof kernel) == sizeof ask) {
		long n = ds_syscall(SYS_recvfrom, fd, &u, sizeof u, MSG_DONTWAIT, NULL, NULL); /* the kernel answers while it is asked */
		found = n >= (long)sizeof u.said && u.said.h.nlmsg_type == SOCK_DIAG_BY_FAMILY;
		if (found)
			memcpy(cookie, u.said.m.id.idiag_cookie, sizeof *cookie);
	}
	if (fd >= 0)
		ds_syscall(SYS_close, fd);
	errno = saved;
	return found;
}

bool ds_dg_stands(struct ds_dg_out *o, uint64_t now)
{
	const struct ds_info *i = &o->seg.info;
	uint64_t cookie;

	if (o->looked && now - o->looked < LOOK_US * ds_ticks_us())
		return true;
	o->looked = now | 1;
	return ds_dg_reached(i->addr[0], i->port[0], i->addr[1], i->port[1], &cookie) && cookie == o->cookie;
}

void ds_dg_in_check(struct ds_dgram *d)
{
	uint64_t now = ds_ticks(), cookie;

	if (now - d->looked < LOOK_US * ds_ticks_us())
		return;
	d->looked = now;
	for (unsigned k = 0; k < d->nin; k++) {
		struct ds_dg_in *f = d->flows[k];
		const struct ds_info *i = &f->seg.info;

		if (!f->moved || f->closed)
			continue;
		f->moved = false;
		if (!ds_dg_reached(i->addr[1], i->port[1], i->addr[0], i->port[0], &cookie) || cookie != f->cookie)
			ds_dg_in_close(d, f, DS_WHY_PEER);
	}
}

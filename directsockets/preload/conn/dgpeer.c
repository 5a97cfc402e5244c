/* Who has the address of a flow's other end (SPEC 10.4): a socket that is closed leaves its port to
 * others, but not the segment. */
#include "conn/dgram.h"
#include "conn/fds.h"
#include "conn/inner.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <sys/syscall.h>

enum { LOOK_US = 100000 }; /* 64 flows cost 0.4 % of a processor */

struct question {
	struct nlmsghdr h;
	struct inet_diag_req_v2 r;
};
union answer {
	struct {
		struct nlmsghdr h;
		struct inet_diag_msg m;
	} said;
	char room[4096];
};

/* A socket to the kernel (sock_diag(7)); -1: there is none yet. */
static int kernel = -1;
static struct ds_lock lock;

/* Opens one. By itself the kernel would give it the number that a netlink socket of the program's
 * own has by default, its process ID. */
static int open_socket(void)
{
	struct sockaddr_nl own = {.nl_family = AF_NETLINK, .nl_pid = 1u << 31 | (uint32_t)ds_ticks()};
	int fd = (int)ds_syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	for (int i = 0; fd >= 0 && i < 4 && ds_syscall(SYS_bind, fd, &own, sizeof own) < 0 && errno == EADDRINUSE; i++)
		own.nl_pid = 1u << 31 | (uint32_t)ds_ticks();
	return fd;
}

/* With the lock: makes the socket, if there is none. 0, or errno. */
static int begin(void)
{
	int fd = kernel < 0 ? open_socket() : -1;

	if (fd >= 0)
		kernel = ds_fd_keep(fd, &kernel);
	return kernel >= 0 ? 0 : errno;
}

int ds_dg_may_ask(void)
{
	int saved = errno, why = EAGAIN;

	if (ds_own_lock(&lock) != DS_NESTED) {
		why = begin();
		ds_own_unlock(&lock);
	}
	errno = saved;
	return why;
}

void ds_dg_peer_child(void)
{
	lock = (struct ds_lock){0};
	if (kernel >= 0) /* the parent reads it */
		ds_fd_close(kernel);
	kernel = -1;
}

/* Asks by fd: 1 and the answer, 0 the kernel knows no such socket, or does not say, or -1 and
 * errno. */
static int ask(int fd, struct question *q, union answer *u)
{
	struct sockaddr_nl to = {.nl_family = AF_NETLINK};
	long n;

	/* Another process may have fd, too, if it was made by a call that the library does not
	 * know. */
	q->h.nlmsg_seq = (uint32_t)ds_ticks();
	if (ds_syscall(SYS_sendto, fd, q, sizeof *q, 0, &to, sizeof to) != sizeof *q)
		return -1;
	do /* the kernel answers while it is asked */
		n = ds_syscall(SYS_recvfrom, fd, u, sizeof *u, MSG_DONTWAIT, NULL, NULL);
	while (n >= (long)sizeof u->said.h && u->said.h.nlmsg_seq != q->h.nlmsg_seq);
	return n >= (long)sizeof u->said && u->said.h.nlmsg_type == SOCK_DIAG_BY_FAMILY;
}

bool ds_dg_reached(const uint8_t from[16], uint16_t from_port, const uint8_t to[16], uint16_t to_port, uint64_t *cookie)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	bool ip4 = !memcmp(to, v4, 12);
	size_t skip = ip4 ? 12 : 0;
	struct question q = {.h = {.nlmsg_len = sizeof q, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
			     .r = {.sdiag_family = ip4 ? AF_INET : AF_INET6, .sdiag_protocol = IPPROTO_UDP, .idiag_states = UINT32_MAX}};
	union answer u;
	int saved = errno, found = -1;

	q.r.id.idiag_sport = htons(from_port);
	q.r.id.idiag_dport = htons(to_port);
	memcpy(q.r.id.idiag_src, from + skip, 16 - skip);
	memcpy(q.r.id.idiag_dst, to + skip, 16 - skip);
	q.r.id.idiag_cookie[0] = q.r.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	if (ds_own_lock(&lock) == DS_NESTED)
		return false;
	for (int i = 0; i < 2 && found < 0 && begin() == 0; i++) {
		found = ask(kernel, &q, &u);
		if (found < 0 && errno == EBADF) { /* the program has closed it */
			ds_fd_close(kernel);
			kernel = -1;
		}
	}
	ds_own_unlock(&lock);
	if (found > 0)
		memcpy(cookie, u.said.m.id.idiag_cookie, sizeof *cookie);
	errno = saved;
	return found > 0;
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

		if (f->state >= DG_IN_DRAINING)
			continue;
		if (ds_stats_off(f->entry))
			ds_dg_in_close(d, f, DS_WHY_SWITCHED_OFF);
		if (!f->used || f->state >= DG_IN_DRAINING)
			continue;
		f->used = false;
		if (!ds_dg_reached(i->addr[1], i->port[1], i->addr[0], i->port[0], &cookie) || cookie != f->cookie)
			ds_dg_in_moved(d, f);
	}
	if (d->nin && now - d->swept >= DS_DG_TIDY_US * ds_ticks_us() && ds_setup_try()) {
		d->swept = now;
		ds_dg_in_sweep(d);
		ds_setup_unlock();
	}
}

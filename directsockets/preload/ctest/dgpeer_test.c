// Whose the addresses of a flow are: what the kernel says, and the socket by which it is asked.
#include "flow.h"

#include "conn/fds.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

// A receiver whose address another socket has now, or none, does not stand.
static void stands(void)
{
	struct ds_dg_out o = {0};
	struct sockaddr_in from, to;
	int a = udp_socket(&from), b = udp_socket(&to);

	flow_ends(&o, &from, &to);
	CHECK(ds_dg_stands(&o, 1), "it is there");
	close(b);
	CHECK(ds_dg_stands(&o, 2), "the kernel is not asked each time");
	o.looked = 0;
	CHECK(!ds_dg_stands(&o, 3), "nobody is there");
	b = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(bind(b, (struct sockaddr *)&to, sizeof to) == 0, "bind");
	o.looked = 0;
	CHECK(!ds_dg_stands(&o, 4), "it is another one");
	close(a);
	close(b);
}

// The number of the netlink socket of this process; -1: it has none.
static int netlink(void)
{
	int domain, found = -1;

	for (int fd = 0; fd < 8192; fd++) {
		socklen_t n = sizeof domain;
		if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) == 0 && domain == AF_NETLINK) {
			CHECK(found < 0, "%d and %d are both netlink sockets", found, fd);
			found = fd;
		}
	}
	return found;
}

// Runs fn in a child.
static void in_child(bool (*fn)(void))
{
	int status;
	pid_t pid;

	ds_fork_prepare();
	ds_dg_forking();
	pid = fork();
	ds_dg_forked(pid);
	if (pid == 0) {
		ds_fork_child();
		_exit(!fn() || failures);
	}
	ds_fork_parent(pid);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child has %#x", status);
}

static struct ds_dg_out known;

static bool asks(void)
{
	const struct ds_info *i = &known.seg.info;
	uint64_t cookie;

	return ds_dg_reached(i->addr[0], i->port[0], i->addr[1], i->port[1], &cookie) && cookie == known.cookie;
}

// Has nothing of the parent's, and asks by a socket of its own.
static bool has_own(void) { return netlink() < 0 && asks() && netlink() >= 0; }

// The kernel refuses this process sockets of AF_NETLINK, as systemd's RestrictAddressFamilies does.
static bool mute(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = {sizeof f / sizeof *f, f};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		return false;
	return !asks() && ds_dg_may_ask() == EAFNOSUPPORT;
}

// One socket is kept for all looks, out of the program's way. It is made again when the program has
// closed it.
static void one_socket(void)
{
	struct sockaddr_in from, to;
	struct sockaddr_nl own = {.nl_family = AF_NETLINK, .nl_pid = (uint32_t)getpid()};
	int a = udp_socket(&from), b = udp_socket(&to), low = dup(0), fd;

	flow_ends(&known, &from, &to);
	close(low);
	int kept = netlink();
	CHECK(ds_own_fd(kept) && kept > low + 100, "it is %d, and the program's lowest free number %d", kept, low);
	for (int i = 0; i < 100; i++)
		CHECK(asks(), "look %d", i);
	CHECK(netlink() == kept, "it is another one");
	fd = dup(0);
	CHECK(fd == low, "the lowest free number is %d, and was %d", fd, low);
	close(fd);
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	CHECK(bind(fd, (struct sockaddr *)&own, sizeof own) == 0, "it has the number of the program's own: %s", strerror(errno));
	close(fd);
	in_child(has_own);
	in_child(mute);
	CHECK(netlink() == kept && asks(), "after fork");
	syscall(SYS_close, kept);
	CHECK(asks() && netlink() >= 0, "it was closed, and is not made again");
	close(a);
	close(b);
}

// A segment of a flow from one address to another, and its receiver's view.
static void segment(struct ds_dgseg *tx, struct ds_dgseg *rx, struct sockaddr_in *from, struct sockaddr_in *to)
{
	struct ds_info i = {.nonce = {1}};
	int fd;

	CHECK(ds_address((void *)from, i.addr[0], &i.port[0]) && ds_address((void *)to, i.addr[1], &i.port[1]), "addresses");
	CHECK(ds_dg_create(tx, &i, RING, &fd) == 0 && ds_dg_map(rx, fd) == 0, "segment");
	close(fd);
}

// Flows whose other end has gone give up their memory at the next look, although nothing more comes
// from there, or is sent there.
static void gone(void)
{
	struct sockaddr_in here, there;
	struct ds_dgram *d = ds_dg_new(AF_INET, DS_NONBLOCK_UNKNOWN);
	struct ds_dgseg other[2];
	int a = udp_socket(&here), b = udp_socket(&there), in[2], out[2];
	uint8_t addr[16];
	uint16_t port;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, in) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, out) == 0, "socketpair");
	struct ds_dg_in *f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	segment(&other[0], &f->seg, &there, &here);
	f->alive = ds_fd_keep(in[0], &f->alive);
	CHECK(ds_dg_add(d, f) && d->nin == 1, "it is not added");
	struct ds_dg_out *o = ds_dg_out_new();
	segment(&o->seg, &other[1], &here, &there);
	o->alive = ds_fd_keep(out[0], &o->alive);
	o->state = DG_OUT_UP;
	CHECK(ds_address((void *)&there, addr, &port), "address");
	ds_dg_dest(d, addr, port)->flow = o;
	d->nout = 1;
	for (int ends = 0; ends < 2; ends++) {
		if (ends) {
			close(in[1]);
			close(out[1]);
		}
		d->looked = d->swept = d->tidied = o->checked = 0; // it is time
		ds_dg_in_check(d);
		ds_dg_dest(d, addr, port + 1u);
		CHECK(d->nin == !ends && d->nout == !ends, "%d: %u flows in, %u out", ends, d->nin, d->nout);
	}
	ds_dg_put(d);
	ds_dg_unmap(&other[0]);
	ds_dg_unmap(&other[1]);
	close(a);
	close(b);
}

int main(void)
{
	stands();
	gone();
	one_socket();
	CHECK(ds_dg_missteps == 0, "%u steps that no table has", ds_dg_missteps);
	if (failures)
		return 1;
	printf("ok\n");
	return 0;
}

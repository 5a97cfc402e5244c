#include "probe.h"

#include <linux/sockios.h>

/* Every call of the library's, with every kind of pointer that is none, on every kind of
 * descriptor: what the kernel says, and that no byte is lost or sent which it would not lose or
 * send. */

enum { PAGE = 4096 };

static volatile size_t huge = (size_t)-1; /* the compiler shall not know */
static volatile int negative = -1;
static char good[64];
static int ep;
static struct sockaddr_in name;
static socklen_t name_len;
static struct iovec vec[2];
static struct msghdr msg;
static struct mmsghdr msgs[2];

static struct msghdr *message(void *iov, size_t n, void *addr, socklen_t len)
{
	msg = (struct msghdr){.msg_iov = iov, .msg_iovlen = n, .msg_name = addr, .msg_namelen = len};
	return &msg;
}

static struct iovec *vectors(void *a, size_t n, void *b, size_t m)
{
	vec[0] = (struct iovec){a, n};
	vec[1] = (struct iovec){b, m};
	return vec;
}

static struct mmsghdr *two(void *iov)
{
	memset(msgs, 0, sizeof msgs);
	for (int i = 0; i < 2; i++)
		msgs[i].msg_hdr = (struct msghdr){.msg_iov = iov, .msg_iovlen = 1};
	return msgs;
}

static int scratch_file(void)
{
	static int fd = -1;

	if (fd < 0) {
		fd = memfd_create("probe", 0);
		put(fd, "0123456789", 10);
	}
	lseek(fd, 0, SEEK_SET);
	return fd;
}

static int *scratch_pipe(void)
{
	static int p[2];

	if (!p[1] && pipe2(p, O_NONBLOCK))
		die("pipe");
	return p;
}

/* poll of fd, for calls that take a set and something that is bad. */
static struct pollfd *set_of(int fd)
{
	static struct pollfd p;

	p = (struct pollfd){fd, POLLIN, 0};
	return &p;
}

static fd_set *bits_of(int fd)
{
	static fd_set s;

	FD_ZERO(&s);
	if (fd < FD_SETSIZE)
		FD_SET(fd, &s);
	return &s;
}

static socklen_t *name_room(void)
{
	name_len = sizeof name;
	return &name_len;
}

static struct timespec none;
static const struct mask {
	const void *set;
	size_t size;
} *mask_of(void *p)
{
	static struct mask m;

	m = (struct mask){p, 8};
	return &m;
}

enum { NOT_READONLY = 1, NOT_NULL = 2 };
#define CELLS(X) \
	X(0, read(fd, p, 4)) \
	X(0, read(fd, p, huge)) \
	X(0, recv(fd, p, 4, 0)) \
	X(0, recv(fd, p, 4, MSG_PEEK)) \
	X(0, recv(fd, p, 4, MSG_TRUNC)) \
	X(0, recvfrom(fd, p, 4, 0, NULL, NULL)) \
	X(0, recvfrom(fd, good, 4, 0, p, name_room())) \
	X(0, recvfrom(fd, good, 4, 0, (void *)&name, p)) \
	X(0, readv(fd, p, 1)) \
	X(0, readv(fd, p, 0)) \
	X(0, readv(fd, p, negative)) \
	X(0, readv(fd, p, 5000)) \
	X(0, readv(fd, vectors(p, 4, good, 0), 1)) \
	X(0, readv(fd, vectors(good, 2, p, 4), 2)) \
	X(0, readv(fd, vectors(good, 4, p, huge), 2)) \
	X(0, preadv2(fd, p, 1, -1, 0)) \
	X(0, preadv2(fd, vectors(p, 4, good, 0), 1, -1, RWF_NOWAIT)) \
	X(0, recvmsg(fd, p, 0)) \
	X(0, recvmsg(fd, message(p, 1, NULL, 0), 0)) \
	X(0, recvmsg(fd, message(p, 2000, NULL, 0), 0)) \
	X(0, recvmsg(fd, message(vectors(p, 4, good, 0), 1, NULL, 0), 0)) \
	X(0, recvmsg(fd, message(vectors(good, 4, good, 0), 1, p, 16), 0)) \
	X(0, recvmsg(fd, message(vectors(good, 4, good, 0), 1, p, (socklen_t)-1), 0)) \
	X(0, recvmmsg(fd, p, 1, MSG_DONTWAIT, NULL)) \
	X(0, recvmmsg(fd, two(p), 2, MSG_DONTWAIT, NULL)) \
	X(0, recvmmsg(fd, two(vectors(good, 2, good, 0)), 2, MSG_DONTWAIT, p)) \
	X(0, write(fd, p, 4)) \
	X(0, write(fd, p, huge)) \
	X(0, send(fd, p, 4, MSG_NOSIGNAL)) \
	X(0, sendto(fd, p, 4, 0, NULL, 0)) \
	X(NOT_READONLY, sendto(fd, good, 4, 0, p, 16)) \
	X(0, sendto(fd, good, 4, 0, p, 1000)) \
	X(0, writev(fd, p, 1)) \
	X(0, writev(fd, p, 5000)) \
	X(0, writev(fd, vectors(p, 4, good, 0), 1)) \
	X(0, writev(fd, vectors(good, 2, p, 4), 2)) \
	X(0, pwritev2(fd, p, 1, -1, 0)) \
	X(0, pwritev2(fd, vectors(good, 1, p, 4), 2, -1, RWF_SYNC)) \
	X(0, sendmsg(fd, p, 0)) \
	X(0, sendmsg(fd, message(p, 1, NULL, 0), 0)) \
	X(0, sendmsg(fd, message(p, 2000, NULL, 0), 0)) \
	X(0, sendmsg(fd, message(vectors(p, 4, good, 0), 1, NULL, 0), 0)) \
	X(NOT_READONLY, sendmsg(fd, message(vectors(good, 4, good, 0), 1, p, 16), 0)) \
	X(0, sendmsg(fd, message(vectors(good, 4, good, 0), 1, p, (socklen_t)-1), 0)) \
	X(0, sendmmsg(fd, p, 1, 0)) \
	X(0, sendmmsg(fd, two(p), 2, 0)) \
	X(0, sendmmsg(fd, two(vectors(p, 4, good, 0)), 1, 0)) \
	X(0, sendfile(fd, scratch_file(), p, 4)) \
	X(NOT_NULL, splice(fd, p, scratch_pipe()[1], NULL, 4, 0)) \
	X(NOT_NULL, splice(scratch_pipe()[0], NULL, fd, p, 4, 0)) \
	X(0, accept(fd, p, name_room())) \
	X(0, accept4(fd, (void *)&name, p, 0)) \
	X(NOT_READONLY, connect(fd, p, 16)) \
	X(0, connect(fd, p, 1000)) \
	X(0, connect(fd, p, 1)) \
	X(0, getsockopt(fd, SOL_SOCKET, SO_ERROR, p, name_room())) \
	X(0, getsockopt(fd, SOL_SOCKET, SO_ERROR, good, p)) \
	X(0, setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, p, 4)) \
	X(0, setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, p, 16)) \
	X(0, ioctl(fd, FIONREAD, p)) \
	X(0, ioctl(fd, SIOCOUTQ, p)) \
	X(0, ioctl(fd, FIONBIO, p)) \
	X(0, poll(p, 1, 0)) \
	X(0, poll(p, 100000000, 0)) \
	X(0, syscall(SYS_ppoll, p, 1, &none, NULL, 8)) \
	X(NOT_NULL, syscall(SYS_ppoll, set_of(fd), 1, p, NULL, 8)) \
	X(0, syscall(SYS_ppoll, set_of(fd), 1, &none, p, 8)) \
	X(NOT_NULL, syscall(SYS_ppoll, set_of(fd), 1, &none, p, 4)) \
	X(NOT_NULL | NOT_READONLY, syscall(SYS_select, fd + 1, p, NULL, NULL, &none)) \
	X(NOT_NULL, syscall(SYS_select, fd + 1, bits_of(fd), NULL, NULL, p)) \
	X(0, syscall(SYS_pselect6, fd + 1, bits_of(fd), NULL, NULL, &none, p)) \
	X(0, syscall(SYS_pselect6, fd + 1, bits_of(fd), NULL, NULL, &none, mask_of(p))) \
	X(NOT_READONLY, epoll_ctl(ep, EPOLL_CTL_ADD, fd, p)) \
	X(NOT_READONLY, epoll_ctl(ep, EPOLL_CTL_MOD, fd, p)) \
	X(0, epoll_ctl(fd, EPOLL_CTL_ADD, fd, p)) \
	X(0, epoll_wait(ep, p, 1, 0)) \
	X(0, epoll_wait(ep, p, 0, 0)) \
	X(0, epoll_wait(ep, p, 1 << 30, 0)) \
	X(0, epoll_wait(fd, p, 1, 0)) \
	X(0, epoll_pwait(ep, (void *)good, 1, 0, p)) \
	X(NOT_NULL, syscall(SYS_epoll_pwait, ep, good, 1, 0, p, 4)) \
	X(NOT_NULL, syscall(SYS_epoll_pwait2, ep, good, 1, p, NULL, 8)) \
	X(0, syscall(SYS_read, fd, p, 4)) \
	X(0, syscall(SYS_writev, fd, p, 1L << 40)) \
	X(0, syscall(SYS_recvmsg, fd, p, 0))

/* Makes call number i. */
static long call_cell(int i, int fd, void *p)
{
	int n = 0;

#define X(not_, text) \
	if (n++ == i) \
		return (long)(text);
	CELLS(X)
#undef X
	return -2;
}

static const struct {
	const char *text;
	int not;
} cells[] = {
#define X(not_, text) {#text, not_},
	CELLS(X)
#undef X
};

enum { KINDS = 6 };
static const char *const kinds[KINDS] = {"NULL", "PROT_NONE", "last byte", "read-only", "gone", "kernel"};
static char *bad[KINDS];

static void make_bad(void)
{
	char *p = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	bad[1] = p + PAGE;
	mprotect(bad[1], PAGE, PROT_NONE);
	bad[2] = p + 3 * PAGE - 1;
	mprotect(p + 3 * PAGE, PAGE, PROT_NONE);
	bad[3] = p + 4 * PAGE;
	mprotect(bad[3], PAGE, PROT_READ);
	/* What anybody maps meanwhile does not come here: the kernel begins far above. */
	bad[4] = mmap((char *)0x10000000, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	bad[5] = (char *)0xffff888000000000;
}

/* Takes all that is there: how many bytes. */
static int drain(int fd)
{
	char b[256];
	int n = 0;
	ssize_t rc;

	while ((rc = recv(fd, b, sizeof b, MSG_DONTWAIT)) > 0)
		n += (int)rc;
	return n;
}

/* All cells on fd; peer: of a connection, or -1. */
static void all_cells(const char *what, int fd, int peer)
{
	/* A page that was used, and then unmapped. */
	memset(bad[4], 1, PAGE);
	if (peer >= 0) {
		put(peer, bad[4], 100);
		put(fd, bad[4], 100);
		get(fd, bad[4], 100);
		get(peer, bad[4], 100);
	}
	munmap(bad[4], PAGE);
	for (unsigned i = 0; i < sizeof cells / sizeof *cells; i++)
		for (int k = 0; k < KINDS; k++) {
			if (((cells[i].not & NOT_READONLY) && k == 3) || ((cells[i].not & NOT_NULL) && k == 0))
				continue;
			if (fd < 900)
				nonblock(fd, 1);
			ep = ep_new();
			ep_set(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1);
			if (peer >= 0) {
				put(peer, "data", 4);
				readable(fd, LONG);
			}
			name_room();
			long rc = call_cell((int)i, fd, bad[k]);
			int err = errno;
			if (rc == -1)
				out("%s: %s: %s: %s", what, kinds[k], cells[i].text, errname(err));
			else
				out("%s: %s: %s: %ld", what, kinds[k], cells[i].text, rc);
			if (peer >= 0)
				out("  unread %d, sent %d", drain(fd), drain(peer));
			close(ep);
		}
	if (mmap(bad[4], PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != bad[4])
		die("mmap");
}

static void no_pointers(void)
{
	int c, s, p[2];

	signal(SIGPIPE, SIG_IGN);
	make_bad();
	/* select looks only at numbers that the kernel's table of this process has room for, which
	 * depends on how many our parent had open when it forked: have it reach beyond 999. */
	if ((c = fcntl(2, F_DUPFD, 1000)) < 0)
		die("F_DUPFD");
	close(c);
	all_cells("no descriptor", 999, -1);
	if (pipe(p))
		die("pipe");
	all_cells("pipe", p[0], -1);
	all_cells("new socket", socket(AF_INET, SOCK_STREAM, 0), -1);
	all_cells("UDP", socket(AF_INET, SOCK_DGRAM, 0), -1);
	pair_cold(&c, &s);
	all_cells("TCP, client", c, s);
	all_cells("TCP, server", s, c);
}

static void no_pointers_direct(void)
{
	int c, s;

	signal(SIGPIPE, SIG_IGN);
	make_bad();
	pair(&c, &s);
	all_cells("client", c, s);
	all_cells("server", s, c);
	still_direct(c, s);
}

const struct probe pointer_probes[] = {
	{"pointers", no_pointers, 1},
	{"pointers-direct", no_pointers_direct, 0},
	{NULL, NULL, 0},
};

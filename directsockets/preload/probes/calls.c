#include "probe.h"

#include <dlfcn.h>
#include <linux/close_range.h>

/* Probes of the other calls that a program may make on a socket. */

static char buf[65536];

static void connect_nonblock(void)
{
	struct sockaddr_in a;
	int l = listener(&a), err = -1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	socklen_t len = sizeof err;
	nap(20);
	int rc = connect(fd, (struct sockaddr *)&a, sizeof a);
	out("%s", rc == 0 || errno == EINPROGRESS ? "under way" : errname(errno));
	struct pollfd p = {fd, POLLOUT, 0};
	R(poll(&p, 1, LONG));
	out("%s", revents((unsigned)p.revents));
	R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len));
	out("%d", err);
	R(connect(fd, (struct sockaddr *)&a, sizeof a));
	R(connect(fd, (struct sockaddr *)&a, sizeof a));
	int s = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	warm(fd, s);
	R(read(s, buf, 10));
	put(fd, "hello", 5);
	readable(s, LONG);
	R(read(s, buf, 10));
	R(fcntl(s, F_GETFD));
}

static void connect_refused(void)
{
	struct sockaddr_in a;
	int l = listener(&a), err = -1;
	socklen_t len = sizeof err;
	close(l);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	R(connect(fd, (struct sockaddr *)&a, sizeof a));
	R(read(fd, buf, 1));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	R(connect(fd, (struct sockaddr *)&a, sizeof a));
	struct pollfd p = {fd, POLLOUT, 0};
	R(poll(&p, 1, LONG));
	out("%s", revents((unsigned)p.revents));
	R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len));
	out("%s", errname(err));
	signal(SIGPIPE, SIG_IGN);
	R(write(fd, "x", 1));
	R(read(fd, buf, 1));
}

static void unconnected(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct pollfd p = {fd, POLLIN | POLLOUT, 0};
	signal(SIGPIPE, SIG_IGN);
	R(read(fd, buf, 1));
	R(write(fd, "x", 1));
	R(poll(&p, 1, 0));
	out("%s", revents((unsigned)p.revents));
	R(shutdown(fd, SHUT_WR));
	R(accept(fd, NULL, NULL));
	R(close(fd));
	R(read(fd, buf, 1));
	R(write(fd, buf, 1));
	R(close(fd));
	R(recv(-1, buf, 1, 0));
}

static void other_sockets(void)
{
	int u[2], d[2];
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof a;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	R(socketpair(AF_UNIX, SOCK_STREAM, 0, u));
	put(u[0], "unix", 4);
	R(read(u[1], buf, 10));
	for (int i = 0; i < 2; i++)
		d[i] = socket(AF_INET, SOCK_DGRAM, 0);
	bind(d[0], (struct sockaddr *)&a, sizeof a);
	getsockname(d[0], (struct sockaddr *)&a, &len);
	R(connect(d[1], (struct sockaddr *)&a, sizeof a));
	R(write(d[1], "udp", 3));
	R(write(d[1], "", 0));
	R(read(d[0], buf, 10));
	R(read(d[0], buf, 10));
	R(recv(d[0], buf, 10, MSG_DONTWAIT));
}

static void names_and_options(void)
{
	int c, s, v = 0;
	struct sockaddr_in a, b;
	struct tcp_info ti;
	socklen_t len = sizeof a;
	pair(&c, &s);
	R(getpeername(c, (struct sockaddr *)&a, &len));
	len = sizeof b;
	R(getsockname(s, (struct sockaddr *)&b, &len));
	out("same port %d", a.sin_port == b.sin_port);
	len = sizeof v;
	R(getsockopt(c, SOL_SOCKET, SO_TYPE, &v, &len));
	R(getsockopt(c, SOL_SOCKET, SO_ERROR, &v, &len));
	out("%d", v);
	v = 1;
	R(setsockopt(c, SOL_SOCKET, SO_KEEPALIVE, &v, sizeof v));
	v = 12345;
	R(setsockopt(c, IPPROTO_TCP, TCP_USER_TIMEOUT, &v, sizeof v));
	len = sizeof ti;
	R(getsockopt(c, IPPROTO_TCP, TCP_INFO, &ti, &len));
	out("state %d", ti.tcpi_state);
	R(lseek(c, 0, SEEK_CUR));
	R(pread(c, buf, 1, 0));
	R(pwrite(c, buf, 1, 0));
	R(isatty(c));
}

static void close_ranges(void)
{
	int c, s, c2, s2;
	pair(&c, &s);
	pair(&c2, &s2);
	int lo = c2 < s2 ? c2 : s2, hi = c2 < s2 ? s2 : c2;
	int d = fcntl(s2, F_DUPFD, 100);
	R(close_range((unsigned)lo, (unsigned)hi, CLOSE_RANGE_CLOEXEC));
	R(fcntl(c2, F_GETFD));
	close_range((unsigned)s2, (unsigned)s2, 0);
	R(read(s2, buf, 1));
	put(d, "x", 1);
	R(read(c2, buf, 1));
	close_range(100, ~0u, 0);
	R(read(c2, buf, 1));
	put(c, "y", 1);
	R(read(s, buf, 1));
	R(close_range(5, 4, 0));
}

static void raw_syscalls(void)
{
	int c, s;
	pair(&c, &s);
	R(syscall(SYS_write, c, "raw", 3));
	R(syscall(SYS_read, s, buf, 10));
	R(syscall(SYS_sendto, s, "back", 4, 0, NULL, 0));
	R(syscall(SYS_recvfrom, c, buf, 10, 0, NULL, NULL));
	int d = (int)syscall(SYS_dup, s);
	R(syscall(SYS_close, s));
	put(c, "x", 1);
	R(read(d, buf, 10));
	R(syscall(SYS_read, 999, buf, 10));
	R(syscall(SYS_close, d));
	R(syscall(SYS_read, c, buf, 10));
}

static void stdio(void)
{
	int c, s;
	pair(&c, &s);
	put(c, "line one\nline two\n", 18);
	FILE *in = fdopen(dup(s), "r"), *outf = fdopen(s, "w");
	out("%s", fgets(buf, 100, in) ? "a line" : "none");
	out("%.8s", buf);
	fprintf(outf, "answer %d\n", 42);
	fflush(outf);
	R(read(c, buf, 100));
	out("%.9s", buf);
	out("%s", fgets(buf, 100, in) ? "a line" : "none");
	out("%.8s", buf);
	R(dprintf(c, "printed %d\n", 7));
	out("%s", fgets(buf, 100, in) ? "a line" : "none");
	out("%.9s", buf);
	R(fclose(outf));
	R(fclose(in));
	R(read(c, buf, 10));
	R(close(s));
}

static void formatted(void)
{
	int c, s;
	pair(&c, &s);
	R(dprintf(c, "%s %d\n", "number", 5));
	R(read(s, buf, 100));
	out("%.8s", buf);
}

static volatile int ios;
static void on_io(int sig)
{
	(void)sig;
	ios++;
}

static void sigio(void)
{
	int c, s;
	pair(&c, &s);
	signal(SIGIO, on_io);
	R(fcntl(s, F_SETOWN, getpid()));
	R(fcntl(s, F_SETFL, fcntl(s, F_GETFL) | O_ASYNC));
	put(c, "x", 1);
	for (int i = 0; i < LONG / 5 && !ios; i++)
		nap(5);
	out("%d", ios > 0);
	R(read(s, buf, 10));
}

static void ipv6(void)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	socklen_t len = sizeof a;
	int l = socket(AF_INET6, SOCK_STREAM, 0);
	if (bind(l, (struct sockaddr *)&a, sizeof a) || listen(l, 5) || getsockname(l, (struct sockaddr *)&a, &len))
		die("listen");
	nap(20);
	int c = socket(AF_INET6, SOCK_STREAM, 0);
	R(connect(c, (struct sockaddr *)&a, sizeof a));
	int s = accept(l, NULL, NULL);
	warm(c, s);
	put(c, "six", 3);
	R(read(s, buf, 10));
	close(c);
	R(read(s, buf, 10));
}

static void *accept_one(void *p)
{
	int *l = p;
	return (void *)(long)accept(l[0], NULL, NULL);
}

static void accept_later(void)
{
	/* Bytes and the end arrive before accept does. */
	struct sockaddr_in a;
	int l = listener(&a);
	nap(20);
	int c = dial(&a);
	put(c, "early", 5);
	put(c, " bird", 5);
	put(c, " worm", 5);
	shutdown(c, SHUT_WR);
	nap(30);
	int s = accept(l, NULL, NULL);
	out("%zu %.15s", get(s, buf, 100), buf);
	put(s, "fine", 4);
	R(read(c, buf, 10));
	pthread_t t;
	void *fd;
	pthread_create(&t, NULL, accept_one, &l);
	nap(30);
	c = dial(&a);
	pthread_join(t, &fd);
	out("%d", (int)(long)fd > 0);
	R(shutdown(l, SHUT_RDWR));
	R(accept(l, NULL, NULL));
}

static void simultaneous_close(void)
{
	for (int i = 0; i < 20; i++) {
		int c, s;
		pair(&c, &s);
		put(c, "a", 1);
		put(s, "b", 1);
		get(c, buf, 1);
		get(s, buf, 1);
		if (close(c) || close(s))
			die("close");
	}
	out("done");
}

#if defined(__x86_64__)
// What UCX (of MPI) does: the functions of memory begin with a jump to its own, which make the
// calls by syscall().
static int own_munmap(void *p, size_t n) { return (int)syscall(SYS_munmap, p, n); }
static int own_mprotect(void *p, size_t n, int how) { return (int)syscall(SYS_mprotect, p, n, how); }
static void *own_mremap(void *p, size_t old, size_t n, int flags, void *to)
{
	return (void *)syscall(SYS_mremap, p, old, n, flags, to);
}
static void *own_mmap(void *p, size_t n, int how, int flags, int fd, off_t off)
{
	return (void *)syscall(SYS_mmap, p, n, how, flags, fd, off);
}

static void jump(void *from, void *to)
{
	unsigned char code[12] = {0x48, 0xb8, [10] = 0xff, 0xe0}; // movabs $to, %rax; jmp *%rax
	char *page = (char *)((uintptr_t)from & ~4095ul);

	memcpy(code + 2, &to, sizeof to);
	if (mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC))
		die("mprotect");
	memcpy(from, code, sizeof code);
}
#endif

static void memory_jumps(void)
{
	int c, s;

	pair(&c, &s);
#if defined(__x86_64__)
	jump(dlsym(RTLD_DEFAULT, "munmap"), (void *)own_munmap);
	jump(dlsym(RTLD_DEFAULT, "mremap"), (void *)own_mremap);
	jump(dlsym(RTLD_DEFAULT, "mmap"), (void *)own_mmap);
	jump(dlsym(RTLD_DEFAULT, "mprotect"), (void *)own_mprotect);
#endif
	char *p = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int way = 0; way < 3; way++) { // memory that was good, and is gone
		memset(p, 'm', 4096);
		put(c, p, 4096);
		R(recv(s, p, 4096, MSG_WAITALL));
		if (way == 0) {
			R(mprotect(p, 4096, PROT_NONE));
		} else if (way == 1) {
			R(mmap(p, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
		} else {
			R(munmap(p, 4096));
		}
		R(send(c, p, 4096, 0));
		put(c, buf, 1);
		R(recv(s, p, 1, 0));
		R(recv(s, buf, 1, 0));
		if (way < 2)
			R(mprotect(p, 4096, PROT_READ | PROT_WRITE));
	}
	char *q = p + 4096;
	memset(q, 'q', 4096);
	put(c, q, 4096);
	R(recv(s, q, 4096, MSG_WAITALL));
	char *to = mremap(q, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, p);
	R(to == p);
	R(send(c, q, 1, 0));
	R(munmap(p, 16384));
	still_direct(c, s);
}

const struct probe call_probes[] = {
	{"memory-jumps", memory_jumps, 0},
	{"connect-nonblock", connect_nonblock, 0},
	{"connect-refused", connect_refused, 1},
	{"unconnected", unconnected, 1},
	{"other-sockets", other_sockets, 1},
	{"names-options", names_and_options, 0},
	{"close-range", close_ranges, 0},
	{"raw-syscalls", raw_syscalls, 0},
	{"stdio", stdio, 0},
	{"dprintf", formatted, 0},
	{"sigio", sigio, 0},
	{"ipv6", ipv6, 0},
	{"accept-later", accept_later, 1},
	{"close-both", simultaneous_close, 0},
	{NULL, NULL, 0},
};

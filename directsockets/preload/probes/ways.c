#include "ways.h"

#include <aio.h>
#include <dlfcn.h>
#include <linux/aio_abi.h>

/* Probes of ways into the kernel that pass by the functions of the C library which the library
 * takes over, on a connection that is direct; and of options that bound how TCP sends. */

static char sent[4096], back[sizeof sent];

/* Has a message of sizeof sent bytes gone from c to s? by moves it. */
static void exchanged(const char *how, int s, unsigned seed, long (*by)(int fd, void *p, size_t n, int in), int fd)
{
	size_t n = 0;

	fill(sent, sizeof sent, seed);
	while (n < sizeof sent) {
		long r = by(fd, sent + n, sizeof sent - n, 0);
		if (r <= 0)
			die(how);
		n += (size_t)r;
	}
	n = get(s, back, sizeof back);
	out("%s out: %zu %s", how, n, memcmp(sent, back, sizeof sent) ? "wrong" : "right");
	put(s, sent, sizeof sent);
	for (n = 0; n < sizeof back;) {
		memset(back + n, 0, sizeof back - n);
		long r = by(fd, back + n, sizeof back - n, 1);
		if (r <= 0)
			die(how);
		n += (size_t)r;
	}
	out("%s in: %zu %s", how, n, memcmp(sent, back, sizeof sent) ? "wrong" : "right");
}

/* ---- asynchronous I/O --------------------------------------------------------- */

static aio_context_t context;

/* One operation of the kernel's asynchronous I/O, to its end. */
static long kernel_operation(int fd, void *p, size_t n, int code)
{
	struct iocb cb = {.aio_fildes = (unsigned)fd, .aio_lio_opcode = (unsigned short)code, .aio_buf = (uintptr_t)p, .aio_nbytes = n}, *list[] = {&cb};
	struct io_event ev;
	struct timespec t = {LONG / 1000, 0};

	if (!context && syscall(SYS_io_setup, 4, &context) < 0)
		die("io_setup");
	if (syscall(SYS_io_submit, context, 1, list) != 1)
		die("io_submit");
	return syscall(SYS_io_getevents, context, 1, 1, &ev, &t) == 1 ? (long)ev.res : -1;
}

static long by_kernel(int fd, void *p, size_t n, int in) { return kernel_operation(fd, p, n, in ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE); }

static long by_kernel_poll(int fd, void *p, size_t n, int in)
{
	if (!in)
		return by_kernel(fd, p, n, 0);
	kernel_operation(fd, (void *)POLLIN, 0, IOCB_CMD_POLL);
	return recv(fd, p, n, MSG_DONTWAIT);
}

static long by_threads(int fd, void *p, size_t n, int in)
{
	struct aiocb a = {.aio_fildes = fd, .aio_buf = p, .aio_nbytes = n};
	const struct aiocb *list[] = {&a};
	struct timespec t = {LONG / 1000, 0};

	if ((in ? aio_read : aio_write)(&a) < 0)
		die("aio");
	while (aio_error(&a) == EINPROGRESS)
		if (aio_suspend(list, 1, &t) < 0)
			die("aio_suspend");
	return aio_return(&a);
}

static void asynchronous(long (*by)(int fd, void *p, size_t n, int in))
{
	int c, s;

	pair(&c, &s);
	is_direct();
	for (unsigned i = 0; i < 20; i++)
		exchanged("asynchronous", s, i, by, c);
	hang_up(c, s);
}

static void kernel_aio(void) { asynchronous(by_kernel); }
static void kernel_aio_poll(void) { asynchronous(by_kernel_poll); }
static void posix_aio(void) { asynchronous(by_threads); }

/* ---- every other way ---------------------------------------------------------- */

static struct iovec vector;
static struct msghdr *message(void *p, size_t n)
{
	static struct msghdr m;

	vector = (struct iovec){p, n};
	m = (struct msghdr){.msg_iov = &vector, .msg_iovlen = 1};
	return &m;
}

long by_read(int fd, void *p, size_t n, int in) { return in ? read(fd, p, n) : write(fd, p, n); }
static long by_readv(int fd, void *p, size_t n, int in) { return message(p, n) && in ? readv(fd, &vector, 1) : writev(fd, &vector, 1); }
static long by_preadv2(int fd, void *p, size_t n, int in) { return message(p, n) && in ? preadv2(fd, &vector, 1, -1, 0) : pwritev2(fd, &vector, 1, -1, 0); }
static long by_recv(int fd, void *p, size_t n, int in) { return in ? recv(fd, p, n, 0) : send(fd, p, n, 0); }
static long by_recvfrom(int fd, void *p, size_t n, int in) { return in ? recvfrom(fd, p, n, 0, NULL, NULL) : sendto(fd, p, n, 0, NULL, 0); }
static long by_recvmsg(int fd, void *p, size_t n, int in) { return in ? recvmsg(fd, message(p, n), 0) : sendmsg(fd, message(p, n), 0); }
static long by_number(int fd, void *p, size_t n, int in) { return syscall(in ? SYS_read : SYS_write, fd, p, n); }
static long by_number_from(int fd, void *p, size_t n, int in) { return syscall(in ? SYS_recvfrom : SYS_sendto, fd, p, n, 0, NULL, 0); }
static long by_number_msg(int fd, void *p, size_t n, int in) { return syscall(in ? SYS_recvmsg : SYS_sendmsg, fd, message(p, n), 0); }
static long by_number_vector(int fd, void *p, size_t n, int in) { return syscall(message(p, n) && in ? SYS_readv : SYS_writev, fd, &vector, 1); }

static long by_recvmmsg(int fd, void *p, size_t n, int in)
{
	struct mmsghdr m = {.msg_hdr = *message(p, n)};

	return (in ? recvmmsg(fd, &m, 1, 0, NULL) : sendmmsg(fd, &m, 1, 0)) == 1 ? (long)m.msg_len : -1;
}

/* What _FORTIFY_SOURCE makes of read and recv. */
extern ssize_t __read_chk(int fd, void *p, size_t n, size_t size);
extern ssize_t __recv_chk(int fd, void *p, size_t n, size_t size, int flags);
extern ssize_t __recvfrom_chk(int fd, void *p, size_t n, size_t size, int flags, struct sockaddr *from, socklen_t *len);
static long by_read_chk(int fd, void *p, size_t n, int in) { return in ? __read_chk(fd, p, n, n) : write(fd, p, n); }
static long by_recv_chk(int fd, void *p, size_t n, int in) { return in ? __recv_chk(fd, p, n, n, 0) : send(fd, p, n, 0); }
static long by_recvfrom_chk(int fd, void *p, size_t n, int in) { return in ? __recvfrom_chk(fd, p, n, n, 0, NULL, NULL) : send(fd, p, n, 0); }

/* The C library's other names. */
extern ssize_t __read(int fd, void *p, size_t n);
extern ssize_t __write(int fd, const void *p, size_t n);
extern ssize_t __send(int fd, const void *p, size_t n, int flags);
static long by_alias(int fd, void *p, size_t n, int in) { return in ? __read(fd, p, n) : __write(fd, p, n); }
static long by_alias_send(int fd, void *p, size_t n, int in) { return in ? __read(fd, p, n) : __send(fd, p, n, 0); }

static long by_splice(int fd, void *p, size_t n, int in)
{
	int ends[2];

	if (pipe(ends) < 0)
		die("pipe");
	long r = in ? splice(fd, NULL, ends[1], NULL, n, 0) : write(ends[1], p, n);
	if (r > 0)
		r = in ? read(ends[0], p, (size_t)r) : splice(ends[0], NULL, fd, NULL, (size_t)r, 0);
	close(ends[0]);
	close(ends[1]);
	return r;
}

static long by_sendfile(int fd, void *p, size_t n, int in)
{
	off_t from = 0;
	int file = in ? -1 : memfd_create("probe", 0);

	if (in)
		return read(fd, p, n);
	if (file < 0 || write(file, p, n) != (ssize_t)n)
		die("memfd_create");
	long r = sendfile(fd, file, &from, n);
	close(file);
	return r;
}

/* Streams of the C library. */
static FILE *stream;
static long by_stream(int fd, void *p, size_t n, int in)
{
	if (!stream && !(stream = fdopen(dup(fd), "r+")))
		die("fdopen");
	long r = (long)(in ? fread(p, 1, n, stream) : fwrite(p, 1, n, stream));
	fflush(stream);
	return r;
}
static long by_dprintf(int fd, void *p, size_t n, int in)
{
	return in ? read(fd, p, n) : dprintf(fd, "%c", *(char *)p);
}

/* Copies of the descriptor. */
static long by_copy(int fd, void *p, size_t n, int in)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 300);
	long r = by_read(copy, p, n, in);

	close(copy);
	return r;
}

static long by_message(int fd, void *p, size_t n, int in)
{
	int over[2], copy;
	union {
		char room[CMSG_SPACE(sizeof copy)];
		struct cmsghdr head;
	} u;
	char b;
	struct iovec one = {&b, 1};
	struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = &u, .msg_controllen = sizeof u};

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, over))
		die("socketpair");
	pass_fd(over[0], fd);
	if (recvmsg(over[1], &m, 0) != 1)
		die("recvmsg");
	memcpy(&copy, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof copy);
	long r = by_read(copy, p, n, in);
	close(copy);
	close(over[0]);
	close(over[1]);
	return r;
}

/* A copy by the kernel's way of taking another process's descriptors, here this one's. */
static long by_pidfd(int fd, void *p, size_t n, int in)
{
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0), copy = (int)syscall(SYS_pidfd_getfd, self, fd, 0);

	if (copy < 0)
		die("pidfd_getfd");
	long r = by_read(copy, p, n, in);
	close(copy);
	close(self);
	return r;
}

/* By functions of libc.so.6 in a namespace of its own, which has a C library of its own. */
static long by_namespace(int fd, void *p, size_t n, int in)
{
	static void *handle;

	if (!handle && !(handle = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW)))
		die("dlmopen");
	ssize_t (*get_by)(int, void *, size_t) = (__typeof__(get_by))dlsym(handle, "read");
	ssize_t (*put_by)(int, const void *, size_t) = (__typeof__(put_by))dlsym(handle, "write");
	return in ? get_by(fd, p, n) : put_by(fd, p, n);
}

/* Between two pipes and the socket. */
static long by_pipes(int fd, void *p, size_t n, int in, ssize_t (*move)(const int *a, const int *b, int fd, void *p, size_t n, int in))
{
	int a[2], b[2];

	if (pipe(a) < 0 || pipe(b) < 0)
		die("pipe");
	ssize_t r = move(a, b, fd, p, n, in);
	for (int i = 0; i < 2; i++) {
		close(a[i]);
		close(b[i]);
	}
	return r;
}
static ssize_t pages(const int *a, const int *b, int fd, void *p, size_t n, int in)
{
	struct iovec v = {p, n};

	(void)b;
	ssize_t r = in ? splice(fd, NULL, a[1], NULL, n, 0) : vmsplice(a[1], &v, 1, 0);
	if (r > 0)
		r = in ? vmsplice(a[0], &v, 1, 0) : splice(a[0], NULL, fd, NULL, (size_t)r, 0);
	return r;
}
static ssize_t doubled(const int *a, const int *b, int fd, void *p, size_t n, int in)
{
	ssize_t r = in ? splice(fd, NULL, a[1], NULL, n, 0) : write(a[1], p, n);

	if (r > 0)
		r = tee(a[0], b[1], (size_t)r, 0);
	if (r > 0)
		r = in ? read(b[0], p, (size_t)r) : splice(b[0], NULL, fd, NULL, (size_t)r, 0);
	return r;
}
static ssize_t by_its_number(const int *a, const int *b, int fd, void *p, size_t n, int in)
{
	ssize_t r = in ? syscall(SYS_splice, fd, NULL, a[1], NULL, n, SPLICE_F_MOVE) : write(a[1], p, n);

	(void)b;
	if (r > 0)
		r = in ? read(a[0], p, (size_t)r) : syscall(SYS_splice, a[0], NULL, fd, NULL, r, SPLICE_F_MORE);
	return r;
}
static long by_vmsplice(int fd, void *p, size_t n, int in) { return by_pipes(fd, p, n, in, pages); }
static long by_tee(int fd, void *p, size_t n, int in) { return by_pipes(fd, p, n, in, doubled); }
static long by_number_splice(int fd, void *p, size_t n, int in) { return by_pipes(fd, p, n, in, by_its_number); }

static long by_nowait(int fd, void *p, size_t n, int in)
{
	if (in)
		readable(fd, LONG);
	return message(p, n) && in ? preadv2(fd, &vector, 1, -1, RWF_NOWAIT) : pwritev2(fd, &vector, 1, -1, RWF_NOWAIT);
}

/* In one call, as many as are there. */
static long by_several(int fd, void *p, size_t n, int in)
{
	enum { PARTS = 4 };
	struct iovec v[PARTS];
	struct mmsghdr m[PARTS] = {0};
	long sum = 0;

	if (n % PARTS)
		return by_read(fd, p, n, in);
	for (size_t i = 0; i < PARTS; i++) {
		v[i] = (struct iovec){(char *)p + i * (n / PARTS), n / PARTS};
		m[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1};
	}
	int moved = in ? recvmmsg(fd, m, PARTS, MSG_WAITFORONE, NULL) : sendmmsg(fd, m, PARTS, 0);
	for (int i = 0; i < moved; i++)
		sum += m[i].msg_len;
	return sum;
}

static long by_byte(int fd, void *p, size_t n, int in)
{
	(void)n;
	if (!stream) {
		if (!(stream = fdopen(dup(fd), "r+")))
			die("fdopen");
		setvbuf(stream, NULL, _IONBF, 0);
	}
	int b = in ? getc(stream) : putc(*(unsigned char *)p, stream);
	if (b != EOF)
		*(unsigned char *)p = (unsigned char)b;
	return b == EOF ? -1 : 1;
}

/* What is ready is moved without waiting. */
static long once_ready(int fd, void *p, size_t n, int in, long ready)
{
	if (ready != 1)
		die("not ready");
	return in ? recv(fd, p, n, MSG_DONTWAIT) : send(fd, p, n, MSG_DONTWAIT);
}
static long selected(int fd, void *p, size_t n, int in, long nr, void *limit)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return once_ready(fd, p, n, in, syscall(nr, fd + 1, in ? &set : NULL, in ? NULL : &set, NULL, limit, NULL));
}
static long by_number_select(int fd, void *p, size_t n, int in)
{
#ifdef SYS_select
	return selected(fd, p, n, in, SYS_select, &(struct timeval){LONG / 1000, 0});
#else
	return by_read(fd, p, n, in);
#endif
}
static long by_number_pselect(int fd, void *p, size_t n, int in) { return selected(fd, p, n, in, SYS_pselect6, &(struct timespec){LONG / 1000, 0}); }
static long by_number_ppoll(int fd, void *p, size_t n, int in)
{
	struct pollfd f = {fd, in ? POLLIN : POLLOUT, 0};

	return once_ready(fd, p, n, in, syscall(SYS_ppoll, &f, 1, &(struct timespec){LONG / 1000, 0}, NULL, 8));
}
static long by_number_epoll(int fd, void *p, size_t n, int in)
{
	struct epoll_event ev = {.events = in ? EPOLLIN : EPOLLOUT};
	long ep = syscall(SYS_epoll_create1, EPOLL_CLOEXEC);

	syscall(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, fd, &ev);
	long r = once_ready(fd, p, n, in, syscall(SYS_epoll_pwait, ep, &ev, 1, LONG, NULL, 8));
	syscall(SYS_close, ep);
	return r;
}

static const struct way ways[] = {
	{"read, write", by_read}, {"readv, writev", by_readv}, {"preadv2, pwritev2", by_preadv2}, {"recv, send", by_recv},
	{"recvfrom, sendto", by_recvfrom}, {"recvmsg, sendmsg", by_recvmsg}, {"recvmmsg, sendmmsg", by_recvmmsg},
	{"syscall: read, write", by_number}, {"syscall: recvfrom, sendto", by_number_from}, {"syscall: recvmsg, sendmsg", by_number_msg},
	{"syscall: readv, writev", by_number_vector}, {"__read_chk", by_read_chk}, {"__recv_chk", by_recv_chk},
	{"__recvfrom_chk", by_recvfrom_chk}, {"__read, __write", by_alias}, {"__send", by_alias_send}, {"splice", by_splice},
	{"sendfile", by_sendfile}, {"stream", by_stream}, {"dprintf", by_dprintf}, {"a copy's number", by_copy},
	{"SCM_RIGHTS", by_message}, {"pidfd_getfd", by_pidfd}, {"kernel AIO", by_kernel}, {"kernel AIO poll", by_kernel_poll},
	{"POSIX AIO", by_threads}, {"vmsplice", by_vmsplice}, {"tee", by_tee},
	{"syscall: splice", by_number_splice}, {"RWF_NOWAIT", by_nowait}, {"several messages", by_several}, {"getc, putc", by_byte},
	{"syscall: select", by_number_select}, {"syscall: pselect6", by_number_pselect}, {"syscall: ppoll", by_number_ppoll},
	{"syscall: epoll_pwait", by_number_epoll},
	{"dlmopen", by_namespace}, /* the last, as all connections stay on TCP after it */
	{0},
};

/* Each on a connection of its own, beside the functions that all programs use. */
void each_way(const struct way *w)
{
	const char *only = getenv("PROBE_WAY");

	for (; w->name; w++) {
		int c, s;

		if (only && strcmp(only, w->name) != 0)
			continue;
		pair(&c, &s);
		is_direct();
		out("%s", w->name);
		for (unsigned i = 0; i < 3; i++) {
			put(c, "before", 6);
			get(s, back, 6);
			exchanged("message", s, i, w->by, c);
		}
		put(c, "after", 5);
		out("%zu after", get(s, back, 5));
		if (stream)
			fclose(stream);
		stream = NULL;
		hang_up(c, s);
	}
}

static void all_ways(void) { each_way(ways); }

/* Calls that the kernel refuses on a socket take nothing from it. */
static void refused(void)
{
	int c, s, ends[2], n, file = memfd_create("probe", 0);
	char path[64];
	off_t at = 0;

	if (pipe(ends) < 0 || file < 0)
		die("pipe");
	pair(&c, &s);
	is_direct();
	put(s, "there", 5);
	arrived(c, 5);
	R(tee(c, ends[1], 5, SPLICE_F_NONBLOCK));
	R(vmsplice(c, &(struct iovec){back, 5}, 1, SPLICE_F_NONBLOCK));
	R(copy_file_range(c, NULL, file, NULL, 5, 0));
	R(syscall(SYS_copy_file_range, file, NULL, c, NULL, 5, 0));
	R(sendfile(file, c, NULL, 5));
	R(sendfile(file, c, &at, 5));
	R(splice(c, &at, ends[1], NULL, 5, SPLICE_F_NONBLOCK));
	R(pread(c, back, 5, 0));
	R(pwrite(c, back, 5, 0));
	R(preadv2(c, &(struct iovec){back, 5}, 1, 0, 0));
	R(lseek(c, 0, SEEK_CUR));
	R(ftruncate(c, 0));
	R(fsync(c));
	R(syscall(SYS_getdents64, c, back, sizeof back));
	R(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, c, 0) == MAP_FAILED ? -1 : 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", c);
	R(open(path, O_RDWR));
	R(ioctl(c, FIONREAD, &n));
	out("%d there", n);
	out("%zu %.5s", get(c, back, 5), back);
	put(c, "more", 4);
	out("%zu %.4s", get(s, back, 4), back);
	hang_up(c, s);
	close(file);
	close(ends[0]);
	close(ends[1]);
}

/* A signal says that something can be read, with the descriptor's number. */
static void signal_driven(void)
{
	int c, s;
	sigset_t set;
	siginfo_t info;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	pair(&c, &s);
	is_direct();
	R(fcntl(c, F_SETOWN, getpid()));
	R(fcntl(c, F_SETSIG, SIGRTMIN));
	R(fcntl(c, F_SETFL, O_RDWR | O_ASYNC | O_NONBLOCK));
	for (int i = 0; i < 20; i++) {
		put(s, "message", 7);
		do {
			R(sigtimedwait(&set, &info, &(struct timespec){LONG / 1000, 0}) == SIGRTMIN);
			out("%s", info.si_fd == c ? "of c" : "of another");
		} while (recv(c, back, 7, 0) != 7);
		put(c, "answer", 6);
		get(s, back, 6);
	}
	close(c);
	close(s);
}

/* ---- options ------------------------------------------------------------------ */

/* Reads to the end. */
static void *reads_all(void *fd)
{
	while (get(*(int *)fd, back, sizeof back) == sizeof back)
		;
	return NULL;
}

/* A sender that is held back by SO_MAX_PACING_RATE is, though its connection was direct. */
static void pacing(void)
{
	enum { RATE = 1 << 20, MUCH = 1 << 20 };
	static char much[MUCH];
	unsigned rate = RATE;
	pthread_t t;
	int c, s;

	pair(&c, &s);
	is_direct();
	R(setsockopt(c, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate));
	long begin = monotonic();
	pthread_create(&t, NULL, reads_all, &s);
	put(c, much, sizeof much);
	shutdown(c, SHUT_WR);
	pthread_join(t, NULL);
	out("held back: %s", monotonic() - begin > 500 ? "yes" : "no");
	close(c);
	close(s);
}

/* A sender whose peer does not read is told after TCP_USER_TIMEOUT. */
static void user_timeout(void)
{
	static char much[1 << 16];
	unsigned ms = 1000;
	int c, s;

	pair(&c, &s);
	is_direct();
	R(setsockopt(c, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms));
	R(setsockopt(c, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){LONG / 1000, 0}, sizeof(struct timeval)));
	while (send(c, much, sizeof much, MSG_NOSIGNAL) > 0)
		;
	out("at the end: %s", errname(errno));
	close(c);
	close(s);
}

const struct probe way_probes[] = {
	{"ways-kernel-aio", kernel_aio, 0},
	{"ways-kernel-aio-poll", kernel_aio_poll, 0},
	{"ways-posix-aio", posix_aio, 0},
	{"ways-all", all_ways, 0},
	{"ways-places", all_places, 0},
	{"ways-unshared", unshared, 0},
	{"ways-closed-apart", closed_apart, 0},
	{"ways-refused", refused, 0},
	{"ways-signal-driven", signal_driven, 0},
	{"options-pacing", pacing, 0},
	{"options-user-timeout", user_timeout, 0},
	{NULL, NULL, 0},
};

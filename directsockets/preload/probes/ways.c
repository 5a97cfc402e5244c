#include "probe.h"

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

static long by_read(int fd, void *p, size_t n, int in) { return in ? read(fd, p, n) : write(fd, p, n); }
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

/* Other places that calls come from. */
struct call {
	int fd, in;
	void *p;
	size_t n;
	long r;
};
static void *makes(void *call)
{
	struct call *k = call;

	k->r = by_read(k->fd, k->p, k->n, k->in);
	return NULL;
}
static long by_thread(int fd, void *p, size_t n, int in)
{
	struct call k = {fd, in, p, n, 0};
	pthread_t t;

	pthread_create(&t, NULL, makes, &k);
	pthread_join(t, NULL);
	return k.r;
}

static struct call *of_handler;
static void handler(int sig)
{
	(void)sig;
	makes(of_handler);
}
static long by_handler(int fd, void *p, size_t n, int in)
{
	struct call k = {fd, in, p, n, 0};

	of_handler = &k;
	signal(SIGUSR1, handler);
	raise(SIGUSR1);
	return k.r;
}

static long by_child(int fd, void *p, size_t n, int in)
{
	char *shared = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int st = 0;

	memcpy(shared, p, n);
	pid_t pid = fork();
	if (pid == 0)
		_exit(by_read(fd, shared, n, in) == (long)n ? 0 : 1);
	waitpid(pid, &st, 0);
	memcpy(p, shared, n);
	munmap(shared, n);
	return st == 0 ? (long)n : -1;
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

static const struct way {
	const char *name;
	long (*by)(int fd, void *p, size_t n, int in);
} ways[] = {
	{"read, write", by_read}, {"readv, writev", by_readv}, {"preadv2, pwritev2", by_preadv2}, {"recv, send", by_recv},
	{"recvfrom, sendto", by_recvfrom}, {"recvmsg, sendmsg", by_recvmsg}, {"recvmmsg, sendmmsg", by_recvmmsg},
	{"syscall: read, write", by_number}, {"syscall: recvfrom, sendto", by_number_from}, {"syscall: recvmsg, sendmsg", by_number_msg},
	{"syscall: readv, writev", by_number_vector}, {"__read_chk", by_read_chk}, {"__recv_chk", by_recv_chk},
	{"__recvfrom_chk", by_recvfrom_chk}, {"__read, __write", by_alias}, {"__send", by_alias_send}, {"splice", by_splice},
	{"sendfile", by_sendfile}, {"stream", by_stream}, {"dprintf", by_dprintf}, {"a copy's number", by_copy},
	{"SCM_RIGHTS", by_message}, {"pidfd_getfd", by_pidfd}, {"thread", by_thread}, {"handler", by_handler}, {"child", by_child},
	{"kernel AIO", by_kernel}, {"kernel AIO poll", by_kernel_poll}, {"POSIX AIO", by_threads}, {"dlmopen", by_namespace},
};

/* Each on a connection of its own, beside the functions that all programs use. */
static void all_ways(void)
{
	const char *only = getenv("PROBE_WAY");

	for (const struct way *w = ways; w < ways + sizeof ways / sizeof *ways; w++) {
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
	{"options-pacing", pacing, 0},
	{"options-user-timeout", user_timeout, 0},
	{NULL, NULL, 0},
};

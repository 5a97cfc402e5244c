#include "probe.h"

#include <aio.h>
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
	{"options-pacing", pacing, 0},
	{"options-user-timeout", user_timeout, 0},
	{NULL, NULL, 0},
};

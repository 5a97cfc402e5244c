#include "probe.h"

#include <dlfcn.h>
#include <stdarg.h>

/* Probes of threads that wait in a call for a connection that is uncounted, while another thread
 * has it handed to the core: it must become direct all the same. */

static void *waits(void *fd)
{
	char b;

	return (void *)get(*(int *)fd, &b, 1);
}

/* Sends until c sends directly, and has t end, which waits for what c receives. */
static void direct_beside(pthread_t t, int c, int s)
{
	void *got;
	char b;

	for (int i = 0; i < (has_library() ? 2000 : 5); i++) {
		put(c, "x", 1);
		get(s, &b, 1);
		if (has_library() && (direct(c) & 1))
			break;
		if (i > 3)
			nap(1);
	}
	if (has_library() && !(direct(c) & 1))
		out("it stays on TCP");
	put(s, "y", 1);
	pthread_join(t, &got);
	out("the thread has read %zu", (size_t)got);
	hang_up(c, s);
}

/* A thread that sleeps in a call must not keep the connection uncounted for the others. */
static void with_threads(void)
{
	pthread_t t;
	int c, s;

	pair_cold(&c, &s);
	pthread_create(&t, NULL, waits, &c);
	nap(20);
	direct_beside(t, c, s);
}

/* The descriptor whose name is asked for slowly, and whether it is. */
static int slow = -1, asking;

typedef long kernel(long n, ...);
static kernel *librarys;

/* Before the library's own system calls: so one thread gives a connection its handle while another
 * begins a call. */
static long slowly(long n, ...)
{
	long a[6];
	va_list ap;

	va_start(ap, n);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (n == SYS_getsockname && (int)a[0] >= 0 && (int)a[0] == __atomic_load_n(&slow, __ATOMIC_RELAXED)) {
		__atomic_store_n(&asking, 1, __ATOMIC_RELAXED);
		nap(200);
	}
	return librarys(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void *sends_much(void *fd)
{
	static char b[300000];

	put(*(int *)fd, b, sizeof b); /* too much for a connection that is uncounted */
	return NULL;
}

static void *takes_much(void *fd)
{
	static char b[300000];

	get(*(int *)fd, b, sizeof b);
	return NULL;
}

/* waits by other calls. */
static void *waits_many(void *fd)
{
	char b;
	struct iovec v = {&b, 1};
	struct mmsghdr m = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};

	return (void *)(size_t)recvmmsg(*(int *)fd, &m, 1, 0, NULL);
}

static void *waits_vectors(void *fd)
{
	char b;

	return (void *)preadv2(*(int *)fd, &(struct iovec){&b, 1}, 1, -1, 0);
}

static void *waits_splice(void *fd)
{
	int p[2];

	if (pipe(p))
		die("pipe");
	ssize_t n = splice(*(int *)fd, NULL, p[1], NULL, 1, 0);
	close(p[0]);
	close(p[1]);
	return (void *)n;
}

static void *waits_control(void *fd)
{
	char b, control[64];
	struct iovec v = {&b, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};

	return (void *)recvmsg(*(int *)fd, &m, 0);
}

/* A thread that begins to wait by this while another gives the connection its handle. */
static void settling_beside(void *(*wait)(void *))
{
	pthread_t sender, taker, t;
	int c, s;

	pair_cold(&c, &s);
	asking = 0;
	if (has_library()) {
		kernel *(*set)(kernel *) = (kernel * (*)(kernel *)) dlsym(RTLD_DEFAULT, "exnds_kernel");

		librarys = librarys ? librarys : set(slowly);
		slow = c;
	}
	pthread_create(&taker, NULL, takes_much, &s);
	pthread_create(&sender, NULL, sends_much, &c);
	while (has_library() && !__atomic_load_n(&asking, __ATOMIC_RELAXED))
		nap(1);
	__atomic_store_n(&slow, -1, __ATOMIC_RELAXED);
	pthread_create(&t, NULL, wait, &c);
	pthread_join(sender, NULL);
	pthread_join(taker, NULL);
	direct_beside(t, c, s);
}

static void settling(void)
{
	settling_beside(waits);
	settling_beside(waits_many);
	settling_beside(waits_vectors);
	settling_beside(waits_splice);
	settling_beside(waits_control);
}

const struct probe settling_probes[] = {
	{"uncounted-threads", with_threads, 0},
	{"uncounted-settling", settling, 0},
	{0},
};

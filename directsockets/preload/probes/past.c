#include "probe.h"

#include <dlfcn.h>

/* Probes that call past the names which the library takes over: by functions of the C library's
 * handle (dlsym: Python's ctypes, JNA, LuaJIT), by a plugin that binds names to the C library first
 * (RTLD_DEEPBIND: PHP's extensions), by a plugin's own instructions. Calls of both kinds follow
 * each other on a connection that is direct. PROBE_PLUGIN and PROBE_OPENED name the plugins. */

static void *handle;
static const char *prefix; /* of the functions of handle */

/* Opens the C library itself. */
static void libc_handle(void)
{
	handle = dlopen("libc.so.6", RTLD_NOW);
	prefix = "";
	if (!handle)
		die("libc.so.6");
}

/* Opens a plugin, which a variable names, that has its own wrapper of each function. */
static void open_plugin(const char *variable, int mode)
{
	const char *path = getenv(variable);

	handle = path ? dlopen(path, mode) : NULL;
	prefix = "plugin_";
	if (!handle)
		die(variable);
	int (*same)(void) = (int (*)(void))dlsym(handle, "plugin_same");
	if (same && !same())
		die("a table between functions is changed");
}
static void plugin(void) { open_plugin("PROBE_PLUGIN", RTLD_NOW | RTLD_DEEPBIND); }
static void opened(void) { open_plugin("PROBE_OPENED", RTLD_LAZY); }

static void *find(const char *name)
{
	char full[64];

	snprintf(full, sizeof full, "%s%s", prefix, name);
	void *f = dlsym(handle, full);
	if (!f)
		die(full);
	return f;
}

#define PAST(name) ((__typeof__(name) *)find(#name))

/* ---- calls that move bytes ---------------------------------------------------- */

typedef long mover(int fd, void *p, size_t n, int in);

static struct iovec v;
static struct msghdr *message(void *p, size_t n)
{
	static struct msghdr m;

	v = (struct iovec){p, n};
	m = (struct msghdr){.msg_iov = &v, .msg_iovlen = 1};
	return &m;
}

static long by_read(int fd, void *p, size_t n, int in) { return in ? PAST(read)(fd, p, n) : PAST(write)(fd, p, n); }
static long by_recv(int fd, void *p, size_t n, int in) { return in ? PAST(recv)(fd, p, n, 0) : PAST(send)(fd, p, n, MSG_NOSIGNAL); }
static long by_peek(int fd, void *p, size_t n, int in) { return in && PAST(recv)(fd, p, n, MSG_PEEK) <= 0 ? -1 : by_recv(fd, p, n, in); }
static long by_recvfrom(int fd, void *p, size_t n, int in) { return in ? PAST(recvfrom)(fd, p, n, 0, NULL, NULL) : PAST(sendto)(fd, p, n, 0, NULL, 0); }
static long by_recvmsg(int fd, void *p, size_t n, int in) { return in ? PAST(recvmsg)(fd, message(p, n), 0) : PAST(sendmsg)(fd, message(p, n), 0); }
static long by_readv(int fd, void *p, size_t n, int in) { return message(p, n) && in ? PAST(readv)(fd, &v, 1) : PAST(writev)(fd, &v, 1); }
static long by_preadv2(int fd, void *p, size_t n, int in) { return message(p, n) && in ? PAST(preadv2)(fd, &v, 1, -1, 0) : PAST(pwritev2)(fd, &v, 1, -1, 0); }

static long by_recvmmsg(int fd, void *p, size_t n, int in)
{
	struct mmsghdr m = {.msg_hdr = *message(p, n)};

	return (in ? PAST(recvmmsg)(fd, &m, 1, 0, NULL) : PAST(sendmmsg)(fd, &m, 1, 0)) == 1 ? (long)m.msg_len : -1;
}

static long by_number(int fd, void *p, size_t n, int in) { return PAST(syscall)(in ? SYS_read : SYS_write, (long)fd, p, n); }

static long by_splice(int fd, void *p, size_t n, int in)
{
	int ends[2];

	if (pipe(ends) < 0)
		die("pipe");
	long r = in ? PAST(splice)(fd, NULL, ends[1], NULL, n, 0) : write(ends[1], p, n);
	if (r > 0)
		r = in ? read(ends[0], p, (size_t)r) : PAST(splice)(ends[0], NULL, fd, NULL, (size_t)r, 0);
	close(ends[0]);
	close(ends[1]);
	return r;
}

static long by_sendfile(int fd, void *p, size_t n, int in)
{
	off_t from = 0;

	if (in)
		return by_read(fd, p, n, in);
	int file = memfd_create("probe", 0);
	if (file < 0 || write(file, p, n) != (ssize_t)n)
		die("memfd_create");
	long r = PAST(sendfile)(fd, file, &from, n);
	close(file);
	return r;
}

static const struct {
	const char *name;
	mover *by;
} movers[] = {{"read", by_read}, {"recv", by_recv}, {"peek", by_peek}, {"recvfrom", by_recvfrom}, {"recvmsg", by_recvmsg}, {"readv", by_readv},
	      {"preadv2", by_preadv2}, {"recvmmsg", by_recvmmsg}, {"syscall", by_number}, {"splice", by_splice}, {"sendfile", by_sendfile}};

static char sent[4096], back[sizeof sent];

/* Moves all of sent or back. */
static void all(mover *by, int fd, char *p, int in)
{
	for (size_t n = 0; n < sizeof sent;) {
		long r = by(fd, p + n, sizeof sent - n, in);
		if (r <= 0)
			die(in ? "in" : "out");
		n += (size_t)r;
	}
}

static void bytes(void)
{
	int c, s;

	pair(&c, &s);
	is_direct();
	for (unsigned i = 0; i < 4 * sizeof movers / sizeof *movers; i++) {
		unsigned k = i % (sizeof movers / sizeof *movers);

		fill(sent, sizeof sent, i);
		put(c, sent, 7); /* what goes by a name goes before it */
		all(movers[k].by, c, sent, 0);
		size_t n = get(s, back, 7);
		n += get(s, back, sizeof back);
		out("%s out: %zu %s", movers[k].name, n, memcmp(sent, back, sizeof sent) ? "wrong" : "right");
		put(s, sent, sizeof sent);
		memset(back, 0, sizeof back);
		all(movers[k].by, c, back, 1);
		out("%s in: %s", movers[k].name, memcmp(sent, back, sizeof sent) ? "wrong" : "right");
	}
	is_direct();
	hang_up(c, s);
}

/* ---- calls that wait ---------------------------------------------------------- */

static void waits(void)
{
	int c, s, ep = PAST(epoll_create1)(0);
	struct timespec t = {LONG / 1000, 0};
	struct epoll_event ev = {.events = EPOLLIN}, got;
	pthread_t other;
	char b[8];

	pair(&c, &s);
	is_direct();
	R(PAST(epoll_ctl)(ep, EPOLL_CTL_ADD, s, &ev));
	for (int how = 0; how < 6; how++) {
		struct pollfd p = {s, POLLIN, 0};
		fd_set in;
		struct timeval tv = {LONG / 1000, 0};

		FD_ZERO(&in);
		FD_SET(s, &in);
		pthread_create(&other, NULL, write_later, &c);
		switch (how) {
		case 0: R(PAST(poll)(&p, 1, LONG)); break;
		case 1: R(PAST(ppoll)(&p, 1, &t, NULL)); break;
		case 2: R(PAST(select)(s + 1, &in, NULL, NULL, &tv)); break;
		case 3: R(PAST(pselect)(s + 1, &in, NULL, NULL, &t, NULL)); break;
		case 4: R(PAST(epoll_wait)(ep, &got, 1, LONG)); break;
		case 5: R(PAST(epoll_pwait)(ep, &got, 1, LONG, NULL)); break;
		}
		int there = 0;
		R(PAST(ioctl)(s, FIONREAD, &there));
		pthread_join(other, NULL);
		out("%d there, %zd read", there, PAST(read)(s, b, sizeof b));
	}
	is_direct();
	close(ep);
	hang_up(c, s);
}

/* ---- calls that change descriptors -------------------------------------------- */

static void numbers(void)
{
	int c, s, yes = 1;
	socklen_t len = sizeof yes;

	pair(&c, &s);
	is_direct();
	int copies[] = {PAST(dup)(c), PAST(fcntl)(c, F_DUPFD, 100), PAST(dup2)(c, 200), PAST(dup3)(c, 201, O_CLOEXEC)};
	R(PAST(close)(c));
	for (unsigned i = 0; i < sizeof copies / sizeof *copies; i++) {
		fill(sent, sizeof sent, i);
		put(copies[i], sent, sizeof sent);
		size_t n = get(s, back, sizeof back);
		out("copy %u: %zu %s", i, n, memcmp(sent, back, sizeof sent) ? "wrong" : "right");
	}
	R(PAST(fcntl)(s, F_SETFL, O_NONBLOCK));
	R(recv(s, back, 1, 0));
	R(PAST(setsockopt)(s, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes));
	R(PAST(getsockopt)(s, SOL_SOCKET, SO_ERROR, &yes, &len));
	R(PAST(fcntl)(s, F_SETFL, 0));
	for (unsigned i = 1; i < sizeof copies / sizeof *copies; i++)
		R(PAST(close)(copies[i]));
	R(PAST(shutdown)(copies[0], SHUT_WR));
	R(recv(s, back, 1, 0));
	put(s, "still", 5);
	R(recv(copies[0], back, 5, MSG_WAITALL));
	/* The number is another file's next. */
	R(PAST(close)(copies[0]));
	int file = memfd_create("probe", 0);
	out("the same number: %s", file == c || file == copies[0] ? "yes" : "no");
	R(write(file, "file", 4));
	R(pread(file, back, 4, 0));
	R(recv(s, back, 1, 0));
}

#define EACH(name) \
	static void libc_##name(void) { libc_handle(); name(); } \
	static void plugin_##name(void) { plugin(); name(); } \
	static void opened_##name(void) { opened(); name(); }
EACH(bytes)
EACH(waits)
EACH(numbers)

/* ---- a plugin that comes and goes --------------------------------------------- */

/* Sends all of sent by a call of the plugin's, between two by name, and back. */
static void exchange(int c, int s, unsigned seed)
{
	fill(sent, sizeof sent, seed);
	put(c, "before", 6);
	all(by_read, c, sent, 0);
	put(c, "behind", 6);
	size_t n = get(s, back, 6) + get(s, back, sizeof back);
	out("%u out: %zu %s", seed, n, memcmp(sent, back, sizeof sent) ? "wrong" : "right");
	n = get(s, back, 6);
	out("%zu %.6s", n, back);
	put(s, sent, sizeof sent);
	memset(back, 0, sizeof back);
	all(by_read, c, back, 1);
	out("%u in: %s", seed, memcmp(sent, back, sizeof sent) ? "wrong" : "right");
}

static int stop;

/* Exchanges bytes until it is told to stop. */
static void *busy(void *arg)
{
	char b[512], r[sizeof b];
	int c, s;

	(void)arg;
	pair(&c, &s);
	for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		fill(b, sizeof b, i);
		put(c, b, sizeof b);
		if (get(s, r, sizeof r) != sizeof r || memcmp(b, r, sizeof b) != 0)
			die("busy");
	}
	hang_up(c, s);
	return NULL;
}

/* The mappings of this process. */
static int mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	int n = 0, c;

	while (f && (c = getc(f)) != EOF)
		n += c == '\n';
	if (!f || fclose(f) != 0)
		die("maps");
	return n;
}

/* Each time the plugin lies where it lay before, or elsewhere. */
static void again(void)
{
	static const int modes[] = {RTLD_NOW, RTLD_LAZY | RTLD_DEEPBIND, RTLD_NOW | RTLD_GLOBAL};
	int c, s, before = 0;
	pthread_t t;

	pair(&c, &s);
	is_direct();
	pthread_create(&t, NULL, busy, NULL);
	for (unsigned i = 0; i < 60; i++) {
		open_plugin("PROBE_OPENED", modes[i % (sizeof modes / sizeof *modes)]);
		exchange(c, s, i);
		if (dlclose(handle) != 0 || dlopen("/nowhere/at/all", RTLD_NOW))
			die("dlclose");
		if (i == 9)
			before = mappings();
	}
	out("more mappings: %s", mappings() > before + 10 ? "yes" : "no");
	is_direct();
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	hang_up(c, s);
}

/* In a namespace of its own. */
static void apart(void)
{
	const char *path = getenv("PROBE_OPENED");
	int c, s;

	pair(&c, &s);
	is_direct();
	handle = path ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW) : NULL;
	prefix = "plugin_";
	if (!handle)
		die("dlmopen");
	for (unsigned i = 0; i < 5; i++)
		exchange(c, s, i);
	hang_up(c, s);
}

const struct probe past_probes[] = {
	{"past-libc-bytes", libc_bytes, 0},
	{"past-libc-waits", libc_waits, 0},
	{"past-libc-numbers", libc_numbers, 0},
	{"past-plugin-bytes", plugin_bytes, 0},
	{"past-plugin-waits", plugin_waits, 0},
	{"past-plugin-numbers", plugin_numbers, 0},
	{"past-opened-bytes", opened_bytes, 0},
	{"past-opened-waits", opened_waits, 0},
	{"past-opened-numbers", opened_numbers, 0},
	{"past-opened-again", again, 0},
	{"past-opened-apart", apart, 0},
	{NULL, NULL, 0},
};

#include "probe.h"

#include <dlfcn.h>
#include <stdarg.h>

// exnds_mode is the library's: bits 1 sends direct, 2 receives direct. exnds_uncounted: whether it
// knows fd only lightly yet.
static int (*mode)(int fd), (*uncounted_is)(int fd), (*streams)(void);
static int cold, uncounted, requests; // uncounted: a pair begins as such, after so many requests
static int was_direct, was_uncounted, pairs;

void out(const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(line, sizeof line - 1, fmt, ap);
	va_end(ap);
	line[n++] = '\n';
	if (write(1, line, (size_t)n) != n)
		_exit(9);
}

int begun(void) { return requests; }

int has_library(void) { return mode != NULL; }

int is_cold(void) { return cold; }

void is_direct(void) { was_direct = 1; }

int streams_seen(void) { return streams && streams(); }
int is_uncounted(int fd) { return uncounted_is && uncounted_is(fd); }
int has_core(int fd) { return !mode || mode(fd) >= 0; }

int direct(int fd)
{
	int m = mode ? mode(fd) : 0;

	if (m > 0)
		was_direct = 1;
	return m > 0 ? m : 0;
}

void die(const char *what)
{
	out("DIED: %s: %s", what, strerror(errno));
	_exit(7);
}

const char *errname(int err)
{
	return strerrorname_np(err);
}

long result(const char *what, long rc)
{
	int err = errno;

	if (rc == -1)
		out("%s = %s", what, errname(err));
	else
		out("%s = %ld", what, rc);
	errno = err;
	return rc;
}

int listener(struct sockaddr_in *addr)
{
	socklen_t len = sizeof *addr;
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

	memset(addr, 0, sizeof *addr);
	addr->sin_family = AF_INET;
	addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (fd < 0 || bind(fd, (struct sockaddr *)addr, sizeof *addr) || listen(fd, 128) || getsockname(fd, (struct sockaddr *)addr, &len))
		die("listener");
	return fd;
}

int dial(const struct sockaddr_in *addr)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, (const struct sockaddr *)addr, sizeof *addr))
		die("connect");
	return fd;
}

/* What arrives with what is then not a matter of time. */
static void nodelay(int a, int b)
{
	int one = 1;

	setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(b, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

// A byte from one end to the other, by calls that do not wait: where there are threads, those that
// may give a connection its handle.
static void one_byte(int from, int to)
{
	char b = 'y';

	if (send(from, &b, 1, MSG_DONTWAIT) != 1)
		die("request");
	while (recv(to, &b, 1, MSG_DONTWAIT) != 1)
		nap(1);
}

// Makes a connection at l. If both ends are to be uncounted, tries again until they are: each
// second the library looks after its broker when it makes one, and a busy machine's may take its
// time.
void pair_on(int l, const struct sockaddr_in *addr, int *client, int *server)
{
	long last = monotonic() + LONG;

	for (int i = 0;; i++) {
		*client = dial(addr);
		*server = accept(l, NULL, NULL);
		if (*server < 0)
			die("accept");
		if (!uncounted || !mode || (is_uncounted(*client) && is_uncounted(*server)))
			break;
		if (i >= 100 && (was_uncounted || monotonic() > last))
			break;
		close(*client);
		close(*server);
		if (i >= 100)
			nap(1);
	}
	nodelay(*client, *server);
	if (requests) {
		one_byte(*client, *server);
		one_byte(*server, *client);
	}
	pairs++;
	was_uncounted |= uncounted && is_uncounted(*client) && is_uncounted(*server);
}

// The first connections of a process are never uncounted: it has to find its broker. The library's
// own descriptors, which have high numbers, make the kernel's table larger: select looks at more of
// it.
static void meet(void)
{
	struct sockaddr_in addr;
	int l = listener(&addr), c, s;

	close(dup2(0, 1000));
	pair_on(l, &addr, &c, &s);
	close(c);
	close(s);
	close(l);
	pairs = was_uncounted = 0;
}

void pair_cold(int *client, int *server)
{
	struct sockaddr_in addr;
	int l = listener(&addr);

	if (mode)
		nap(20); // the announcement of the listener takes its time
	pair_on(l, &addr, client, server);
	/* The listener stays: a client asks whether there is one when it has something to offer. */
}

void hang_up(int c, int s)
{
	char b;

	R(close(c));
	R(read(s, &b, 1));
	R(close(s));
}

long monotonic(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void warm(int client, int server)
{
	char b = 'w';

	const char *limit = getenv("PROBE_WARM");
	long last = monotonic() + (limit ? atoi(limit) : LONG);

	for (int i = 0; monotonic() < last; i++) {
		if (mode ? mode(client) == 3 && mode(server) == 3 : i == 4)
			break;
		put(client, &b, 1);
		get(server, &b, 1);
		put(server, &b, 1);
		get(client, &b, 1);
		if (i > 3)
			nap(1);
	}
	was_direct |= mode && mode(client) == 3 && mode(server) == 3;
}

void still_direct(int client, int server)
{
	if (mode && !cold && (mode(client) != 3 || mode(server) != 3))
		was_direct = 0;
}

void pair(int *client, int *server)
{
	struct sockaddr_in addr;
	int l = listener(&addr);

	if (mode)
		nap(20);
	pair_on(l, &addr, client, server);
	if (!cold)
		warm(*client, *server);
	if (!uncounted)
		close(l); // which hands over what is uncounted
}

const char *revents(unsigned bits)
{
	static char text[8][128];
	static int next;
	char *t = text[next++ & 7];
	static const struct {
		unsigned bit;
		const char *name;
	} names[] = {{POLLIN, "IN"}, {POLLPRI, "PRI"}, {POLLOUT, "OUT"}, {POLLERR, "ERR"}, {POLLHUP, "HUP"}, {POLLNVAL, "NVAL"}, {POLLRDHUP, "RDHUP"}};

	strcpy(t, bits ? "" : "0");
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		if (bits & names[i].bit)
			strcat(strcat(t, *t ? "|" : ""), names[i].name);
	return t;
}

static unsigned draw(unsigned *seed)
{
	*seed = *seed * 1103515245 + 12345;
	return *seed >> 16;
}

unsigned random_below(unsigned *seed, unsigned n) { return (draw(seed) & 0x7fff) % n; }

void fill(char *buf, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		buf[i] = (char)draw(&seed);
}

void put(int fd, const void *buf, size_t n)
{
	while (n > 0) {
		ssize_t rc = write(fd, buf, n);
		if (rc < 0 && errno == EINTR)
			continue;
		if (rc < 0 && errno == EAGAIN) {
			struct pollfd p = {fd, POLLOUT, 0};
			poll(&p, 1, -1);
			continue;
		}
		if (rc <= 0)
			die("write");
		buf = (const char *)buf + rc;
		n -= (size_t)rc;
	}
}

size_t get(int fd, void *buf, size_t n)
{
	size_t have = 0;

	while (have < n) {
		ssize_t rc = read(fd, (char *)buf + have, n - have);
		if (rc < 0 && errno == EINTR)
			continue;
		if (rc < 0 && errno == EAGAIN) {
			readable(fd, -1);
			continue;
		}
		if (rc < 0)
			die("read");
		if (rc == 0)
			break;
		have += (size_t)rc;
	}
	return have;
}

int readable(int fd, int ms)
{
	struct pollfd p = {fd, POLLIN, 0};
	return poll(&p, 1, ms);
}

void nonblock(int fd, int on)
{
	int fl = fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFL, on ? fl | O_NONBLOCK : fl & ~O_NONBLOCK);
}

void arrived(int fd, int n)
{
	int have = 0;

	for (int i = 0; i < LONG && (ioctl(fd, FIONREAD, &have) || have < n); i++)
		nap(1);
}

void ended(int fd)
{
	struct pollfd p = {fd, POLLRDHUP, 0};
	poll(&p, 1, LONG);
}

void cut(int fd)
{
	struct pollfd p = {fd, 0, 0};
	poll(&p, 1, LONG);
}

pid_t start(void (*body)(void *), void *arg)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (pid == 0) {
		body(arg);
		_exit(0);
	}
	return pid;
}

void finish(pid_t pid)
{
	int st = -1;

	while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(st))
		out("child: exit %d", WEXITSTATUS(st));
	else
		out("child: signal %d", WTERMSIG(st));
}

void nap(int ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
	nanosleep(&t, NULL);
}

int ep_new(void)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);
	if (fd < 0)
		die("epoll_create1");
	return fd;
}

int ep_set(int ep, int op, int fd, unsigned events, unsigned long data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};
	return epoll_ctl(ep, op, fd, &ev);
}

int ep_hear(int ep, struct epoll_event *ev, int max, int ms)
{
	int n;

	do
		n = epoll_wait(ep, ev, max, ms);
	while (n < 0 && errno == EINTR);
	return n;
}

/* Waits and writes what comes, sorted by data. */
int ep_show(int ep, int max, int ms)
{
	struct epoll_event ev[64];
	int n = ep_hear(ep, ev, max, ms);

	if (n < 0) {
		out("epoll_wait: %s", errname(errno));
		return n;
	}
	for (int i = 0; i < n; i++)
		for (int j = i + 1; j < n; j++)
			if (ev[j].data.u64 < ev[i].data.u64) {
				struct epoll_event t = ev[i];
				ev[i] = ev[j];
				ev[j] = t;
			}
	out("%d events", n);
	for (int i = 0; i < n; i++)
		out("  %#lx %s", (unsigned long)ev[i].data.u64, revents(ev[i].events));
	return n;
}

void *write_later(void *p)
{
	nap(50);
	put(*(int *)p, "late", 4);
	return NULL;
}

static const struct probe *const tables[] = {io_probes, flag_probes, ready_probes, set_probes, proc_probes, end_probes, disconnect_probes, call_probes, exec_probes, inherited_probes, listen_probes, setup_probes, copy_probes, linger_probes, pointer_probes, zerocopy_probes, signal_probes, jump_probes, cancel_probes, order_probes, edge_probes, errno_probes, thread_probes, share_probes, sharer_probes, killed_probes, reuse_probes, limit_probes, renumber_probes, retaken_probes, vfork_probes, told_probes, uncounted_probes, settling_probes, sealed_probes, apart_probes, atfork_probes, leave_probes, rest_probes, udp_probes, udpset_probes, udpwait_probes, udpproc_probes, udpfork_probes, udpsays_probes, udprandom_probes, way_probes, own_probes, past_probes, made_probes};

// no_missteps fails the run if an end of a UDP flow was to make a step that its table does not
// have.
static void no_missteps(void)
{
	unsigned (*missteps)(void);

	*(void **)&missteps = dlsym(RTLD_DEFAULT, "exnds_missteps");
	if (missteps && missteps())
		out("%u steps that no table has", missteps());
}

// probes list | probes NAME [cold | uncounted | uncounted-1]: exit 0; with the library and none of
// these, 3 means that the connection never became direct. uncounted-1: after one request. With it
// and uncounted, 4 means that no connection was uncounted when the probe began to use it.
int fewer(int n) { return getenv("PROBE_SHORT") ? n / 10 : n; }

int main(int argc, char **argv)
{
	*(void **)&mode = dlsym(RTLD_DEFAULT, "exnds_mode");
	if (argc == 4 && strcmp(argv[1], "inherited") == 0)
		return inherited(argv + 2);
	*(void **)&uncounted_is = dlsym(RTLD_DEFAULT, "exnds_uncounted");
	*(void **)&streams = dlsym(RTLD_DEFAULT, "exnds_streams_seen");
	requests = argc > 2 && strcmp(argv[2], "uncounted-1") == 0;
	uncounted = requests || (argc > 2 && strcmp(argv[2], "uncounted") == 0);
	cold = uncounted || (argc > 2 && strcmp(argv[2], "cold") == 0);
	for (unsigned t = 0; argc > 1 && t < sizeof tables / sizeof *tables; t++)
		for (const struct probe *p = tables[t]; p->name; p++) {
			if (strcmp(argv[1], "list") == 0) {
				if (tables[t] != past_probes && tables[t] != own_probes) /* which not every C library bears */
					printf("%s\n", p->name);
				continue;
			}
			if (strcmp(argv[1], p->name) != 0)
				continue;
			alarm(300);
			if (tables[t] == uncounted_probes || tables[t] == settling_probes)
				cold = uncounted = 1;
			if (uncounted)
				meet();
			p->run();
			no_missteps();
			if (uncounted && mode && pairs && !was_uncounted)
				return 4;
			return mode && !cold && !p->tcp && !was_direct ? 3 : 0;
		}
	return argc > 1 && strcmp(argv[1], "list") == 0 ? 0 : 2;
}

#include "probe.h"

#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>

/* Probes of threads that sleep in a call on a connection whose descriptor another thread closes,
 * and whose number a new socket takes: the sleeper goes on with the old connection. */

enum { RECV, READ, RECVMSG, RECVFROM, READV, RECVMMSG, WAITALL, PEEK, CONTROL, SPLICE, RECEIVES };
enum { SEND = RECEIVES, WRITE, SENDMSG, WRITEV, SENDMMSG, CALLS };
static const char *const names[] = {"recv", "read", "recvmsg", "recvfrom", "readv", "recvmmsg", "waitall", "peek", "recvmsg with control", "splice", "send", "write", "sendmsg", "writev", "sendmmsg"};

enum { MUCH = 24 << 20, CHUNK = 64 << 10 };

struct sleeper {
	pthread_t thread;
	int how, fd, tid, ms, ended; // ms: the time of a call that has one
	ssize_t rc;
	char got[8];
	char *much;
};

/* Makes the call. */
static void *sleeps(void *arg)
{
	struct sleeper *s = arg;
	struct iovec iov = {s->got, 7}, two[2] = {{s->got, 3}, {s->got + 3, 4}}, much = {s->much, MUCH};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1}, out = {.msg_iov = &much, .msg_iovlen = 1};
	char from[64];
	struct msghdr control = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = from, .msg_controllen = sizeof from};
	struct mmsghdr v[2] = {{.msg_hdr = m}, {.msg_hdr = m}}, w = {.msg_hdr = out};
	struct timespec most = {LONG / 1000, 0};
	int ends[2];

	__atomic_store_n(&s->tid, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	switch (s->how) {
	case RECV: s->rc = recv(s->fd, s->got, 7, 0); break;
	case READ: s->rc = read(s->fd, s->got, 7); break;
	case RECVMSG: s->rc = recvmsg(s->fd, &m, 0); break;
	case RECVFROM: s->rc = recvfrom(s->fd, s->got, 7, 0, NULL, NULL); break;
	case READV: s->rc = readv(s->fd, two, 2); break;
	case RECVMMSG: s->rc = recvmmsg(s->fd, v, 2, MSG_WAITFORONE, &most); break;
	case WAITALL: s->rc = recv(s->fd, s->got, 6, MSG_WAITALL); break;
	case PEEK: s->rc = recv(s->fd, s->got, 7, MSG_PEEK); break;
	case CONTROL: s->rc = recvmsg(s->fd, &control, 0); break;
	case SPLICE:
		if (pipe(ends))
			die("pipe");
		s->rc = splice(s->fd, NULL, ends[1], NULL, 7, 0);
		if (s->rc > 0)
			read(ends[0], s->got, 7);
		break;
	case SEND: s->rc = send(s->fd, s->much, MUCH, 0); break;
	case WRITE: s->rc = write(s->fd, s->much, MUCH); break;
	case SENDMSG: s->rc = sendmsg(s->fd, &out, 0); break;
	case WRITEV: s->rc = writev(s->fd, &much, 1); break;
	case SENDMMSG: s->rc = sendmmsg(s->fd, &w, 1, 0); break;
	}
	if (s->rc < 0)
		s->rc = -errno;
	__atomic_store_n(&s->ended, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* Waits until the sleeper has been asleep for a while, or has ended. */
static void asleep(const struct sleeper *s)
{
	char path[64], text[256];

	for (int i = 0; i < 30; i++, nap(1)) {
		sprintf(path, "/proc/self/task/%d/stat", __atomic_load_n(&s->tid, __ATOMIC_SEQ_CST));
		if (__atomic_load_n(&s->ended, __ATOMIC_SEQ_CST))
			return;
		int fd = open(path, O_RDONLY);
		ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
		close(fd);
		text[n > 0 ? n : 0] = 0;
		char *end = strrchr(text, ')');
		if (!end || end[2] != 'S')
			i = 0;
	}
}

static void begin(struct sleeper *s, int how, int fd, char *much)
{
	*s = (struct sleeper){.how = how, .fd = fd, .much = much};
	pthread_create(&s->thread, NULL, sleeps, s);
	asleep(s);
}

/* How the number becomes another socket's. */
enum { CLOSE, DUP2, SHUT, KEPT, WAYS };
static const char *const ways[] = {"close", "dup2", "shutdown and close", "close, and another number stays"};

/* Gives the number of old to a copy of new; returns another number of old, or -1. */
static int take_over(int how, int old, int new)
{
	int kept = how == KEPT ? dup(old) : -1;

	if (how == SHUT)
		shutdown(old, SHUT_RDWR);
	if (how == DUP2)
		dup2(new, old);
	else {
		close(old);
		for (int i = 0, got; (got = fcntl(new, F_DUPFD, old)) != old; i++) {
			if (got < 0 || i == 1000)
				die("the number is taken");
			close(got); // the library has the number for a moment, in the other thread
			nap(1);
		}
	}
	return kept;
}

/* One call that receives. */
static void receive(int how, int way)
{
	int a[2], b[2];
	struct sleeper s;
	char text[8] = "";

	pair(&a[0], &a[1]);
	pair(&b[0], &b[1]);
	if (how == WAITALL)
		put(a[0], "ol", 2);
	begin(&s, how, a[1], NULL);
	int kept = take_over(way, a[1], b[1]);
	put(b[0], "new", 3);
	if (way != SHUT)
		put(a[0], how == WAITALL ? "d..." : "old", how == WAITALL ? 4 : 3);
	pthread_join(s.thread, NULL);
	get(a[1], text, 3);
	out("%s, %s: %zd %s, then the number has %s", names[how], ways[way], s.rc, s.got, text);
	for (int i = 0; i < 2; i++)
		close(a[i]), close(b[i]);
	if (kept >= 0)
		close(kept);
}

static void receives(int way)
{
	for (int how = 0; how < RECEIVES; how++)
		receive(how, way);
}

static void reuse_close(void) { receives(CLOSE); }
static void reuse_dup2(void) { receives(DUP2); }
static void reuse_shutdown(void) { receives(SHUT); }
static void reuse_kept(void) { receives(KEPT); }

/* Calls that send, until there is no room. */
static void reuse_sends(void)
{
	char *much = malloc(MUCH), *got = malloc(MUCH), text[8] = "";
	int a[2], b[2], unread;
	struct sleeper s;

	fill(much, MUCH, 1);
	for (int how = SEND; how < CALLS; how++) {
		pair(&a[0], &a[1]);
		pair(&b[0], &b[1]);
		begin(&s, how, a[1], much);
		take_over(CLOSE, a[1], b[1]);
		size_t n = get(a[0], got, MUCH);
		pthread_join(s.thread, NULL);
		out("%s: %zd, %zu arrive, %s, then the end %zu", names[how], s.rc, n, n == MUCH && !memcmp(got, much, MUCH) ? "as sent" : "others", get(a[0], got, 1));
		put(a[1], "new", 3);
		get(b[0], text, 3);
		ioctl(b[0], FIONREAD, &unread);
		out("the number sends %s, and %d more", text, unread);
		for (int i = 0; i < 2; i++)
			close(a[i]), close(b[i]);
	}
	free(much);
	free(got);
}

enum { SEVERAL = 4 };

/* Several threads that sleep on one number. */
static void reuse_several(void)
{
	struct sleeper s[SEVERAL];
	int a[2], b[2], old = 0;
	char text[8] = "";

	for (int way = 0; way < WAYS; way++) {
		pair(&a[0], &a[1]);
		pair(&b[0], &b[1]);
		for (int i = 0; i < SEVERAL; i++)
			begin(&s[i], WAITALL, a[1], NULL);
		int kept = take_over(way, a[1], b[1]);
		put(b[0], "new", 3);
		old = 0;
		for (int i = 0; i < SEVERAL && way != SHUT; i++)
			put(a[0], "old...", 6);
		for (int i = 0; i < SEVERAL; i++) {
			pthread_join(s[i].thread, NULL);
			old += s[i].rc == 0 || !strncmp(s[i].got, "old", 3);
		}
		get(a[1], text, 3);
		out("%s: %d threads go on with the old, then the number has %s", ways[way], old, text);
		for (int i = 0; i < 2; i++)
			close(a[i]), close(b[i]);
		if (kept >= 0)
			close(kept);
	}
}

/* A client that has sent often enough to offer, and whose server has not been looking since. */
static void reuse_offered(void)
{
	struct sockaddr_in addr;
	struct sleeper s;
	char text[64] = "";
	int a[2], b[2];

	for (int way = 0; way < WAYS; way++) {
		int l = listener(&addr);

		nap(20);
		a[1] = dial(&addr);
		a[0] = accept(l, NULL, NULL);
		pair(&b[0], &b[1]);
		for (int i = 0; i < 20; i++)
			put(a[1], "x", 1);
		begin(&s, RECV, a[1], NULL);
		int kept = take_over(way, a[1], b[1]);
		put(b[0], "new", 3);
		if (way != SHUT)
			put(a[0], "old", 3);
		pthread_join(s.thread, NULL);
		get(a[1], text, 3);
		out("%s: %zd %s, then the number has %s", ways[way], s.rc, s.got, text);
		for (int i = 0; i < 2; i++)
			close(a[i]), close(b[i]);
		if (kept >= 0)
			close(kept);
		close(l);
	}
}

/* Sets. The kernel answers by number, but only what was added, or was there before, wakes it. */
enum { POLL, POLL_TWO, SELECT, EPOLL, POLL_TIME, SELECT_TIME, SETS };
static const char *const sets[] = {"poll", "poll of two", "select", "epoll_wait", "poll for a time", "select for a time"};

static void *waits(void *arg)
{
	struct sleeper *s = arg;
	struct pollfd p[2] = {{s->fd, POLLIN, 0}, {s->fd, POLLIN, 0}};
	struct epoll_event ev = {0};
	struct timeval time = {s->ms / 1000, s->ms % 1000 * 1000};
	fd_set in;

	FD_ZERO(&in);
	FD_SET(s->fd, &in);
	__atomic_store_n(&s->tid, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	switch (s->how) {
	case POLL: s->rc = poll(p, 1, LONG), sprintf(s->got, "%s", revents((unsigned)p[0].revents)); break;
	case POLL_TWO: s->rc = poll(p, 2, LONG), sprintf(s->got, "%s", revents((unsigned)p[1].revents)); break;
	case POLL_TIME: s->rc = poll(p, 1, s->ms), sprintf(s->got, "%s", revents((unsigned)p[0].revents)); break;
	case SELECT: s->rc = select(s->fd + 1, &in, NULL, NULL, NULL), sprintf(s->got, "%d", FD_ISSET(s->fd, &in)); break;
	case SELECT_TIME: s->rc = select(s->fd + 1, &in, NULL, NULL, &time), sprintf(s->got, "%d", FD_ISSET(s->fd, &in)); break;
	case EPOLL: s->rc = ep_hear((int)s->rc, &ev, 1, LONG), sprintf(s->got, "%d", (int)ev.data.u64); break;
	}
	if (s->rc < 0)
		s->rc = -errno;
	__atomic_store_n(&s->ended, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* With the number of one that is direct, and of which a new one is made by make. ms: the time of a
 * call that has one. False: it was over before all had been done, so that the call saw less. */
static int in_set(void (*make)(int *client, int *server), int how, int ms)
{
	struct sleeper s;
	int a[2], b[2], ep = ep_new();
	char text[8] = "";

	pair(&a[0], &a[1]);
	make(&b[0], &b[1]);
	ep_set(ep, EPOLL_CTL_ADD, a[1], EPOLLIN, 1);
	s = (struct sleeper){.how = how, .fd = a[1], .rc = ep, .ms = ms};
	long begun = monotonic();
	pthread_create(&s.thread, NULL, waits, &s);
	asleep(&s);
	take_over(DUP2, a[1], b[1]);
	ep_set(ep, EPOLL_CTL_ADD, a[1], EPOLLIN, 2);
	put(b[0], "new", 3);
	arrived(b[1], 3);
	int in_time = how < POLL_TIME || monotonic() - begun < ms;
	if (how < EPOLL)
		put(a[0], "old", 3);
	pthread_join(s.thread, NULL);
	get(a[1], text, 3);
	if (in_time)
		out("%s: %zd %s, then the number has %s", sets[how], s.rc, s.got, text);
	for (int i = 0; i < 2; i++)
		close(a[i]), close(b[i]);
	close(ep);
	return in_time;
}

static void in_sets(void (*make)(int *client, int *server))
{
	for (int how = 0; how < SETS; how++)
		for (int ms = 200; !in_set(make, how, ms) && ms < LONG;)
			ms *= 2; /* the machine is busy */
}

static void reuse_sets(void) { in_sets(pair_cold); }
static void reuse_sets_direct(void) { in_sets(pair); }

/* An epoll instance whose number another one takes while a thread waits in it: the thread is told
 * of the first's members, also if what comes first is too little to be told. */
static void reuse_epoll(void)
{
	struct sleeper s;
	int a[2], b[2], low = 3;

	for (int way = 0; way < WAYS; way++) {
		if (way == SHUT)
			continue;
		int ep = ep_new(), other = ep_new();

		pair(&a[0], &a[1]);
		pair(&b[0], &b[1]);
		setsockopt(a[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
		ep_set(ep, EPOLL_CTL_ADD, a[1], EPOLLIN, 1);
		ep_set(other, EPOLL_CTL_ADD, b[1], EPOLLIN, 2);
		s = (struct sleeper){.how = EPOLL, .fd = a[1], .rc = ep};
		pthread_create(&s.thread, NULL, waits, &s);
		asleep(&s);
		int kept = take_over(way, ep, other);
		put(b[0], "new", 3);
		arrived(b[1], 3);
		put(a[0], "ol", 2);
		nap(20);
		put(a[0], "d", 1);
		pthread_join(s.thread, NULL);
		out("%s: %zd %s", ways[way], s.rc, s.got);
		ep_show(ep, 2, LONG);
		for (int i = 0; i < 2; i++)
			close(a[i]), close(b[i]);
		close(ep);
		close(other);
		if (kept >= 0)
			close(kept);
	}
}

/* Calls that sleep, and go on just when another thread closes the number: what they do then is on
 * its way to the kernel. The parent traces the thread, and holds it there for HOLD ms, or until the
 * number is another connection's. */
enum { HOLD = 200 };
struct held {
	void (*make)(int *client, int *server);
	int how, fd, soon, held, taken;
};

static int is_set(const int *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
static void set(int *p) { __atomic_store_n(p, 1, __ATOMIC_SEQ_CST); }

static void *sleeps_traced(void *sleeper)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		die("ptrace");
	raise(SIGSTOP);
	return sleeps(sleeper);
}

static void goes_on(void *held)
{
	struct held *h = held;
	char *much = malloc(MUCH), *got = malloc(MUCH), text[8] = "";
	struct sleeper s = {.how = h->how, .much = much};
	size_t n = 0;
	int a[2], b[2];

	fill(much, MUCH, 1);
	h->make(&a[0], &a[1]);
	pair_cold(&b[0], &b[1]);
	h->fd = s.fd = a[1];
	if (h->how == WAITALL)
		put(a[0], "ol", 2);
	pthread_create(&s.thread, NULL, sleeps_traced, &s);
	while (!is_set(&s.tid))
		nap(1);
	asleep(&s);
	set(&h->soon);
	if (h->how < RECEIVES)
		put(a[0], h->how == WAITALL ? "d..." : "old", h->how == WAITALL ? 4 : 3);
	while (!is_set(&h->held) && !is_set(&s.ended) && n < MUCH / 2) {
		ssize_t rc = h->how < RECEIVES ? 0 : recv(a[0], got + n, CHUNK, MSG_DONTWAIT);
		n += rc > 0 ? (size_t)rc : 0;
	}
	take_over(CLOSE, a[1], b[1]);
	if (h->how < RECEIVES)
		put(b[0], "new", 3);
	shutdown(b[0], SHUT_WR);
	set(&h->taken);
	if (h->how >= RECEIVES)
		n += get(a[0], got + n, MUCH - n);
	pthread_join(s.thread, NULL);
	if (h->how < RECEIVES)
		get(a[1], text, 3);
	out("%s: %zd %s, then the number has %s", names[h->how], s.rc, h->how < RECEIVES ? s.got : n == MUCH && !memcmp(got, much, n) ? "as sent" : "others", text);
	close(a[1]);
	close(b[1]);
	out("%zu by the number", get(b[0], got, MUCH));
}

static void late(void (*make)(int *client, int *server))
{
	struct held *h = mmap(NULL, sizeof *h, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	static const unsigned calls[] = {SYS_read, SYS_readv, SYS_recvfrom, SYS_recvmsg, SYS_splice, SYS_sendto, SYS_sendmsg, SYS_write, SYS_writev};
	struct __ptrace_syscall_info in;

	for (int how = 0; how < CALLS; how++) {
		unsigned last = how == CONTROL ? SYS_recvmsg : how == SPLICE ? SYS_splice : 0; // after looks that take nothing
		int st, tid, holds = 0;

		*h = (struct held){.make = make, .how = how};
		pid_t pid = start(goes_on, h);
		tid = waitpid(-1, &st, __WALL);
		ptrace(PTRACE_SETOPTIONS, tid, NULL, PTRACE_O_TRACESYSGOOD);
		while (tid != pid && WIFSTOPPED(st)) {
			if (is_set(&h->soon) && ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof in, &in) > 0 && in.op == PTRACE_SYSCALL_INFO_ENTRY && (int)in.entry.args[0] == h->fd)
				for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
					holds |= in.entry.nr == (last ? last : calls[i]);
			if (holds)
				break;
			ptrace(PTRACE_SYSCALL, tid, NULL, NULL);
			waitpid(tid, &st, __WALL);
		}
		if (holds)
			set(&h->held);
		for (long until = monotonic() + HOLD; holds && !is_set(&h->taken) && monotonic() < until;)
			nap(1);
		ptrace(PTRACE_DETACH, tid, NULL, NULL);
		finish(pid);
	}
	munmap(h, sizeof *h);
}

static void reuse_late(void) { late(pair_cold); }
static void reuse_late_direct(void) { late(pair); }

/* There are no high numbers. */
static void reuse_few(void)
{
	struct rlimit few = {400, 400};

	setrlimit(RLIMIT_NOFILE, &few);
	receive(RECV, CLOSE);
	receive(READ, SHUT);
}

const struct probe reuse_probes[] = {
	{"reuse-close", reuse_close, 0},
	{"reuse-dup2", reuse_dup2, 0},
	{"reuse-shutdown", reuse_shutdown, 0},
	{"reuse-kept", reuse_kept, 0},
	{"reuse-sends", reuse_sends, 0},
	{"reuse-several", reuse_several, 0},
	{"reuse-offered", reuse_offered, 0},
	{"reuse-sets", reuse_sets, 0},
	{"reuse-sets-direct", reuse_sets_direct, 0},
	{"reuse-epoll", reuse_epoll, 0},
	{"reuse-few", reuse_few, 0},
	{"reuse-late", reuse_late, 1},
	{"reuse-late-direct", reuse_late_direct, 1},
	{0},
};

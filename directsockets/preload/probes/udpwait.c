// Datagrams: calls that wait for them.
#include "udp.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>

void udp_asleep(const int *tid)
{
	static const long waits[] = {
		SYS_recvfrom, SYS_recvmsg, SYS_ppoll, SYS_epoll_pwait, SYS_epoll_pwait2,
#ifdef SYS_poll
		SYS_poll, SYS_epoll_wait,
#endif
	};
	char path[64], line[64];

	while (!__atomic_load_n(tid, __ATOMIC_ACQUIRE))
		nap(1);
	snprintf(path, sizeof path, "/proc/self/task/%d/syscall", *tid);
	for (long end = monotonic() + LONG; monotonic() < end; nap(1)) {
		int fd = open(path, O_RDONLY);
		ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
		close(fd);
		if (n <= 0)
			return nap(50); // a kernel that does not tell
		line[n] = 0;
		for (size_t i = 0; i < sizeof waits / sizeof *waits; i++)
			if (line[0] != 'r' && atol(line) == waits[i])
				return;
	}
	die("asleep");
}

static sigjmp_buf back;

static void jump(int sig)
{
	(void)sig;
	siglongjmp(back, 1);
}

struct thread {
	pthread_t self;
	int tid;
};

static void *jumps_later(void *p)
{
	struct thread *of = p;

	udp_asleep(&of->tid);
	pthread_kill(of->self, SIGUSR2);
	return NULL;
}

// Jumps out of calls that wait for a datagram: nobody waits any more, so the next ones go through
// memory again.
static void jumped(void)
{
	static struct thread of; // what a jump leaves alone
	static pthread_t t;
	static struct epoll_event e;
	static int c, s, ep;
	static char b[8];

	udp_pair(&c, &s);
	ep = ep_new();
	of = (struct thread){pthread_self(), (int)syscall(SYS_gettid)};
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1));
	signal(SIGUSR2, jump);
	for (volatile int i = 0; i < 3; i++) {
		if (!sigsetjmp(back, 1)) {
			pthread_create(&t, NULL, jumps_later, &of);
			if (i == 0)
				recv(s, b, sizeof b, 0);
			else if (i == 1)
				poll(&(struct pollfd){s, POLLIN, 0}, 1, -1);
			else
				epoll_wait(ep, &e, 1, -1);
			out("not reached");
		}
		pthread_join(t, NULL);
		volatile long last = monotonic() + LONG;
		for (volatile unsigned long before = through(); before == through() && monotonic() < last && !is_cold() && has_library();)
			if (send(c, "w", 1, 0) != 1 || recv(s, b, sizeof b, 0) != 1)
				die("again");
		out("in time %d", monotonic() < last);
		R(send(c, "after", 5, 0));
		show(s, 0);
	}
}

struct told {
	int ep, n, over, tid;
};

// Waits for edges, and reads nothing.
static void *edges(void *p)
{
	struct told *t = p;
	struct epoll_event e;

	__atomic_store_n(&t->tid, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	while (!__atomic_load_n(&t->over, __ATOMIC_ACQUIRE))
		if (epoll_wait(t->ep, &e, 1, 2 * LONG) == 1)
			__atomic_add_fetch(&t->n, 1, __ATOMIC_RELEASE);
	return NULL;
}

// A thread was told of an edge, reads nothing, and waits for the next one. Another one, which waits
// as well, is told of what is there.
static void both(void)
{
	for (int i = 0; i < 2; i++) {
		struct told t = {.ep = ep_new()};
		int c, s, level = ep_new();
		pthread_t th;

		udp_pair(&c, &s);
		R(ep_set(t.ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLET, 1));
		R(ep_set(level, EPOLL_CTL_ADD, s, EPOLLIN, 2));
		pthread_create(&th, NULL, edges, &t);
		nap(30); // until it sleeps: if it does not yet, nothing is in memory
		send(c, "bell", 4, 0);
		send(c, "after", 5, 0);
		for (long last = monotonic() + LONG; !__atomic_load_n(&t.n, __ATOMIC_ACQUIRE) && monotonic() < last;)
			nap(1);
		if (i)
			ep_show(level, 8, LONG);
		else
			R(readable(s, LONG));
		show(s, 0);
		show(s, 0);
		quiet(s);
		__atomic_store_n(&t.over, 1, __ATOMIC_RELEASE);
		R(send(c, "end", 3, 0));
		pthread_join(th, NULL);
		show(s, 0);
		close(level);
		close(t.ep);
	}
}

// How often a thread has slept; -1: the kernel does not tell.
static long sleeps(int tid)
{
	char path[64], line[128];
	long n = -1;

	snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
	FILE *f = fopen(path, "r");
	while (f && fgets(line, sizeof line, f))
		sscanf(line, "voluntary_ctxt_switches: %ld", &n);
	if (f)
		fclose(f);
	return n;
}

// Waits until a thread sleeps, and goes on sleeping: it does not look every now and then.
static void still(int tid)
{
	long before, last = monotonic() + LONG;

	udp_asleep(&tid);
	do {
		before = sleeps(tid);
		nap(200);
	} while (sleeps(tid) != before && monotonic() < last);
	out("it sleeps %d", sleeps(tid) == before);
}

// Waits until there were as many edges.
static void edges_are(const struct told *t, int n)
{
	long last = monotonic() + LONG;

	while (__atomic_load_n(&t->n, __ATOMIC_ACQUIRE) < n && monotonic() < last)
		nap(1);
	out("edges %d", __atomic_load_n(&t->n, __ATOMIC_ACQUIRE) >= n);
}

// A thread was told of edges, reads nothing, and waits for the next one, while a record waits for
// what the kernel has: it sleeps. When another thread has read that, it is told of the record.
static void unread(void)
{
	struct told t = {.ep = ep_new()};
	struct sockaddr_in a;
	socklen_t len = sizeof a;
	int c, s, other = udp_socket(&a), n;
	pthread_t th;

	udp_pair(&c, &s);
	R(ep_set(t.ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLET, 1));
	pthread_create(&th, NULL, edges, &t);
	while (!__atomic_load_n(&t.tid, __ATOMIC_ACQUIRE))
		nap(1);
	still(t.tid);
	R(send(c, "one", 3, 0));
	edges_are(&t, 1);
	still(t.tid);
	unsigned long before = through();
	send(c, "two", 3, 0); // by the kernel: it does not come because of the one before
	send(c, "three", 5, 0);
	int record = through() == before + 1;
	still(t.tid);
	show(s, MSG_DONTWAIT);
	n = __atomic_load_n(&t.n, __ATOMIC_ACQUIRE);
	getsockname(s, (struct sockaddr *)&a, &len);
	R(sendto(other, "other", 5, 0, (struct sockaddr *)&a, len));
	edges_are(&t, n + 1);
	still(t.tid);
	n = __atomic_load_n(&t.n, __ATOMIC_ACQUIRE);
	show(s, MSG_DONTWAIT);
	edges_are(&t, record ? n + 1 : n);
	show(s, MSG_DONTWAIT);
	show(s, MSG_DONTWAIT);
	quiet(s);
	__atomic_store_n(&t.over, 1, __ATOMIC_RELEASE);
	R(send(c, "end", 3, 0));
	pthread_join(th, NULL);
	show(s, 0);
	close(other);
	close(t.ep);
	if (getenv("PROBE_TELL"))
		fprintf(stderr, "record %d\n", record);
}

// One thread's bursts to a receiver that sleeps before each, and takes one datagram for each poll.
struct bursts {
	int c, s, over;
	int wrong, last;
};

static void *polls(void *p)
{
	struct bursts *b = p;
	int i;

	while (readable(b->s, LONG) == 1 && recv(b->s, &i, sizeof i, MSG_DONTWAIT) == sizeof i && i >= 0) {
		b->wrong += i <= b->last;
		b->last = i;
	}
	return NULL;
}

// Sends what the kernel refuses: it is too long, or its memory is not there.
static void *refused_always(void *p)
{
	static char big[65508];
	struct bursts *b = p;

	for (unsigned i = 0; !__atomic_load_n(&b->over, __ATOMIC_ACQUIRE); i++) {
		if (send(b->c, i % 2 ? big : (char *)8, i % 2 ? sizeof big : 8, 0) >= 0)
			die("not refused");
		if (i % 16 == 15)
			nap(1);
	}
	return NULL;
}

// While one thread's sends are refused, what another one sends keeps its order.
static void refusals(void)
{
	struct bursts b = {.last = -1};
	pthread_t receiver, other;
	int n = 0, end = -1;

	udp_pair(&b.c, &b.s);
	pthread_create(&receiver, NULL, polls, &b);
	pthread_create(&other, NULL, refused_always, &b);
	for (long last = monotonic() + 3000; n < fewer(4000) && monotonic() < last; n++) {
		if (send(b.c, &n, sizeof n, 0) != sizeof n)
			die("send");
		if (n % 8 == 7)
			nap(1);
	}
	__atomic_store_n(&b.over, 1, __ATOMIC_RELEASE);
	pthread_join(other, NULL);
	R(send(b.c, &end, sizeof end, 0));
	pthread_join(receiver, NULL);
	out("%d out of order", b.wrong);
}

static volatile int sends_on;

static void jump_out(int sig)
{
	(void)sig;
	if (sends_on)
		siglongjmp(back, 1);
}

static void *interrupts(void *p)
{
	const struct thread *of = p;

	while (!__atomic_load_n(&of->tid, __ATOMIC_ACQUIRE))
		pthread_kill(of->self, SIGUSR2);
	return NULL;
}

// Jumps out of sends: they are over, for dup2, too, and the next ones go through memory again.
static void left(void)
{
	enum { JUMPS = 20 };
	static struct thread of;
	static struct bursts b;
	static pthread_t receiver, other;
	static volatile int n, jumps, end = -1;

	b = (struct bursts){.last = -1};
	udp_pair(&b.c, &b.s);
	of = (struct thread){.self = pthread_self()};
	signal(SIGUSR2, jump_out);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	pthread_create(&receiver, NULL, polls, &b);
	pthread_create(&other, NULL, interrupts, &of);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	for (volatile long last = monotonic() + LONG; jumps < JUMPS && monotonic() < last; n++) {
		if (sigsetjmp(back, 1)) {
			sends_on = 0;
			jumps++;
			continue;
		}
		sends_on = 1;
		for (int i = 0; i < 8; i++)
			send(b.c, (const void *)&n, sizeof n, 0), n++;
		sends_on = 0;
		nap(1);
	}
	out("jumps %d", jumps);
	__atomic_store_n(&of.tid, 1, __ATOMIC_RELEASE);
	pthread_join(other, NULL);
	volatile long last = monotonic() + LONG;
	for (volatile unsigned long before = through(); through() < before + 100 && monotonic() < last && !is_cold() && has_library();) {
		for (int i = 0; i < 8; i++)
			send(b.c, (const void *)&n, sizeof n, 0), n++;
		nap(1);
	}
	out("in time %d", monotonic() < last);
	long began = monotonic();
	int other_fd = dup(b.c), null = open("/dev/null", O_RDWR);
	R(dup2(null, b.c) == b.c);
	out("at once %d", monotonic() - began < 900);
	R(send(other_fd, (const void *)&end, sizeof end, 0));
	pthread_join(receiver, NULL);
	out("%d out of order", b.wrong);
	close(other_fd), close(null), close(b.c), close(b.s);
}

const struct probe udpwait_probes[] = {
	{"udp-jumped", jumped, 0},
	{"udp-both", both, 0},
	{"udp-unread", unread, 0},
	{"udp-refusals", refusals, 0},
	{"udp-left", left, 0},
	{NULL, NULL, 0},
};

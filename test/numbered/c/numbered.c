/* numbered.c: package numbered's Command for plain sockets: threads that block, poll or use epoll.
 *
 *   numbered serve HOST:PORT
 *   numbered dial HOST:PORT CONNS MS PAUSE SEED FIRST
 *
 * command.go says what they do and print; plan.go has the plan of a connection, and checker.go what
 * becomes of a line "wrong". Connections with a number that 3 divides block, those one above it
 * wait in poll, the others in epoll. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "numbered.h"
#include "random.h"

enum { HALF, CLIENT, SERVER, UP, DOWN, ENDS };
enum { MAX_BYTES = 4 << 20, MAX_SLOW_BYTES = 16 << 10, MAX_CALL = 1 << 20, MAX_SLOW_CALL = 4 << 10, GENERATIONS = 256, STALL = 120, SLOW = 60, ABSENT = 120 };
enum { HEAD_CALLS = 4, HEAD_CALL = 200 };

struct plan {
	char magic[4];
	uint32_t conn;
	uint64_t up, down;
	uint16_t pause;
	uint8_t end, slow;
	uint16_t head, zero;
};

_Static_assert(sizeof(struct plan) == 32, "as plan.go has it");

/* One end of a connection. */
struct end {
	int fd, server;
	struct plan plan;
	struct checker in;
	int sent;              /* the sender has sent everything */
	volatile int progress; /* since the watchdog looked */
	int idle;              /* how often it saw none */
	int stalled;
	int told;              /* what is wrong has been told; guarded by lock */
	struct end *next;      /* of all ends that are open; guarded by lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static struct end *ends;
static int conns, wrong;
static int open_conns; /* of a server; guarded by lock */
static int patient; /* seconds, as end.go's PatientEnv says; 0: it is not set */
static int noted = SLOW; /* seconds without progress, after which a connection is noted: end.go's NoteEnv */
static unsigned long long bytes;
static struct sockaddr_in where;

/* Prints a line. */
static void say(const char *format, ...)
{
	va_list args;
	char line[512];

	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	puts(line);
	fflush(stdout);
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

struct pace {
	uint64_t rnd;
	size_t most;
	unsigned pause; /* milliseconds */
	unsigned head;  /* the same of the first calls of a sender */
	int heads;      /* those that are left */
};

static struct pace pace_of(const struct end *e, int server_bit, int client_bit)
{
	int bit = e->server ? server_bit : client_bit, slow = e->plan.slow >> bit & 1;

	return (struct pace){(e->plan.conn + 1) * 0x9e3779b97f4a7c15u + (unsigned)bit, slow ? MAX_SLOW_CALL : MAX_CALL, slow ? e->plan.pause : 0,
			     e->plan.head, e->plan.head > 0 && client_bit == 0 ? HEAD_CALLS : 0};
}

/* The size of the next call. */
static size_t call_size(struct pace *p) { return log_size(&p->rnd, p->heads > 0 ? HEAD_CALL : p->most); }

static void rest(struct pace *p)
{
	unsigned ms = p->pause;

	if (p->heads > 0) {
		p->heads--;
		ms = p->head;
	}
	if (ms > 0)
		usleep((useconds_t)(random64(&p->rnd) >> 20) % (2000 * ms));
}

/* Tells what went wrong with a call, and ends the connection. */
static int broken(struct end *e, int down, uint64_t at, const char *what)
{
	int error = errno;

	pthread_mutex_lock(&lock);
	if (!e->told++)
		say("fault connection %u %s, byte %llu: %s: %s", e->plan.conn, down ? "down" : "up", (unsigned long long)at, what,
		    e->stalled ? "no progress" : strerror(error));
	pthread_mutex_unlock(&lock);
	shutdown(e->fd, SHUT_RDWR);
	return -1;
}

/* Waits until a call may go on: none, poll or epoll, by the connection's number. */
static int await(struct end *e, int epoll, short events)
{
	if (e->plan.conn % 3 == 1)
		return poll(&(struct pollfd){e->fd, events, 0}, 1, -1);
	struct epoll_event got;
	return epoll_wait(epoll, &got, 1, -1);
}

static int waiter(struct end *e, uint32_t events)
{
	if (e->plan.conn % 3 != 2)
		return -1;
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev = {.events = events};
	if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, e->fd, &ev) < 0)
		die("epoll");
	return epoll;
}

static ssize_t put(int fd, uint8_t *b, size_t n, unsigned how)
{
	struct iovec v[2] = {{b, n / 3}, {b + n / 3, n - n / 3}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};

	switch (how % 4) {
	case 0:
		return write(fd, b, n);
	case 1:
		return writev(fd, v, 2);
	case 2:
		return sendmsg(fd, &m, 0);
	}
	return send(fd, b, n, 0);
}

static ssize_t take(int fd, uint8_t *b, size_t n, unsigned how)
{
	struct iovec v[2] = {{b, n / 3}, {b + n / 3, n - n / 3}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};

	switch (how % 4) {
	case 0:
		return read(fd, b, n);
	case 1:
		return readv(fd, v, 2);
	case 2:
		return recvmsg(fd, &m, 0);
	}
	return recv(fd, b, n, 0);
}

/* Writes n bytes in one call, or as many as it takes. */
static int put_all(struct end *e, int epoll, uint8_t *b, size_t n, unsigned how)
{
	while (n > 0) {
		ssize_t k = put(e->fd, b, n, how);
		if (k < 0 && errno == EAGAIN)
			k = await(e, epoll, POLLOUT) < 0 ? -1 : 0;
		if (k < 0 && errno != EINTR)
			return -1;
		if (k > 0) {
			b += k;
			n -= (size_t)k;
			e->progress = 1;
		}
	}
	return 0;
}

static void *sender(void *arg)
{
	struct end *e = arg;
	struct pace p = pace_of(e, 2, 0);
	struct numbered s = {e->plan.conn, e->server};
	uint64_t n = e->server ? e->plan.down : e->plan.up, at = 0;
	uint8_t *buf = malloc(p.most);
	int epoll = waiter(e, EPOLLOUT);

	if (!e->server && put_all(e, epoll, (uint8_t *)&e->plan, sizeof e->plan, 3) < 0) {
		broken(e, 0, 0, "write");
		goto out;
	}
	while (at < n) {
		size_t k = call_size(&p);
		if (k > n - at)
			k = n - at;
		numbered_fill(s, buf, k, at);
		if (put_all(e, epoll, buf, k, (unsigned)(random64(&p.rnd) >> 30)) < 0) {
			broken(e, e->server, at, "write");
			goto out;
		}
		at += k;
		rest(&p);
	}
	if (e->plan.end == HALF && shutdown(e->fd, SHUT_WR) < 0)
		broken(e, e->server, at, "half-close");
	else
		e->sent = 1;
out:
	free(buf);
	if (epoll >= 0)
		close(epoll);
	return NULL;
}

static int tell(struct end *e)
{
	pthread_mutex_lock(&lock);
	if (!e->told++)
		checker_tell(&e->in);
	pthread_mutex_unlock(&lock);
	shutdown(e->fd, SHUT_RDWR);
	return -1;
}

/* Reads at most until all has come, or, to the end, the end of file. */
static int receive(struct end *e, int epoll, struct pace *p, uint8_t *buf, int to_end)
{
	while (to_end || e->in.right < e->in.len) {
		size_t n = call_size(p);
		if (!to_end && n > e->in.len)
			n = e->in.len;
		ssize_t k = take(e->fd, buf, n, (unsigned)(random64(&p->rnd) >> 30));
		if (k < 0 && errno == EAGAIN) {
			if (await(e, epoll, POLLIN) >= 0)
				continue;
		}
		if (k < 0 && errno == EINTR)
			continue;
		if ((k < 0 || (k == 0 && e->stalled)) && e->in.nwrong == 0)
			return broken(e, !e->server, e->in.right, "read");
		if (k <= 0)
			return e->in.nwrong > 0 || e->in.right < e->in.len ? tell(e) : 0;
		if (checker_check(&e->in, buf, (size_t)k))
			return tell(e);
		e->progress = 1;
		if (!to_end)
			rest(p);
	}
	return 0;
}

/* Carries this end's part of the plan out, and closes. */
static void run(struct end *e)
{
	pthread_t thread;
	pthread_attr_t small;
	int epoll, bad;

	e->in = (struct checker){.s = {e->plan.conn, !e->server}, .len = e->server ? e->plan.up : e->plan.down};
	struct pace p = pace_of(e, 3, 1);
	uint8_t *buf = malloc(p.most);
	if (e->plan.conn % 3 != 0)
		fcntl(e->fd, F_SETFL, fcntl(e->fd, F_GETFL) | O_NONBLOCK);
	epoll = waiter(e, EPOLLIN);
	pthread_mutex_lock(&lock);
	e->next = ends;
	ends = e;
	pthread_mutex_unlock(&lock);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 << 10);
	if (pthread_create(&thread, &small, sender, e) != 0)
		die("pthread_create");
	bad = receive(e, epoll, &p, buf, 0) < 0;
	pthread_join(thread, NULL);
	bad |= !e->sent;
	int first = e->server ? e->plan.end == SERVER || e->plan.end == DOWN : e->plan.end == CLIENT || e->plan.end == UP;
	if (!bad && !first)
		bad = receive(e, epoll, &p, buf, 1) < 0;
	pthread_mutex_lock(&lock);
	for (struct end **at = &ends; *at; at = &(*at)->next)
		if (*at == e) {
			*at = e->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	if (epoll >= 0)
		close(epoll);
	close(e->fd);
	pthread_mutex_lock(&lock);
	conns++;
	bytes += e->in.right;
	wrong += bad;
	pthread_cond_broadcast(&more);
	pthread_mutex_unlock(&lock);
	free(buf);
}

/* Says what is known here of a connection that makes no progress. Its port is the client's. */
static void note(const struct end *e)
{
	struct tcp_info t = {0};
	struct sockaddr_in client = {0};
	socklen_t n = sizeof t, len = sizeof client;

	getsockopt(e->fd, IPPROTO_TCP, TCP_INFO, &t, &n);
	if (e->server)
		getpeername(e->fd, (struct sockaddr *)&client, &len);
	else
		getsockname(e->fd, (struct sockaddr *)&client, &len);
	say("note connection %u, %s, port %u: no progress for %d s; received %llu of %llu, sent %s; TCP state %u, backoff %u, "
	    "unacknowledged %u, last sent %u ms ago, last received %u ms ago",
	    e->plan.conn, e->server ? "server" : "client", ntohs(client.sin_port), e->idle, (unsigned long long)e->in.right,
	    (unsigned long long)e->in.len, e->sent ? "all" : "not all", t.tcpi_state, t.tcpi_backoff, t.tcpi_unacked, t.tcpi_last_data_sent,
	    t.tcpi_last_data_recv);
}

/* Ends connections that hang. */
static void *watchdog(void *arg)
{
	for (;; sleep(1)) {
		pthread_mutex_lock(&lock);
		for (struct end *e = ends; e; e = e->next) {
			e->idle = e->progress ? 0 : e->idle + 1;
			e->progress = 0;
			if (e->idle == noted)
				note(e);
			if (e->idle == (patient ? patient : STALL)) {
				e->stalled = 1;
				shutdown(e->fd, SHUT_RDWR);
			}
		}
		pthread_mutex_unlock(&lock);
	}
	return arg;
}

/* Prints the sum once so many connections have ended, or none is left that may: command.go's
 * printSum says why. */
static void sum(int least)
{
	struct timespec limit;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += ABSENT;
	pthread_mutex_lock(&lock);
	while (conns < least) {
		int late = pthread_cond_timedwait(&more, &lock, &limit) == ETIMEDOUT;
		if (late && open_conns == 0) {
			wrong += least - conns;
			say("fault %d connections have never come", least - conns);
			break;
		}
		if (late)
			limit.tv_sec++;
	}
	say("sum %d %llu %d", conns, bytes, wrong);
	conns = wrong = 0;
	bytes = 0;
	pthread_mutex_unlock(&lock);
}

/* ---- server ---- */

static void count_open(int n)
{
	pthread_mutex_lock(&lock);
	open_conns += n;
	pthread_mutex_unlock(&lock);
}

static void *serve_one(void *arg)
{
	struct end e = {.fd = (int)(intptr_t)arg, .server = 1};
	struct timeval stall = {patient ? patient : STALL, 0}, never = {0, 0};
	size_t got = 0;

	/* Nobody else watches it yet, and its client may have given up without a word. */
	setsockopt(e.fd, SOL_SOCKET, SO_RCVTIMEO, &stall, sizeof stall);
	while (got < sizeof e.plan) {
		ssize_t k = recv(e.fd, (char *)&e.plan + got, sizeof e.plan - got, 0);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			break;
		got += (size_t)k;
	}
	setsockopt(e.fd, SOL_SOCKET, SO_RCVTIMEO, &never, sizeof never);
	if (got == sizeof e.plan && memcmp(e.plan.magic, "numb", 4) == 0 && e.plan.end < ENDS && e.plan.conn < 1 << 20 && e.plan.zero == 0) {
		run(&e);
		count_open(-1);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	open_conns--;
	conns++;
	wrong++;
	say("fault a connection does not begin with a plan, but with %zu bytes, word %016llx", got, *(unsigned long long *)&e.plan);
	pthread_cond_broadcast(&more);
	pthread_mutex_unlock(&lock);
	close(e.fd);
	return NULL;
}

static void *serve(void *arg)
{
	int l = *(int *)arg;
	pthread_t thread;
	pthread_attr_t small;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 << 10);
	pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
	for (;;) {
		int fd = accept(l, NULL, NULL);
		if (fd < 0 && errno != EINTR && errno != ECONNABORTED)
			die("accept");
		if (fd >= 0)
			count_open(1);
		if (fd >= 0 && pthread_create(&thread, &small, serve_one, (void *)(intptr_t)fd) != 0)
			die("pthread_create");
	}
	return NULL;
}

/* ---- client ---- */

static long long deadline;
static unsigned pause_ms;
static uint64_t seed;
static uint32_t first;
static int nconns;

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static struct plan new_plan(uint32_t conn, uint64_t *rnd)
{
	struct plan p = {.magic = "numb", .conn = conn, .pause = (uint16_t)pause_ms,
			 .head = (uint16_t)(pause_ms > 0 ? 2 + nconns / 8 : 0), .end = (uint8_t)((random64(rnd) >> 40) % ENDS)};

	if (pause_ms > 0 && random64(rnd) >> 63)
		p.slow = (uint8_t)(1 + (random64(rnd) >> 40) % 15);
	p.up = log_size(rnd, p.slow & 9 ? MAX_SLOW_BYTES : MAX_BYTES);
	p.down = log_size(rnd, p.slow & 6 ? MAX_SLOW_BYTES : MAX_BYTES);
	if (p.end == UP)
		p.down = 0;
	if (p.end == DOWN)
		p.up = 0;
	return p;
}

/* A connected socket, or -1. */
static int reach(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	while (fd >= 0 && connect(fd, (struct sockaddr *)&where, sizeof where) < 0) {
		int error = errno;
		close(fd);
		errno = error;
		if (!patient || error != EHOSTUNREACH)
			return -1;
		usleep(100000);
		fd = socket(AF_INET, SOCK_STREAM, 0);
	}
	return fd;
}

static void *dial(void *arg)
{
	uint32_t i = (uint32_t)(intptr_t)arg;
	uint64_t rnd = (seed + 1) * 0x9e3779b97f4a7c15u + i;

	for (uint32_t g = 0; g == 0 || now_ms() < deadline; g++) {
		struct end e = {.plan = new_plan(first + i * GENERATIONS + g % GENERATIONS, &rnd)};
		e.fd = reach();
		if (e.fd < 0) {
			pthread_mutex_lock(&lock);
			wrong++;
			say("fault connection %u: connect: %s", e.plan.conn, strerror(errno));
			pthread_mutex_unlock(&lock);
			return NULL;
		}
		run(&e);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	char host[64];
	int port;
	pthread_t thread;

	const char *seconds = getenv("NUMBERED_PATIENT");
	patient = seconds ? atoi(seconds) : 0;
	if ((seconds = getenv("NUMBERED_NOTE")))
		noted = atoi(seconds);
	if (argc < 3 || sscanf(argv[2], "%63[^:]:%d", host, &port) != 2 || !inet_aton(host, &where.sin_addr) ||
	    !((argc == 3 && !strcmp(argv[1], "serve")) || (argc == 8 && !strcmp(argv[1], "dial")))) {
		fprintf(stderr, "numbered: serve HOST:PORT, or dial HOST:PORT CONNS MS PAUSE SEED FIRST\n");
		return 2;
	}
	where.sin_family = AF_INET;
	where.sin_port = htons((uint16_t)port);
	signal(SIGPIPE, SIG_IGN);
	pthread_create(&thread, NULL, watchdog, NULL);
	if (argc == 3) {
		int one = 1, l = socket(AF_INET, SOCK_STREAM, 0);
		char line[32];
		setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		if (l < 0 || bind(l, (struct sockaddr *)&where, sizeof where) < 0 || listen(l, 1024) < 0)
			die("listen");
		say("listening");
		pthread_create(&thread, NULL, serve, &l);
		while (fgets(line, sizeof line, stdin))
			sum(atoi(line));
		return 0;
	}
	int n = nconns = atoi(argv[3]);
	deadline = now_ms() + atoll(argv[4]);
	pause_ms = (unsigned)atoi(argv[5]);
	seed = strtoull(argv[6], NULL, 10);
	first = (uint32_t)strtoul(argv[7], NULL, 10);
	pthread_t all[n > 0 ? n : 1];
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 << 10);
	say("dialing");
	for (int i = 0; i < n; i++)
		if (pthread_create(&all[i], &small, dial, (void *)(intptr_t)i) != 0)
			die("pthread_create");
	for (int i = 0; i < n; i++)
		pthread_join(all[i], NULL);
	sum(0);
	return 0;
}

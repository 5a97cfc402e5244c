#include "probe.h"

/* Probes of how connections and calls end: resets, signals, time, threads. */

static char buf[1 << 20];

enum { ROUNDS = 300 };

static void linger(void)
{
	int c, s;
	struct linger l = {1, 0};
	pair(&c, &s);
	R(setsockopt(c, SOL_SOCKET, SO_LINGER, &l, sizeof l));
	R(close(c));
	ended(s);
	struct pollfd p = {s, POLLIN | POLLOUT | POLLRDHUP, 0};
	R(poll(&p, 1, LONG));
	out("%s", revents((unsigned)p.revents));
	R(read(s, buf, 10));
	R(read(s, buf, 10));
	signal(SIGPIPE, SIG_IGN);
	R(write(s, "x", 1));
}

static void close_unread(void)
{
	int c, s;
	pair(&c, &s);
	put(c, "never read", 10);
	arrived(s, 10);
	R(close(s));
	nap(20);
	R(read(c, buf, 10));
	R(read(c, buf, 10));
}

/* As close_unread, of an end that has gone back to TCP, to which the peer is still to write what is
 * unread. */
static void close_unread_back(void)
{
	signal(SIGIO, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	for (int how = 0; how < 3; how++) {
		int c, s;
		pair(&c, &s);
		put(c, "never read", 10);
		arrived(s, 10);
		if (how == 0)
			R(fcntl(s, F_SETFL, O_ASYNC | fcntl(s, F_GETFL)));
		else if (how == 1)
			R(system("true"));
		else
			R(send(s, "!", 1, MSG_OOB));
		R(close(s));
		nap(20);
		struct pollfd p = {c, POLLIN | POLLOUT | POLLRDHUP, 0};
		R(poll(&p, 1, LONG));
		cut(c);
		R(poll(&p, 1, LONG));
		out("%s", revents((unsigned)p.revents));
		R(read(c, buf, 10));
		R(read(c, buf, 10));
		R(write(c, "x", 1));
		close(c);
	}
}

static void so_error(void)
{
	int c, s, err = -1;
	socklen_t len = sizeof err;
	struct linger l = {1, 0};
	pair(&c, &s);
	setsockopt(c, SOL_SOCKET, SO_LINGER, &l, sizeof l);
	close(c);
	ended(s);
	R(getsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len));
	out("%s", errname(err));
	R(read(s, buf, 1));
}

static volatile int pipes;
static void on_pipe(int sig)
{
	(void)sig;
	pipes++;
}

static void sigpipe(void)
{
	int c, s;
	pair(&c, &s);
	signal(SIGPIPE, on_pipe);
	shutdown(c, SHUT_WR);
	R(write(c, "x", 1));
	out("%d", pipes);
	R(send(c, "x", 1, MSG_NOSIGNAL));
	out("%d", pipes);
	close(s);
	nap(20);
	R(read(c, buf, 1));
	pair(&c, &s);
	close(s);
	ended(c);
	R(write(c, "x", 1));
	cut(c);
	R(write(c, "x", 1));
	out("%d", pipes);
	R(send(c, "x", 1, MSG_NOSIGNAL));
	out("%d", pipes);
}

static void shutdown_read(void)
{
	int c, s;
	pair(&c, &s);
	R(shutdown(s, SHUT_RD));
	R(read(s, buf, 10));
	R(write(s, "still", 5));
	R(read(c, buf, 10));
	R(shutdown(s, SHUT_RDWR));
	R(read(c, buf, 10));
	R(shutdown(s, SHUT_RDWR) == 0 || errno == ENOTCONN);
	R(shutdown(s, 7));
}

/* What c sends after s has shut both directions down is answered with a reset. */
static void reset_now(int c, int s)
{
	R(write(c, "x", 1));
	cut(c);
	struct pollfd p = {c, POLLIN | POLLOUT | POLLRDHUP, 0};
	R(poll(&p, 1, LONG));
	out("%s", revents((unsigned)p.revents));
	R(write(c, "x", 1));
	R(read(c, buf, 10));
	R(read(s, buf, 10));
	R(close(s));
	R(close(c));
}

static void shutdown_both(void)
{
	int c, s;
	signal(SIGPIPE, SIG_IGN);
	pair(&c, &s);
	R(shutdown(s, SHUT_RDWR));
	R(read(c, buf, 10));
	reset_now(c, s);
	pair(&c, &s);
	R(shutdown(s, SHUT_RD));
	R(recv(s, buf, 10, MSG_DONTWAIT));
	put(c, "queued", 6);
	arrived(s, 6);
	R(shutdown(s, SHUT_WR));
	R(recv(s, buf, 4, MSG_DONTWAIT));
	R(read(s, buf, 10));
	R(recv(s, buf, 10, MSG_DONTWAIT));
	reset_now(c, s);
	pair(&c, &s);
	R(shutdown(c, SHUT_WR));
	R(read(s, buf, 10));
	R(shutdown(s, SHUT_RDWR));
	R(read(c, buf, 10));
	R(close(c));
	R(read(s, buf, 10));
	pair(&c, &s);
	R(shutdown(s, SHUT_RDWR));
	R(shutdown(c, SHUT_WR));
	R(read(c, buf, 10));
}

static void *shut_later(void *p)
{
	nap(50);
	shutdown(*(int *)p, SHUT_RDWR);
	return NULL;
}

static void shutdown_wakes(void)
{
	int c, s;
	pthread_t t;
	pair(&c, &s);
	pthread_create(&t, NULL, shut_later, &s);
	R(read(s, buf, 10));
	pthread_join(t, NULL);
	R(read(c, buf, 10));
}

/* Fills what is on its way from fd, to the last byte. */
static void fill_up(int fd)
{
	for (int still = 0; still < 5; still++) {
		while (send(fd, buf, 65536, MSG_DONTWAIT) > 0)
			still = 0;
		while (send(fd, buf, 1, MSG_DONTWAIT) > 0)
			still = 0;
		nap(20);
	}
}

static void *end_later(void *p)
{
	nap(50);
	shutdown(*(int *)p, SHUT_WR);
	return NULL;
}

/* A call waits for room: send, poll or a set, while another thread ends the direction; send of a
 * child, while its parent does. */
enum { BY_THREAD, BY_CHILD, BY_POLL, BY_LEVEL, BY_EDGE };

static void sends(void *p)
{
	long begun = monotonic();
	ssize_t n = send(*(int *)p, buf, sizeof buf, MSG_NOSIGNAL);

	/* TCP may have taken some: its kernel tries again and again. */
	out("%s", n < (ssize_t)sizeof buf && monotonic() - begun < 3000 ? "ended" : "late");
}

static void waits_for_room(int how)
{
	struct timeval most = {5, 0};
	int c, s, ep = ep_new();
	pthread_t t;
	pair(&c, &s);
	if (how >= BY_LEVEL) {
		ep_set(ep, EPOLL_CTL_ADD, c, EPOLLOUT | (how == BY_EDGE ? EPOLLET : 0), 1);
		ep_show(ep, 4, LONG);
	}
	setsockopt(c, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
	fill_up(c);
	if (how == BY_CHILD) {
		pid_t child = start(sends, &c);
		end_later(&c);
		finish(child);
		return;
	}
	struct pollfd p = {c, POLLOUT, 0};
	pthread_create(&t, NULL, end_later, &c);
	if (how == BY_THREAD)
		sends(&c);
	else if (how == BY_POLL)
		R(poll(&p, 1, 5000));
	else
		ep_show(ep, 4, 5000);
	out("%s", revents((unsigned)p.revents));
	pthread_join(t, NULL);
	close(c);
	close(s);
}

static void shutdown_wakes_writers(void)
{
	for (int how = BY_THREAD; how <= BY_EDGE; how++)
		waits_for_room(how);
}

static void reuse(void)
{
	struct sockaddr_in a, me;
	socklen_t len = sizeof me;
	int l = listener(&a), one = 1;
	struct linger lg = {1, 0};
	memset(&me, 0, sizeof me);
	for (int i = 0; i < 3; i++) {
		int c = socket(AF_INET, SOCK_STREAM, 0);
		setsockopt(c, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		me.sin_family = AF_INET;
		me.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		if (bind(c, (struct sockaddr *)&me, sizeof me) || connect(c, (struct sockaddr *)&a, sizeof a))
			die("connect");
		getsockname(c, (struct sockaddr *)&me, &len);
		int s = accept(l, NULL, NULL);
		nap(20);
		warm(c, s);
		char m[2] = {(char)('0' + i), 0};
		put(c, m, 1);
		R(read(s, buf, 10));
		out("%c", buf[0]);
		setsockopt(c, SOL_SOCKET, SO_LINGER, &lg, sizeof lg);
		close(c);
		nap(10);
		R(read(s, buf, 10));
		close(s);
	}
}

/* Writes until that fails. */
static void write_on(int c)
{
	ssize_t rc;

	while ((rc = write(c, buf, sizeof buf)) > 0)
		;
	out("%zd %s", rc, errname(errno));
}

static void timeouts(void)
{
	int c, s;
	struct timeval t = {0, 50000};
	pair(&c, &s);
	R(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
	R(read(s, buf, 10));
	put(c, "x", 1);
	arrived(s, 1);
	R(read(s, buf, 10));
	R(setsockopt(c, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t));
	write_on(c);
	put(s, "back", 4);
	R(recv(s, buf, 10, MSG_PEEK));
	R(read(c, buf, 10));
}

/* Fewer than 0 seconds: no call waits. */
static void timeouts_negative(void)
{
	int c, s;
	struct timeval t = {-1, 0};
	pair(&c, &s);
	R(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
	R(read(s, buf, 10));
	R(recv(s, buf, 10, MSG_WAITALL));
	put(c, "abc", 3);
	arrived(s, 3);
	R(read(s, buf, 10));
	R(setsockopt(c, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t));
	write_on(c);
	t.tv_usec = -1;
	R(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
	t = (struct timeval){1, 0};
	R(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
	R(read(s, buf, 10));
}

static volatile int alarms;
static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
}

/* Signals repeatedly: the first may come before the call. */
static int poked;
static void *poke(void *p)
{
	while (!__atomic_load_n(&poked, __ATOMIC_ACQUIRE)) {
		nap(50);
		pthread_kill(*(pthread_t *)p, SIGUSR1);
	}
	return NULL;
}

static int late_fd;
static void *poke_and_write(void *p)
{
	for (int i = 0; i < 3; i++) {
		nap(50);
		pthread_kill(*(pthread_t *)p, SIGUSR1);
	}
	put(late_fd, "data", 4);
	return NULL;
}

/* A call of this thread, which poke interrupts. */
#define POKED(call) \
	do { \
		pthread_t me = pthread_self(), t; \
		poked = 0; \
		pthread_create(&t, NULL, poke, &me); \
		long rc = call; \
		int err = errno; \
		__atomic_store_n(&poked, 1, __ATOMIC_RELEASE); \
		pthread_join(t, NULL); \
		errno = err; \
		result(#call, rc); \
	} while (0)

static void eintr(void)
{
	int c, s;
	pthread_t me = pthread_self(), t;
	struct sigaction sa = {.sa_handler = on_alarm};
	pair(&c, &s);
	sigaction(SIGUSR1, &sa, NULL);
	POKED(read(s, buf, 10));
	struct pollfd p = {s, POLLIN, 0};
	POKED(poll(&p, 1, LONG));
	sa.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &sa, NULL);
	late_fd = c;
	pthread_create(&t, NULL, poke_and_write, &me);
	R(read(s, buf, 10));
	pthread_join(t, NULL);
	POKED(poll(&p, 1, LONG)); /* never restarted */
	out("%d", alarms >= 6);
}

#include <setjmp.h>
static sigjmp_buf jump;
static void on_jump(int sig)
{
	(void)sig;
	siglongjmp(jump, 1);
}

static void *jump_later(void *p)
{
	nap(50);
	pthread_kill(*(pthread_t *)p, SIGUSR2);
	return NULL;
}

static void longjmps(void)
{
	int c, s;
	static pthread_t t; /* what a jump leaves alone */
	pthread_t me = pthread_self();
	pair(&c, &s);
	signal(SIGUSR2, on_jump);
	for (volatile int i = 0; i < 3; i++) {
		if (sigsetjmp(jump, 1) == 0) {
			pthread_create(&t, NULL, jump_later, &me);
			struct pollfd p = {s, POLLIN, 0};
			if (i == 0)
				read(s, buf, 10);
			else if (i == 1)
				poll(&p, 1, -1);
			else {
				fd_set in;
				FD_ZERO(&in);
				FD_SET(s, &in);
				select(s + 1, &in, NULL, NULL, NULL);
			}
			out("not reached");
		}
		pthread_join(t, NULL);
		put(c, "x", 1);
		R(read(s, buf, 10));
	}
	R(close(s));
	R(read(c, buf, 10)); /* the end comes although the calls never ended */
}

static void *blocked(void *p)
{
	char b[10];
	read(*(int *)p, b, sizeof b);
	return NULL;
}

static void cancel(void)
{
	int c, s;
	pthread_t t;
	void *ret;
	pair(&c, &s);
	pthread_create(&t, NULL, blocked, &s);
	nap(50);
	R(pthread_cancel(t));
	R(pthread_join(t, &ret));
	out("cancelled %d", ret == PTHREAD_CANCELED);
	put(c, "x", 1);
	R(read(s, buf, 10));
	R(close(s));
	R(read(c, buf, 10));
}

static void *writer(void *p)
{
	int *a = p;
	char line[64];
	memset(line, 'a' + a[1], 64);
	for (int i = 0; i < 500; i++)
		put(a[0], line, 64);
	return NULL;
}

static void threads_share(void)
{
	int c, s, bad = 0, counts[4] = {0};
	pthread_t t[4];
	int arg[4][2];
	char line[64];
	pair(&c, &s);
	for (int i = 0; i < 4; i++) {
		arg[i][0] = c;
		arg[i][1] = i;
		pthread_create(&t[i], NULL, writer, arg[i]);
	}
	for (int n = 0; n < 2000; n++) {
		if (get(s, line, 64) != 64)
			die("short");
		for (int i = 1; i < 64; i++)
			bad += line[i] != line[0];
		counts[(line[0] - 'a') & 3]++;
	}
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	out("%d %d %d %d bad %d", counts[0], counts[1], counts[2], counts[3], bad);
}

/* One thread reads, another writes, from the beginning: full duplex. */
static void *duplex_reader(void *p)
{
	size_t n = 0;
	char b[4096];
	while (n < 100000) {
		ssize_t rc = read(*(int *)p, b, sizeof b);
		if (rc <= 0)
			break;
		n += (size_t)rc;
	}
	return (void *)n;
}

static void duplex(void)
{
	int c, s;
	pthread_t tc, ts;
	void *a, *b;
	pair(&c, &s);
	pthread_create(&tc, NULL, duplex_reader, &c);
	pthread_create(&ts, NULL, duplex_reader, &s);
	for (int i = 0; i < 1000; i++) {
		put(c, buf, 100);
		put(s, buf, 100);
		if (i % 100 == 0)
			nap(5);
	}
	pthread_join(tc, &a);
	pthread_join(ts, &b);
	out("%zu %zu", (size_t)a, (size_t)b);
}

/* One direction ends before the connection can have become direct; the other one becomes it, and
 * ends. early: the end of the first is read at once. */
static void half_closed(int from, int to, int early)
{
	struct pollfd p = {from, POLLIN | POLLOUT | POLLRDHUP, 0};
	long limit = LONG / 10, total = 0;
	uint8_t sum = 0, want = 0;
	ssize_t n;

	R(shutdown(to, SHUT_WR));
	ended(from);
	if (early)
		R(read(from, buf, 10));
	for (int i = 0; i < 100 || (has_library() && !(direct(from) & 1) && i < limit); i++) {
		for (int k = 0; k < 3000; k++)
			want += (uint8_t)(buf[k] = (char)(i * 31 + k));
		total += write(from, buf, 3000);
		for (int left = 3000; left > 0 && (n = read(to, buf, (size_t)left)) > 0; left -= (int)n, total -= n)
			for (ssize_t k = 0; k < n; k++)
				sum += (uint8_t)buf[k];
		if (i >= 100)
			nap(1);
	}
	out("%ld bytes are missing, the sums differ by %d", total, sum - want);
	R(poll(&p, 1, LONG));
	out("%s", revents((unsigned)p.revents));
	R(read(from, buf, 10));
	p.fd = to;
	R(poll(&p, 1, 0));
	out("%s", revents((unsigned)p.revents));
	R(send(to, "x", 1, MSG_NOSIGNAL));
	R(write(from, "last", 4));
	R(shutdown(from, SHUT_WR));
	R(read(to, buf, 10));
	R(read(to, buf, 10));
}

static void half_closed_all(void)
{
	int c, s;

	for (int i = 0; i < 4; i++) {
		pair_cold(&c, &s);
		half_closed(i & 1 ? c : s, i & 1 ? s : c, i & 2);
		close(c);
		close(s);
	}
}

const struct probe end_probes[] = {
	{"linger-0", linger, 0},
	{"close-unread", close_unread, 0},
	{"close-unread-back", close_unread_back, 0},
	{"so-error", so_error, 0},
	{"sigpipe", sigpipe, 0},
	{"shutdown-read", shutdown_read, 0},
	{"shutdown-both", shutdown_both, 0},
	{"shutdown-wakes", shutdown_wakes, 0},
	{"shutdown-wakes-writers", shutdown_wakes_writers, 0},
	{"reuse-4-tuple", reuse, 0},
	{"timeouts", timeouts, 0},
	{"timeouts-negative", timeouts_negative, 0},
	{"eintr", eintr, 0},
	{"longjmp", longjmps, 0},
	{"cancel", cancel, 0},
	{"threads-share", threads_share, 0},
	{"duplex", duplex, 0},
	{"half-closed", half_closed_all, 0},
	{NULL, NULL, 0},
};

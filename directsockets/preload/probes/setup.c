#include "probe.h"
#include <sys/resource.h>

/* How connections become direct that the library once gave up. */

/* The listener is closed as soon as it has accepted, as one for FTP's data is. */
static void oneshot(void)
{
	struct sockaddr_in at;
	int l = listener(&at), c = dial(&at), s = accept(l, NULL, NULL);

	R(close(l));
	warm(c, s);
	R(close(c));
	char b[1];
	R(read(s, b, 1));
}

/* The same in a child, whose parent has the listener closed, too. */
static void oneshot_fork(void)
{
	struct sockaddr_in at;
	int l = listener(&at), c = dial(&at);

	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		char b[4096];
		ssize_t n;
		int s = accept(l, NULL, NULL);
		close(l);
		close(c);
		while ((n = read(s, b, sizeof b)) > 0)
			put(s, b, (size_t)n);
		_exit(0);
	}
	close(l);
	char b[2];
	for (int i = 0; i < 5 || (has_library() && i < LONG && !direct(c)); i++) {
		put(c, "ab", 2);
		if (get(c, b, 2) != 2)
			die("echo");
		if (i >= 5)
			nap(1);
	}
	R(shutdown(c, SHUT_WR));
	R(read(c, b, 1));
	finish(pid);
}

/* ---- a thread that sends much while another waits to receive ---- */

enum { MUCH = 50 << 20, ROUNDS = 1000 };

static void *receiver(void *fd)
{
	char b[64];

	return (void *)get(*(int *)fd, b, sizeof b);
}

static void sink(void *arg)
{
	static char b[1 << 16];
	int s = accept(*(int *)arg, NULL, NULL);
	ssize_t n;

	while ((n = read(s, b, sizeof b)) > 0)
		;
	put(s, "done", 4);
	close(s);
}

static void duplex_sender(void)
{
	static char b[MUCH];
	struct sockaddr_in at;
	int l = listener(&at), rounds = 0;
	pthread_t t;
	void *got;

	alarm(300);
	pid_t pid = start(sink, &l);
	int c = dial(&at);
	pthread_create(&t, NULL, receiver, &c);
	do {
		if (send(c, b, sizeof b, 0) != sizeof b)
			die("send");
	} while (!(direct(c) & 1) && ++rounds < ROUNDS && has_library());
	R(shutdown(c, SHUT_WR));
	pthread_join(t, &got);
	out("received %zu", (size_t)got);
	finish(pid);
}

/* One send, by a program of one thread. */
static void one_send(void)
{
	static char b[MUCH];
	struct sockaddr_in at;
	int l = listener(&at), rounds = 0;
	char end[8];

	alarm(300);
	pid_t pid = start(sink, &l);
	int c = dial(&at);
	do {
		if (send(c, b, sizeof b, 0) != sizeof b)
			die("send");
	} while (!(direct(c) & 1) && ++rounds < ROUNDS && has_library());
	R(shutdown(c, SHUT_WR));
	R(get(c, end, sizeof end));
	finish(pid);
}

/* A program that clears its environment, and writes over it, before its first socket. */
static void environment(void)
{
	int c, s;

	for (char **e = environ; *e; e++)
		memset(*e, 0, strlen(*e));
	clearenv();
	pair(&c, &s);
	put(c, "x", 1);
	R(readable(s, LONG));
}

enum { CROWD = 900 };

/* Answers a request on each of CROWD connections in turn, until the first ends. */
static void crowd_server(void *listener)
{
	int s[CROWD];
	char b;

	for (int i = 0; i < CROWD; i++)
		s[i] = accept(*(int *)listener, NULL, NULL);
	for (int i = 0; get(s[i], &b, 1); i = (i + 1) % CROWD)
		put(s[i], "a", 1);
}

/* So many connections begin at once that offers and claims fill the broker's queue: all of them are
 * direct in the end. */
static void crowd(void)
{
	int c[CROWD], up = 0, best = -1;
	struct rlimit most;
	struct sockaddr_in to;
	char b;

	if (getrlimit(RLIMIT_NOFILE, &most) == 0 && most.rlim_cur < most.rlim_max) {
		most.rlim_cur = most.rlim_max;
		setrlimit(RLIMIT_NOFILE, &most);
	}
	int l = listener(&to);
	pid_t pid = start(crowd_server, &l);
	for (int i = 0; i < CROWD; i++)
		c[i] = dial(&to);
	for (int idle = 0; up < CROWD && idle < 1000; idle++) {
		for (int i = 0; i < CROWD; i++)
			put(c[i], "q", 1);
		up = 0;
		for (int i = 0; i < CROWD; i++) {
			get(c[i], &b, 1);
			up += !has_library() || direct(c[i]) == 3;
		}
		if (up > best) {
			best = up;
			idle = 0;
		}
		if (has_library())
			nap(best < CROWD / 2 ? 100 : 5); // for all to offer, and then all to claim
	}
	out("direct %d", up);
	for (int i = 0; i < CROWD; i++)
		close(c[i]);
	finish(pid);
}

const struct probe setup_probes[] = {
	{"crowd", crowd, 1},
	{"environment", environment, 0},
	{"one-shot", oneshot, 0},
	{"one-shot-fork", oneshot_fork, 0},
	{"duplex-sender", duplex_sender, 0},
	{"one-send", one_send, 0},
	{NULL, NULL, 0},
};

#include "probe.h"

#include <sched.h>

/* Probes of a connection that processes share, each process 1 of a PID namespace of its own, as
 * those that a server starts in containers: their process and thread IDs are the same. */

enum { RECORDS = 20000, RECORD = 400 };

/* A child in a PID namespace of its own. */
static pid_t apart(void)
{
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | (getuid() ? CLONE_NEWUSER : 0) | SIGCHLD, 0, 0, 0, 0);

	if (pid < 0) {
		out("no PID namespace of its own: %s", errname(errno));
		exit(0);
	}
	return pid;
}

/* Both send on fd, and wait for room. */
static void writes(int fd, char with)
{
	char b[RECORD];
	int failed = 0;

	memset(b, with, sizeof b);
	for (int i = 0; i < fewer(RECORDS); i++)
		for (size_t off = 0; off < sizeof b;) {
			ssize_t n = send(fd, b + off, sizeof b - off, 0);
			failed += n < 0;
			off += n > 0 ? (size_t)n : 0;
		}
	_exit(failed ? 1 + (errno == EAGAIN) : 0);
}

static void writers(void)
{
	static char b[1 << 16];
	int c, s, st[2], go[2];
	pid_t pid[2];
	size_t sum[2] = {0}, n;

	pair(&c, &s);
	if (pipe(go))
		die("pipe");
	for (int i = 0; i < 2; i++)
		if ((pid[i] = apart()) == 0) {
			get(go[0], b, 1);
			writes(s, (char)i);
		}
	put(go[1], "xx", 2);
	still_direct(c, s);
	close(s);
	while ((n = get(c, b, sizeof b)) > 0)
		for (size_t i = 0; i < n; i++)
			sum[(int)b[i]]++;
	for (int i = 0; i < 2; i++) {
		waitpid(pid[i], &st[i], 0);
		out("%zu bytes, status %x", sum[i], (unsigned)st[i]);
	}
}

/* How a child sleeps until there is a byte. */
static void by_recv(int fd) { (void)fd; }

static void by_poll(int fd)
{
	struct pollfd p = {fd, POLLIN, 0};

	poll(&p, 1, -1);
}

static void by_epoll(int fd)
{
	struct epoll_event ev;
	int ep = ep_new();

	ep_set(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 0);
	ep_hear(ep, &ev, 1, -1);
}

/* The parent and two children sleep on s: for each byte that comes one takes it, and sleeps no
 * more. */
static void sleepers(void (*const how[2])(int))
{
	int c, s, took[2];
	pid_t pid[2];
	char b, who[3] = "..";

	pair(&c, &s);
	if (pipe(took))
		die("pipe");
	for (int i = 0; i < 2; i++) {
		if ((pid[i] = apart()) != 0)
			continue;
		int flags = how[i] == by_recv ? 0 : MSG_DONTWAIT;
		do
			how[i](s);
		while (recv(s, &b, 1, flags) != 1 && flags);
		put(took[1], i ? "b" : "a", 1);
		pause();
	}
	close(s);
	for (int i = 0; i < 2; i++) {
		nap(30 * i); /* both of them are likely to sleep */
		put(c, "x", 1);
		if (readable(took[0], LONG) != 1) {
			out("nobody took byte %d", i);
			break;
		}
		get(took[0], &who[i], 1);
	}
	out("%s took", who[0] == who[1] ? "the same" : "each");
	for (int i = 0; i < 2; i++) {
		kill(pid[i], SIGKILL);
		finish(pid[i]);
	}
}

static void sleep_in_recv(void) { sleepers((void (*const[2])(int)){by_recv, by_recv}); }
static void sleep_in_poll(void) { sleepers((void (*const[2])(int)){by_poll, by_recv}); }
static void sleep_in_sets(void) { sleepers((void (*const[2])(int)){by_epoll, by_epoll}); }

/* A child adds its connection to the set of its parent, which is process 1 as well: what the set
 * says is what the child wrote there. */
static void adds(void)
{
	int c, s, c2, s2, told[2];
	char b;

	pair(&c, &s);
	pair(&c2, &s2);
	int ep = ep_new();
	ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 7);
	if (pipe(told))
		die("pipe");
	pid_t pid = apart();
	if (pid == 0) {
		ep_set(ep, EPOLL_CTL_ADD, s2, EPOLLIN, 8);
		put(told[1], "x", 1);
		pause();
	}
	get(told[0], &b, 1);
	put(c2, "x", 1);
	ep_show(ep, 4, LONG);
	get(s2, &b, 1);
	put(c, "x", 1);
	ep_show(ep, 4, LONG);
	kill(pid, SIGKILL);
	finish(pid);
}

/* In a PID namespace of its own, so that its child has the same process ID. */
static void set_of_parent(void)
{
	fflush(stdout);
	pid_t pid = apart();
	if (pid == 0) {
		adds();
		fflush(stdout);
		_exit(0);
	}
	finish(pid);
}

const struct probe apart_probes[] = {
	{"apart-writers", writers, 0},
	{"apart-recv", sleep_in_recv, 0},
	{"apart-poll", sleep_in_poll, 0},
	{"apart-sets", sleep_in_sets, 0},
	{"apart-set-of-parent", set_of_parent, 1},
	{NULL, NULL, 0},
};

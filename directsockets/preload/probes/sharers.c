#include "probe.h"

/* Probes of a connection that a process and its child have before it is direct, of whom the child
 * alone uses it, as sshd's for a user does: it is direct, and its parent may still use it whenever
 * it wants. The third process is the peer. */

enum { LEFT = 70000, TAKEN = 1000 }; /* bytes that the peer sends, and those of them that the child reads */

static char data[LEFT], buf[LEFT];

/* How the child ends before its parent uses the connection. */
enum end { STAYS, CLOSES, EXITS, KILLED };

/* The child: answers bytes up to a q, reads the beginning of what follows, tells so, and ends. */
static void child(int fd, enum end how, int told)
{
	char c;

	while (get(fd, &c, 1) == 1 && c != 'q')
		put(fd, &c, 1);
	size_t n = get(fd, buf, TAKEN);
	out("child: %zu bytes, same %d", n, memcmp(buf, data, TAKEN) == 0);
	put(fd, "half", 4);
	if (how == CLOSES)
		close(fd);
	if (how == STAYS || how == CLOSES)
		put(told, "x", 1);
	if (how == STAYS || how == CLOSES)
		pause();
	if (how == EXITS)
		_exit(0);
	raise(SIGKILL);
}

/* The peer of user: talks until it is direct, and then sends more. */
static void peer(int fd, pid_t user)
{
	char c = 'x';
	int same = 1;

	for (int rounds = 0; rounds < 20 || (has_library() && direct(fd) != 3 && rounds < LONG); rounds++) {
		put(fd, &c, 1);
		same &= get(fd, &c, 1) == 1 && c == 'x';
		if (rounds > 20)
			nap(1);
	}
	put(fd, "q", 1);
	put(fd, data, sizeof data);
	size_t n = get(fd, buf, sizeof buf);
	finish(user);
	out("peer: same %d, %zu bytes %.*s", same, n, (int)(n < 40 ? n : 40), buf);
}

/* Reads what the child has left. */
static void rest(int fd)
{
	out("%zu bytes", get(fd, buf, LEFT - TAKEN));
	out("same %d", memcmp(buf, data + TAKEN, LEFT - TAKEN) == 0);
}

/* What the parent does first. */
static void by_read(int fd) { (void)fd; }

static void by_send(int fd) { put(fd, "first", 5); }

static void by_poll(int fd)
{
	struct pollfd p = {fd, POLLIN | POLLOUT, 0};

	R(poll(&p, 1, LONG));
	out("%s", revents((unsigned)p.revents));
}

static void by_epoll(int fd)
{
	int ep = ep_new();

	ep_set(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, 7);
	ep_show(ep, 4, LONG);
	close(ep);
}

static void by_count(int fd)
{
	int n = 0;

	arrived(fd, LEFT - TAKEN);
	ioctl(fd, FIONREAD, &n);
	out("FIONREAD %d", n);
}

static void by_fork(int fd)
{
	pid_t pid = fork();

	if (pid == 0) {
		put(fd, "grandchild", 10);
		_exit(0);
	}
	finish(pid);
}

static void by_exec(int fd)
{
	pid_t pid = fork();

	if (pid == 0) {
		dup2(fd, 1);
		execlp("echo", "echo", "program", NULL);
		_exit(127);
	}
	finish(pid);
}

/* The connection, of which client says which end is shared, is its child's until that ends. */
static void share(int client, enum end how, void (*first)(int fd))
{
	int c, s, told[2];
	char b;

	fill(data, sizeof data, 9);
	pair_cold(&c, &s);
	if (pipe(told))
		die("pipe");
	int mine = client ? c : s, other = client ? s : c;
	pid_t user = fork();
	if (user == 0) {
		close(other);
		pid_t using = fork();
		if (using == 0)
			child(mine, how, told[1]);
		close(told[1]);
		if (how == STAYS || how == CLOSES)
			get(told[0], &b, 1);
		else
			wait(NULL);
		first(mine);
		rest(mine);
		put(mine, "end", 3);
		shutdown(mine, SHUT_WR);
		kill(using, SIGKILL);
		_exit(0);
	}
	close(mine);
	close(told[1]);
	peer(other, user);
	close(told[0]);
}

static void reads(void) { share(0, STAYS, by_read); }
static void closed(void) { share(0, CLOSES, by_read); }
static void exited(void) { share(0, EXITS, by_read); }
static void killed(void) { share(0, KILLED, by_read); }
static void sends(void) { share(0, STAYS, by_send); }
static void polls(void) { share(0, KILLED, by_poll); }
static void epolls(void) { share(0, STAYS, by_epoll); }
static void counts(void) { share(0, STAYS, by_count); }
static void forks(void) { share(0, STAYS, by_fork); }
static void executes(void) { share(0, STAYS, by_exec); }
static void of_client(void) { share(1, STAYS, by_send); }
static void of_client_killed(void) { share(1, KILLED, by_poll); }

/* Both use it from the beginning, by turns: it stays on TCP. */
static void both(void)
{
	int c, s, turn[2], back[2];
	char b = 'x', d;

	pair_cold(&c, &s);
	if (pipe(turn) || pipe(back))
		die("pipe");
	pid_t pid = fork();
	if (pid == 0) {
		close(c);
		while (get(turn[0], &b, 1) == 1 && b != 'e' && get(s, &b, 1) == 1) {
			put(s, &b, 1);
			put(back[1], "x", 1);
		}
		_exit(0);
	}
	int same = 1;
	for (int i = 0; i < 60; i++) {
		b = (char)('a' + i % 26);
		put(c, &b, 1);
		if (i % 2) {
			put(turn[1], "x", 1);
			get(back[0], &d, 1);
		} else if (get(s, &d, 1) == 1) {
			put(s, &d, 1);
		}
		same &= get(c, &d, 1) == 1 && d == b;
	}
	out("same %d", same);
	if (direct(c) && !begun()) /* a request before the fork: it may be, when only one has used it */
		out("direct, which it cannot be");
	put(turn[1], "e", 1);
	finish(pid);
}

const struct probe sharer_probes[] = {
	{"sharers-reads", reads, 0},
	{"sharers-closed", closed, 0},
	{"sharers-exited", exited, 0},
	{"sharers-killed", killed, 0},
	{"sharers-sends", sends, 0},
	{"sharers-polls", polls, 0},
	{"sharers-epolls", epolls, 0},
	{"sharers-counts", counts, 0},
	{"sharers-forks", forks, 0},
	{"sharers-executes", executes, 0},
	{"sharers-client", of_client, 0},
	{"sharers-client-killed", of_client_killed, 0},
	{"sharers-both", both, 1},
	{NULL, NULL, 0},
};

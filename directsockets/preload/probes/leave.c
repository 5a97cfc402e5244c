#include "probe.h"

/* Probes of connections that leave direct with bytes unread: whatever makes them leave, and however
 * the sender ends before or after that, the receiver reads every byte, and then the end. */

extern char **environ;

/* More than a socket's buffers hold when they are small, and less than a plain sender waits for. */
enum { N = 150000 };

static char sent[N], buf[N + 1];

enum end { SHUT, CLOSE, KILL, ENDS };
static const char *const ends[] = {"shutdown", "close", "kill -9"};

struct peer {
	int c, s, ready[2], go[2];
	enum end how;
};

/* The sender: sends all, says so, and ends when it is told to. */
static void sender(void *arg)
{
	const struct peer *p = arg;
	char b;

	close(p->c);
	close(p->go[1]); /* or it is what tells */
	put(p->s, sent, N);
	put(p->ready[1], "r", 1);
	get(p->go[0], &b, 1);
	if (p->how == SHUT)
		shutdown(p->s, SHUT_WR);
	else if (p->how == CLOSE)
		close(p->s);
	else
		kill(getpid(), SIGKILL);
	put(p->ready[1], "e", 1);
	for (;;)
		pause();
}

/* Reads fd to the end and says what came. */
static void say_all(const char *what, int fd)
{
	size_t n = 0, wrong = 0;
	ssize_t r;

	while ((r = read(fd, buf, sizeof buf)) > 0)
		for (ssize_t i = 0; i < r; i++, n++)
			wrong += n >= N || buf[i] != sent[n];
	out("%s: %zu bytes, %zu wrong, end %s", what, n, wrong, r ? errname(errno) : "of file");
}

static void end_it(struct peer *p, pid_t pid)
{
	char b;

	put(p->go[1], "g", 1);
	if (p->how == KILL)
		waitpid(pid, NULL, 0);
	else
		get(p->ready[0], &b, 1);
}

/* leave has the connection leave direct, and returns what to read from: fd, or one in its place. */
static void each(int (*leave)(int fd, pid_t *reader), int ways)
{
	fill(sent, N, 7);
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < 2 * ways; i++) {
		struct peer p = {.how = (enum end)(i / 2)};
		pid_t reader = 0;
		char b, what[64];
		int before = i % 2;

		pair(&p.c, &p.s);
		if (pipe2(p.ready, O_CLOEXEC) < 0 || pipe2(p.go, O_CLOEXEC) < 0)
			die("pipe");
		pid_t pid = start(sender, &p);
		close(p.s);
		close(p.ready[1]);
		close(p.go[0]);
		get(p.ready[0], &b, 1);
		if (before)
			end_it(&p, pid);
		int fd = leave(p.c, &reader);
		if (!before)
			end_it(&p, pid);
		snprintf(what, sizeof what, "%s %s", ends[p.how], before ? "before" : "after");
		say_all(what, fd);
		if (fd != p.c)
			close(fd);
		close(p.c);
		if (reader)
			waitpid(reader, NULL, 0);
		if (p.how != KILL) {
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
		}
		close(p.ready[0]);
		close(p.go[1]);
	}
}

static int by_system(int fd, pid_t *reader)
{
	(void)reader;
	R(system("true"));
	return fd;
}

static int by_popen(int fd, pid_t *reader)
{
	FILE *f = popen("true", "r");

	(void)reader;
	if (!f)
		die("popen");
	R(pclose(f));
	return fd;
}

static int by_spawn(int fd, pid_t *reader)
{
	char *argv[] = {"true", NULL};
	pid_t pid;

	(void)reader;
	R(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ));
	finish(pid);
	return fd;
}

static int by_async(int fd, pid_t *reader)
{
	(void)reader;
	signal(SIGIO, SIG_IGN);
	R(fcntl(fd, F_SETFL, O_ASYNC | fcntl(fd, F_GETFL)));
	return fd;
}

static int by_urgent(int fd, pid_t *reader)
{
	(void)reader;
	R(send(fd, "!", 1, MSG_OOB));
	return fd;
}

/* Another descriptor of it arrives. */
static int by_rights(int fd, pid_t *reader)
{
	char ctl[CMSG_SPACE(sizeof fd)], b;
	struct iovec v = {&b, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof ctl};
	int over[2], other;

	(void)reader;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, over) < 0)
		die("socketpair");
	pass_fd(over[0], fd);
	if (recvmsg(over[1], &m, 0) != 1)
		die("recvmsg");
	memcpy(&other, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof other);
	close(over[0]);
	close(over[1]);
	return other;
}

/* cat reads it, in a process of its own, without the library if alone. */
static int by_cat(int fd, pid_t *reader, int alone)
{
	char *argv[] = {"cat", NULL}, *none[] = {NULL};
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		die("pipe");
	*reader = fork();
	if (*reader == 0) {
		dup2(fd, 0);
		dup2(p[1], 1);
		close_range(3, ~0u, 0);
		char *path = alone ? getenv("PROBE_CAT") : NULL;
		execve(path ? path : "/bin/cat", argv, alone ? none : environ);
		_exit(127);
	}
	close(p[1]);
	return p[0];
}

static int by_exec(int fd, pid_t *reader) { return by_cat(fd, reader, 0); }
static int by_exec_alone(int fd, pid_t *reader) { return by_cat(fd, reader, 1); }

static void leave_system(void) { each(by_system, ENDS); }
static void leave_popen(void) { each(by_popen, ENDS); }
static void leave_spawn(void) { each(by_spawn, ENDS); }
static void leave_async(void) { each(by_async, ENDS); }
/* A sender that ends with the urgent byte unread resets the connection. */
static void leave_urgent(void) { each(by_urgent, CLOSE); }
static void leave_rights(void) { each(by_rights, ENDS); }
static void leave_exec(void) { each(by_exec, ENDS); }
static void leave_exec_alone(void) { each(by_exec_alone, ENDS); }

const struct probe leave_probes[] = {
	{"leave-system", leave_system, 0},
	{"leave-popen", leave_popen, 0},
	{"leave-spawn", leave_spawn, 0},
	{"leave-async", leave_async, 0},
	{"leave-urgent", leave_urgent, 0},
	{"leave-rights", leave_rights, 0},
	{"leave-exec", leave_exec, 0},
	{"leave-exec-alone", leave_exec_alone, 0},
	{NULL, NULL, 0},
};

#include "probe.h"

/* Probes of connections that leave direct with bytes unread: whatever makes them leave, and however
 * the sender ends before or after that, the receiver reads every byte, and then the end. */

#include <dlfcn.h>
#include <sched.h>
#include <sys/prctl.h>

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

/* What rest has for each connection. */
struct left {
	int c, ended, direct;
	FILE *file;
};

/* A connection whose sender has written all, and whose reader is without the library, with nobody
 * left that has it. The shadow takes little. stops: what it reads goes to l->ended, where nobody
 * reads it. */
static void leave_one(struct left *first, struct left *l, const char *all, size_t size, int stops)
{
	int s, p[2], small = 4096;

	pair(&l->c, &s);
	l->file = tmpfile();
	if (!l->file || pipe(p) < 0)
		die("pipe");
	put(l->c, all, size);
	l->direct = direct(l->c) & 1;
	R(setsockopt(l->c, SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
	if (stops)
		R(setsockopt(s, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		for (struct left *one = first; one <= l; one++)
			close(one->c); /* or it counts as one that has it */
		close(p[0]);
		/* A shell knows numbers of one digit. That of p[1], which tells of the reader's
		 * end, may be one of them. */
		int in = fcntl(s, F_DUPFD, 10), to = fcntl(stops ? p[1] : fileno(l->file), F_DUPFD, 10);
		if (fcntl(p[1], F_DUPFD, 10) < 0)
			die("fcntl");
		close(s);
		R(dup2(in, 8));
		R(dup2(to, 9));
		close(in);
		if (system(stops ? "exec dd bs=4096 <&8 >&9 2>/dev/null 8<&- 9>&- &" : "exec cat <&8 >&9 8<&- 9>&- &"))
			die("system");
		kill(getpid(), SIGKILL);
	}
	close(s);
	close(p[1]);
	l->ended = p[0];
	waitpid(pid, NULL, 0);
}

/* Such readers get all that the sender still has to write when it closes, or exits. */
static void rest(void (*end)(const struct left *l, int n), int count)
{
	enum { MORE = 2 * N, MOST = 2 };
	static char all[MORE];
	struct left l[MOST];

	fill(all, MORE, 7);
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < count; i++)
		leave_one(l, &l[i], all, MORE, 0);
	end(l, count);
	for (int i = 0; i < count; i++) {
		size_t n = 0, wrong = 0;
		ssize_t r;

		get(l[i].ended, buf, 1); /* it has ended */
		rewind(l[i].file);
		while ((r = read(fileno(l[i].file), buf, sizeof buf)) > 0)
			for (ssize_t k = 0; k < r; k++, n++)
				wrong += n >= MORE || buf[k] != all[n];
		out("%zu bytes, %zu wrong", n, wrong);
		close(l[i].ended);
		fclose(l[i].file);
	}
}

static void by_close(const struct left *l, int n)
{
	for (int i = 0; i < n; i++)
		R(close(l[i].c));
}

static void by_exit(const struct left *l, int n)
{
	int p[2];

	if (pipe(p) < 0)
		die("pipe");
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		close(p[1]);
		get(p[0], buf, 1); /* it is the only one that has them now */
		exit(0);
	}
	for (int i = 0; i < n; i++)
		close(l[i].c);
	close(p[0]);
	close(p[1]);
	waitpid(pid, NULL, 0);
}

/* The program's SO_LINGER is its own. */
static void by_linger(const struct left *one, int n)
{
	int c = one->c;
	struct linger l = {1, 1000}, now = {0};
	struct pollfd p = {c, POLLOUT, 0};
	socklen_t len = sizeof now;

	poll(&p, 1, 0);
	R(getsockopt(c, SOL_SOCKET, SO_LINGER, &now, &len));
	out("%d %d, %d", now.l_onoff, now.l_linger, (int)len);
	R(setsockopt(c, SOL_SOCKET, SO_LINGER, &l, sizeof l));
	R(setsockopt(c, SOL_SOCKET, SO_LINGER, &l, 4));
	R(getsockopt(c, SOL_SOCKET, SO_LINGER, &now, &len));
	out("%d %d, %d", now.l_onoff, now.l_linger, (int)len);
	by_close(one, n);
}

/* The children of this process, and what their end is told by. */
static int each_child(int (*of)(pid_t pid))
{
	char path[64];
	int n = 0, pid;

	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	FILE *f = fopen(path, "r");
	while (f && fscanf(f, "%d", &pid) == 1)
		n += of(pid);
	if (f)
		fclose(f);
	return n;
}

static int one(pid_t pid) { return pid > 0; }

static int ends_not(pid_t pid)
{
	int status = 0;

	kill(pid, SIGTERM);
	return waitpid(pid, &status, __WALL) != pid || !WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM;
}

/* How many processes write the rest of these connections, if this one closes them. */
enum { MOST = 16 };
static int writers(const struct left *l, int n)
{
	int count = 0;

	for (int i = 0; i < n && count < MOST; i++)
		count += l[i].direct;
	return count;
}

/* How many children are there more or less than these? Connections that begin cold may leave
 * nothing to write. */
static int other_than(int count)
{
	int n = each_child(one) - count;

	return n < 0 && is_cold() ? 0 : n;
}

/* Readers do not go on. What writes the rest, if the kernel does not, is no child that the program
 * waits for; there are few, and SIGTERM ends them. */
static void leave_rest_stays(void)
{
	enum { MORE = 2 * N, COUNT = MOST + 4 };
	static char all[MORE];
	struct left l[COUNT];

	fill(all, MORE, 7);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGTERM, SIG_IGN); /* what the program has made of it is its own */
	for (int i = 0; i < COUNT; i++)
		leave_one(l, &l[i], all, MORE, 1);
	int count = writers(l, COUNT);
	R(prctl(PR_SET_CHILD_SUBREAPER, 1));
	by_close(l, COUNT);
	R(waitpid(-1, NULL, WNOHANG));
	out("%d other than there should be", other_than(count));
	out("%d go on", each_child(ends_not));
	for (int i = 0; i < COUNT; i++) {
		close(l[i].ended);
		fclose(l[i].file);
	}
}

/* The program's next child is the first process of its PID namespace, whatever else has a child. */
static void leave_rest_first(void)
{
	enum { MORE = 2 * N };
	static char all[MORE];
	struct left l;

	fill(all, MORE, 7);
	signal(SIGPIPE, SIG_IGN);
	leave_one(&l, &l, all, MORE, 1);
	R(unshare(CLONE_NEWPID));
	R(close(l.c));
	pid_t pid = fork();
	if (pid == 0)
		_exit(getpid() == 1 ? 1 : 2);
	out("%s", pid < 0 ? errname(errno) : "a child");
	finish(pid);
	close(l.ended);
	fclose(l.file);
}

/* Where orphans go elsewhere, it is no child at all: what executes a program then hands on none. A
 * child of fork has places of its own for them, whatever its parent has. */
static void leave_rest_orphans(void)
{
	enum { MORE = 2 * N, COUNT = 2 * MOST + 4 };
	static char all[MORE];
	struct left l[COUNT];
	int go[2], status = -1;

	fill(all, MORE, 7);
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < COUNT; i++)
		leave_one(l, &l[i], all, MORE, 1);
	int count = writers(l, MOST) + writers(l + MOST, COUNT - MOST);
	if (pipe(go) < 0)
		die("pipe");
	R(prctl(PR_SET_CHILD_SUBREAPER, 1)); /* of this process alone */
	by_close(l, MOST);
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		get(go[0], buf, 1); /* it is the only one that has the others now */
		for (int i = MOST; i < COUNT; i++)
			close(l[i].c);
		_exit(waitpid(-1, NULL, WNOHANG | __WALL) != -1 || errno != ECHILD);
	}
	for (int i = MOST; i < COUNT; i++)
		close(l[i].c);
	put(go[1], "g", 1);
	R(waitpid(pid, &status, 0) == pid);
	out("%#x", status);
	out("%d other than there should be", other_than(count));
	out("%d go on", each_child(ends_not));
	for (int i = 0; i < COUNT; i++) {
		close(l[i].ended);
		fclose(l[i].file);
	}
}

/* A sender's descriptor is closed where the library does not see it, and its number is another
 * connection's: what is left to write, and the end of that, do not go there. */
static void leave_rest_number(void)
{
	typedef long kernel(long nr, ...);
	enum { MORE = 2 * N };
	static char all[MORE];
	struct sockaddr_in addr;
	struct linger now = {-1, -1};
	socklen_t len = sizeof now;
	struct left l;
	kernel *(*set)(kernel *) = (kernel * (*)(kernel *)) dlsym(RTLD_DEFAULT, "exnds_kernel"), *own = syscall;

	fill(all, MORE, 7);
	leave_one(&l, &l, all, MORE, 1);
	int at = listener(&addr), c = dial(&addr), other;
	R(shutdown(l.c, SHUT_WR));
	if (set)
		set(own = set(syscall));
	own(SYS_close, l.c);
	other = accept(at, NULL, NULL);
	out("its number: %d", other == l.c);
	R(getsockopt(other, SOL_SOCKET, SO_LINGER, &now, &len));
	out("%d %d", now.l_onoff, now.l_linger);
	put(other, "mine", 4);
	get(c, buf, 4);
	out("%.4s", buf);
	close(other);
	out("%zu more", get(c, buf, 1));
	close(c);
	close(at);
	close(l.ended);
	fclose(l.file);
}

static void leave_rest(void) { rest(by_close, 1); }
static void leave_rest_exit(void) { rest(by_exit, 1); }
static void leave_rest_linger(void) { rest(by_linger, 1); }
static void leave_rest_more(void) { rest(by_close, 2); }
static void leave_rest_exit_more(void) { rest(by_exit, 2); }

const struct probe leave_probes[] = {
	{"leave-system", leave_system, 0},
	{"leave-popen", leave_popen, 0},
	{"leave-spawn", leave_spawn, 0},
	{"leave-async", leave_async, 0},
	{"leave-urgent", leave_urgent, 0},
	{"leave-rights", leave_rights, 0},
	{"leave-exec", leave_exec, 0},
	{"leave-exec-alone", leave_exec_alone, 0},
	{"leave-rest", leave_rest, 0},
	{"leave-rest-exit", leave_rest_exit, 0},
	{"leave-rest-linger", leave_rest_linger, 0},
	{"leave-rest-more", leave_rest_more, 0},
	{"leave-rest-exit-more", leave_rest_exit_more, 0},
	{"leave-rest-stays", leave_rest_stays, 0},
	{"leave-rest-first", leave_rest_first, 0},
	{"leave-rest-orphans", leave_rest_orphans, 0},
	{"leave-rest-number", leave_rest_number, 0},
	{NULL, NULL, 0},
};

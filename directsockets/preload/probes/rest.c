#include "probe.h"

/* Probes of what a sender has still to write to TCP when it ends: the reader, which is without the
 * library, gets every byte. */

#include <dlfcn.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* More than a socket's buffers hold when they are small. */
enum { N = 150000 };

static char buf[N + 1];

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

/* What reads the file of l has ended: all has come. */
static void say_rest(struct left *l, const char *all, size_t size)
{
	size_t n = 0, wrong = 0;
	ssize_t r;

	get(l->ended, buf, 1);
	rewind(l->file);
	while ((r = read(fileno(l->file), buf, sizeof buf)) > 0)
		for (ssize_t k = 0; k < r; k++, n++)
			wrong += n >= size || buf[k] != all[n];
	out("%zu bytes, %zu wrong", n, wrong);
	close(l->ended);
	fclose(l->file);
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
	for (int i = 0; i < count; i++)
		say_rest(&l[i], all, MORE);
}

static void by_close(const struct left *l, int n)
{
	for (int i = 0; i < n; i++)
		R(close(l[i].c));
}

static void *sleeps(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* A child that has them alone ends so; it has another thread, or not. */
static void ends(const struct left *l, int n, int threads, void (*how)(void))
{
	int p[2];
	pthread_t thread;

	if (pipe(p) < 0)
		die("pipe");
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		close(p[1]);
		get(p[0], buf, 1); /* it is the only one that has them now */
		if (threads && pthread_create(&thread, NULL, sleeps, NULL))
			die("pthread_create");
		how();
	}
	for (int i = 0; i < n; i++)
		close(l[i].c);
	close(p[0]);
	close(p[1]);
	waitpid(pid, NULL, 0);
}

static void at_end(void) { exit(0); }
static void at_once(void) { _exit(0); }
static void at_quick(void) { quick_exit(0); }
static void by_group(void) { syscall(SYS_exit_group, 0); }

static void handler(int sig)
{
	(void)sig;
	_exit(0);
}

static void in_handler(void)
{
	signal(SIGALRM, handler);
	raise(SIGALRM);
}

/* A child that has its memory ends first: nothing of what is left is its own. */
static void after_vfork(void)
{
	pid_t pid = vfork();
	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	_exit(0);
}

/* One of fork shared what is left, and has ended first, so; it has another thread, or not. */
static void after_fork(int threads, void (*how)(void))
{
	pthread_t thread;

	pid_t pid = fork();
	if (pid == 0) {
		if (threads && pthread_create(&thread, NULL, sleeps, NULL))
			die("pthread_create");
		how();
	}
	waitpid(pid, NULL, 0);
	_exit(0);
}

static void at_kill(void) { kill(getpid(), SIGKILL); }
static void fork_once(void) { after_fork(0, at_once); }
static void fork_once_threads(void) { after_fork(1, at_once); }
static void fork_exit(void) { after_fork(0, at_end); }
static void fork_exit_threads(void) { after_fork(1, at_end); }
static void fork_killed(void) { after_fork(0, at_kill); }

/* One of fork has what is left, too, and does nothing: it comes all the same. */
static void by_idle(const struct left *l, int n)
{
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0)
		sleeps(NULL);
	for (int i = 0; i < n; i++) {
		struct stat st = {0};

		close(l[i].c);
		for (long last = monotonic() + LONG / 20; st.st_size < 2 * N && monotonic() < last; nap(1))
			fstat(fileno(l[i].file), &st);
		out("%ld have come", (long)st.st_size);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void by_exit(const struct left *l, int n) { ends(l, n, 0, at_end); }
static void by_exit_threads(const struct left *l, int n) { ends(l, n, 1, at_end); }
static void by_once(const struct left *l, int n) { ends(l, n, 0, at_once); }
static void by_once_threads(const struct left *l, int n) { ends(l, n, 1, at_once); }
static void by_quick(const struct left *l, int n) { ends(l, n, 0, at_quick); }
static void by_exit_group(const struct left *l, int n) { ends(l, n, 0, by_group); }
static void by_handler(const struct left *l, int n) { ends(l, n, 0, in_handler); }
static void by_fork(const struct left *l, int n) { ends(l, n, 0, fork_once); }
static void by_fork_threads(const struct left *l, int n) { ends(l, n, 0, fork_once_threads); }
static void by_fork_exit(const struct left *l, int n) { ends(l, n, 0, fork_exit); }
static void by_fork_exit_threads(const struct left *l, int n) { ends(l, n, 0, fork_exit_threads); }
static void by_fork_killed(const struct left *l, int n) { ends(l, n, 0, fork_killed); }
static void by_vfork(const struct left *l, int n) { ends(l, n, 0, after_vfork); }

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

/* In a PID namespace whose first process waits for no orphan: as many writers as there may be are
 * killed, and stay zombies. Then another connection is left. */
static void after_zombies(int tell, int told)
{
	enum { MORE = 2 * N };
	static char all[MORE];
	struct left l[MOST], last;

	fill(all, MORE, 7);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGTERM, SIG_IGN); /* what is to be killed ends by it all the same */
	for (int i = 0; i < MOST; i++)
		leave_one(l, &l[i], all, MORE, 1);
	by_close(l, MOST);
	put(tell, "k", 1);
	get(told, buf, 1);
	nap(50);
	leave_one(&last, &last, all, MORE, 0);
	out("%d writers", has_library() && !is_cold() ? writers(l, MOST) : MOST);
	R(close(last.c));
	say_rest(&last, all, MORE);
}

static void leave_rest_zombies(void)
{
	int kill_them[2], killed[2];

	if (unshare(CLONE_NEWPID | CLONE_NEWNS) || pipe(kill_them) || pipe(killed))
		die("unshare");
	fflush(NULL);
	pid_t first = fork();
	if (first == 0) {
		int status = 0;
		if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("proc", "/proc", "proc", 0, NULL))
			die("mount");
		pid_t pid = fork();
		if (pid == 0) {
			after_zombies(kill_them[1], killed[0]);
			_exit(0);
		}
		get(kill_them[0], buf, 1);
		kill(-1, SIGTERM);
		put(killed[1], "k", 1);
		waitpid(pid, &status, 0);
		_exit(status != 0);
	}
	finish(first);
	is_direct(); /* or writers would not be needed: all has come */
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

/* The same where the number is another connection's while the program uses it: nothing that the
 * first has left makes that one reset its peer, or keeps it open. */
static void leave_rest_guard(void)
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
	int at = listener(&addr), c = dial(&addr), other = accept(at, NULL, NULL);
	struct pollfd p = {l.c, POLLOUT, 0}, end = {c, POLLIN, 0};
	if (set)
		set(own = set(syscall));
	own(SYS_dup3, other, l.c, 0);
	poll(&p, 1, 0);
	R(getsockopt(other, SOL_SOCKET, SO_LINGER, &now, &len));
	out("%d %d", now.l_onoff, now.l_linger);
	put(other, "mine", 4);
	get(c, buf, 4);
	out("%.4s", buf);
	R(close(l.c));
	R(close(other));
	R(poll(&end, 1, LONG));
	out("%zu more", get(c, buf, 1));
	close(c);
	close(at);
	close(l.ended);
	fclose(l.file);
}

static void leave_rest(void) { rest(by_close, 1); }
static void leave_rest_exit(void) { rest(by_exit, 1); }
static void leave_rest_exit_threads(void) { rest(by_exit_threads, 1); }
static void leave_rest_once(void) { rest(by_once, 1); }
static void leave_rest_once_threads(void) { rest(by_once_threads, 1); }
static void leave_rest_once_more(void) { rest(by_once, 2); }
static void leave_rest_quick(void) { rest(by_quick, 1); }
static void leave_rest_group(void) { rest(by_exit_group, 1); }
static void leave_rest_handler(void) { rest(by_handler, 1); }
static void leave_rest_fork(void) { rest(by_fork, 1); }
static void leave_rest_fork_threads(void) { rest(by_fork_threads, 1); }
static void leave_rest_fork_exit(void) { rest(by_fork_exit, 1); }
static void leave_rest_fork_exit_threads(void) { rest(by_fork_exit_threads, 1); }
static void leave_rest_fork_killed(void) { rest(by_fork_killed, 1); }
static void leave_rest_idle(void) { rest(by_idle, 1); }
static void leave_rest_vfork(void) { rest(by_vfork, 1); }
static void leave_rest_linger(void) { rest(by_linger, 1); }
static void leave_rest_more(void) { rest(by_close, 2); }
static void leave_rest_exit_more(void) { rest(by_exit, 2); }

const struct probe rest_probes[] = {
	{"leave-rest", leave_rest, 0},
	{"leave-rest-exit", leave_rest_exit, 0},
	{"leave-rest-exit-threads", leave_rest_exit_threads, 0},
	{"leave-rest-once", leave_rest_once, 0},
	{"leave-rest-once-threads", leave_rest_once_threads, 0},
	{"leave-rest-once-more", leave_rest_once_more, 0},
	{"leave-rest-quick", leave_rest_quick, 0},
	{"leave-rest-group", leave_rest_group, 0},
	{"leave-rest-handler", leave_rest_handler, 0},
	{"leave-rest-fork", leave_rest_fork, 0},
	{"leave-rest-fork-threads", leave_rest_fork_threads, 0},
	{"leave-rest-fork-exit", leave_rest_fork_exit, 0},
	{"leave-rest-fork-exit-threads", leave_rest_fork_exit_threads, 0},
	{"leave-rest-fork-killed", leave_rest_fork_killed, 0},
	{"leave-rest-idle", leave_rest_idle, 0},
	{"leave-rest-vfork", leave_rest_vfork, 0},
	{"leave-rest-linger", leave_rest_linger, 0},
	{"leave-rest-more", leave_rest_more, 0},
	{"leave-rest-exit-more", leave_rest_exit_more, 0},
	{"leave-rest-stays", leave_rest_stays, 0},
	{"leave-rest-first", leave_rest_first, 0},
	{"leave-rest-orphans", leave_rest_orphans, 0},
	{"leave-rest-zombies", leave_rest_zombies, 0},
	{"leave-rest-number", leave_rest_number, 0},
	{"leave-rest-guard", leave_rest_guard, 0},
	{NULL, NULL, 0},
};

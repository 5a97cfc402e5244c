#include "probe.h"

#include <linux/sched.h>
#include <sys/resource.h>

/* Probes of processes and descriptors. */

extern char **environ;
static char buf[1 << 20];

static void dups(void)
{
	int c, s;
	pair(&c, &s);
	int d = dup(s);
	put(c, "one", 3);
	R(read(d, buf, 10));
	R(close(s));
	put(c, "two", 3);
	R(read(d, buf, 10));
	R(write(d, "back", 4));
	R(read(c, buf, 10));
	int e = fcntl(d, F_DUPFD_CLOEXEC, 40);
	out("%d", e >= 40);
	close(d);
	put(c, "three", 5);
	R(read(e, buf, 10));
	close(e);
	R(read(c, buf, 10));
}

static void dup2_over(void)
{
	int c, s, c2, s2;
	pair(&c, &s);
	pair(&c2, &s2);
	out("%d", dup2(s, s2) == s2); /* closes the other connection */
	R(read(c2, buf, 10));
	put(c, "x", 1);
	R(read(s2, buf, 10));
	out("%d", dup3(s2, s, O_CLOEXEC) == s);
	put(c, "y", 1);
	R(read(s, buf, 10));
	int null = open("/dev/null", O_RDWR);
	dup2(null, s);
	dup2(null, s2);
	R(read(c, buf, 10));
	R(dup2(-1, c));
	R(write(s, "x", 1));
}

// Gives every number above those in use to a file of its own, and takes it back: how many it did
// not get.
static int every_number(void)
{
	enum { FIRST = 64 };
	struct rlimit lim;
	int null = open("/dev/null", O_RDWR), missed = 0;

	getrlimit(RLIMIT_NOFILE, &lim);
	int end = lim.rlim_cur < 20000 ? (int)lim.rlim_cur : 20000;
	for (int fd = FIRST; fd < end; fd++) {
		int got = (fd & 1 ? dup2(null, fd) : dup3(null, fd, O_CLOEXEC)) == fd;

		missed += !got || write(fd, "x", 1) != 1 || close(fd) != 0;
	}
	close(null);
	return missed;
}

// Waits in turn in each way for a byte of the connection, which comes while it sleeps.
static void sleeps_on(int c, int ep)
{
	struct pollfd p = {c, POLLIN, 0};
	fd_set set;

	put(c, "e", 1);
	ep_show(ep, 4, LONG);
	R(read(c, buf, 10));
	put(c, "p", 1);
	R(poll(&p, 1, LONG));
	R(read(c, buf, 10));
	put(c, "s", 1);
	FD_ZERO(&set);
	FD_SET(c, &set);
	R(select(c + 1, &set, NULL, NULL, NULL));
	R(read(c, buf, 10));
	put(c, "r", 1);
	R(read(c, buf, 10));
}

// A program may use any number, and the connection goes on.
static void all_numbers(void)
{
	int c, s, ep;

	pair(&c, &s);
	ep = ep_new();
	R(ep_set(ep, EPOLL_CTL_ADD, c, EPOLLIN, 1));
	R(every_number());
	pid_t pid = fork();
	if (pid == 0) { // answers late
		close(c);
		while (get(s, buf, 1) == 1) {
			nap(20);
			put(s, buf, 1);
		}
		_exit(0);
	}
	close(s);
	sleeps_on(c, ep);
	for (int i = 0; i < 3; i++) {
		// One number is the library's for good: a lock that says that the process lives.
		out("%d", every_number() > 1);
		sleeps_on(c, ep);
	}
	close(c);
	finish(pid);
}

static void fork_serves(void)
{
	int c, s;
	pair(&c, &s);
	pid_t pid = fork();
	if (pid == 0) {
		close(c);
		ssize_t n = read(s, buf, 100);
		put(s, buf, (size_t)n);
		_exit(3);
	}
	close(s);
	put(c, "request", 7);
	R(read(c, buf, 100));
	R(read(c, buf, 100));
	finish(pid);
}

// In a child, c is closed, and a file that gets its number is a file; s is the connection, still.
static void fork_child_of(int c, int s)
{
	close(c);
	int f;
	do
		f = memfd_create("file", 0);
	while (f >= 0 && f < c);
	if (f != c || write(f, "file", 4) != 4 || pread(f, buf, 10, 0) != 4)
		_exit(1);
	ssize_t n = read(s, buf, 100);
	put(s, buf, (size_t)n);
	_exit(3);
}

// A child of the system call itself, as vsftpd makes them.
static void fork_raw(void)
{
	static const long calls[] = {SYS_clone, SYS_fork, SYS_clone3};
	for (int i = 0; i < 3; i++) {
		struct clone_args how = {.exit_signal = SIGCHLD};
		int c, s;
		pair(&c, &s);
		long a = calls[i] == SYS_clone3 ? (long)&how : SIGCHLD, b = calls[i] == SYS_clone3 ? (long)sizeof how : 0;
		pid_t pid = (pid_t)syscall(calls[i], a, b, 0L, 0L, 0L, 0L);
		if (pid == 0)
			fork_child_of(c, s);
		close(s);
		put(c, "request", 7);
		R(read(c, buf, 100));
		R(read(c, buf, 100));
		finish(pid);
		close(c);
	}
}

static void fork_both(void)
{
	int c, s;
	pair(&c, &s);
	for (int i = 0; i < 5; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			ssize_t n = read(s, buf, 100);
			buf[n++] = '!';
			put(s, buf, (size_t)n);
			_exit(0);
		}
		put(c, "child", 5);
		out("%zu %.6s", get(c, buf, 6), buf);
		finish(pid);
		put(c, "parent", 6);
		R(read(s, buf, 100));
		put(s, "ok", 2);
		R(read(c, buf, 100));
	}
	close(s);
	R(read(c, buf, 100));
}

/* Two processes write whole lines to one socket. */
static void fork_writers(void)
{
	int c, s, lines = 0, bad = 0;
	pid_t pid[2];
	pair(&c, &s);
	for (int i = 0; i < 2; i++)
		if ((pid[i] = fork()) == 0) {
			char line[64];
			memset(line, 'a' + i, 63);
			line[63] = '\n';
			for (int j = 0; j < 500; j++)
				put(c, line, 64);
			_exit(0);
		}
	while (lines < 1000) {
		char line[64];
		if (get(s, line, 64) != 64)
			die("short");
		for (int j = 1; j < 63; j++)
			bad += line[j] != line[0];
		bad += line[63] != '\n';
		lines++;
	}
	out("%d lines, %d bad", lines, bad);
	finish(pid[0]);
	finish(pid[1]);
}

static void prefork(void)
{
	struct sockaddr_in a;
	int l = listener(&a), sum = 0;
	pid_t pid[3];
	for (int i = 0; i < 3; i++)
		if ((pid[i] = fork()) == 0) {
			for (;;) {
				int s = accept(l, NULL, NULL);
				ssize_t n;
				while ((n = read(s, buf, 100)) > 0) {
					if (buf[0] == 'q')
						_exit(0);
					put(s, buf, (size_t)n);
				}
				close(s);
			}
		}
	nap(20);
	for (int i = 0; i < 9; i++) {
		int c = dial(&a);
		for (int j = 0; j < 50; j++) {
			put(c, "x", 1);
			sum += (int)get(c, buf, 1);
		}
		close(c);
	}
	out("%d", sum);
	for (int i = 0; i < 3; i++) {
		int c = dial(&a);
		put(c, "q", 1);
		R(read(c, buf, 1));
	}
	for (int i = 0; i < 3; i++)
		finish(pid[i]);
}

void pass_fd(int over, int fd)
{
	char ctl[CMSG_SPACE(sizeof fd)];
	struct iovec v = {"f", 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof ctl};
	memset(ctl, 0, sizeof ctl);
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(h), &fd, sizeof fd);
	if (sendmsg(over, &m, 0) != 1)
		die("sendmsg");
}

static int take_fd(int over)
{
	char ctl[CMSG_SPACE(sizeof(int))], b;
	struct iovec v = {&b, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof ctl};
	int fd = -1;
	if (recvmsg(over, &m, 0) == 1 && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	return fd;
}

static void rights(void)
{
	int c, s, u[2];
	pair(&c, &s);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, u))
		die("socketpair");
	put(c, "before ", 7); /* not read before the socket goes */
	pid_t pid = fork();
	if (pid == 0) {
		close(s);
		close(c);
		int fd = take_fd(u[1]);
		out("child: %zu %.7s", get(fd, buf, 7), buf);
		put(fd, "from the child", 14);
		out("child: %zu %.5s", get(fd, buf, 5), buf);
		_exit(0);
	}
	pass_fd(u[0], s);
	close(s);
	put(c, "after", 5);
	size_t n = get(c, buf, 14);
	finish(pid);
	out("%zu %.14s", n, buf);
	R(read(c, buf, 10));
}

/* What is unread goes with the descriptor, also when the peer cannot write it again: it has closed
 * (gone), or ended its direction. copied: what is passed on is not the descriptor that was used. */
static void rights_of(int gone, int copied)
{
	int c, s, u[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, u))
		die("socketpair");
	pid_t pid = fork();
	if (pid == 0) {
		s = take_fd(u[1]);
		size_t n = get(s, buf, 10);
		out("child: %zu %.6s", n, buf);
		put(s, "answer", gone ? 0 : 6);
		_exit(0);
	}
	pair(&c, &s);
	put(c, "unread", 6);
	if (gone)
		close(c);
	else
		shutdown(c, SHUT_WR);
	ended(s);
	if (copied) {
		int copy = dup(s);
		close(s);
		s = copy;
	}
	pass_fd(u[0], s);
	close(s);
	finish(pid);
	if (gone)
		return;
	size_t n = get(c, buf, 10);
	out("%zu %.6s", n, buf);
	close(c);
}

static void rights_gone(void) { rights_of(1, 0); }
static void rights_copy(void) { rights_of(1, 1); }
static void rights_ended(void) { rights_of(0, 0); }

static void run_cat(int s, int spawn, int vforked)
{
	char *argv[] = {"cat", NULL};
	pid_t pid;
	if (spawn) {
		posix_spawn_file_actions_t fa;
		posix_spawn_file_actions_init(&fa);
		posix_spawn_file_actions_adddup2(&fa, s, 0);
		posix_spawn_file_actions_adddup2(&fa, s, 1);
		posix_spawn_file_actions_addclosefrom_np(&fa, 3);
		if (posix_spawnp(&pid, "cat", &fa, NULL, argv, environ))
			die("posix_spawnp");
		posix_spawn_file_actions_destroy(&fa);
	} else {
		pid = vforked ? vfork() : fork();
		if (pid == 0) {
			dup2(s, 0);
			dup2(s, 1);
			close_range(3, ~0u, 0);
			execvp("cat", argv);
			_exit(127);
		}
	}
}

static void exec_how(int spawn, int vforked)
{
	int c, s;
	pair(&c, &s);
	fcntl(s, F_SETFD, FD_CLOEXEC);
	fcntl(c, F_SETFD, FD_CLOEXEC);
	put(c, "early ", 6); /* unread when the program starts */
	run_cat(s, spawn, vforked);
	close(s);
	put(c, "late ", 5);
	out("%zu %.11s", get(c, buf, 11), buf);
	put(c, "more", 4);
	shutdown(c, SHUT_WR);
	out("%zu %.4s", get(c, buf, 5), buf);
	int st;
	out("%d", wait(&st) > 0 && WIFEXITED(st) ? WEXITSTATUS(st) : -1);
}

static void exec_stdin(void)
{
	exec_how(0, 0);
}

static void exec_vfork(void)
{
	exec_how(0, 1);
}

static void exec_spawn(void)
{
	exec_how(1, 0);
}

/* All has been sent, and the sender is gone, when the program starts. */
static void exec_last_words(void)
{
	int c, s;
	pair(&c, &s);
	fill(buf, 300000, 4);
	put(c, "last words\n", 11);
	close(c);
	nap(20);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(s, 0);
		execlp("cat", "cat", NULL);
		_exit(127);
	}
	close(s);
	finish(pid);
	pair(&c, &s);
	pid = fork();
	if (pid == 0) {
		close(s);
		put(c, buf, 100000);
		shutdown(c, SHUT_WR);
		size_t n = get(c, buf + 300000, 200000);
		out("%zu same %d", n, memcmp(buf, buf + 300000, 100000) == 0);
		_exit(0);
	}
	close(c);
	nap(100);
	pid_t cat = fork();
	if (cat == 0) {
		dup2(s, 0);
		dup2(s, 1);
		execlp("cat", "cat", NULL);
		_exit(127);
	}
	close(s);
	finish(pid);
	finish(cat);
}

/* What the parent has not read yet when a child that leaks it is run. */
static void exec_leak(void)
{
	int c, s;
	pair(&c, &s);
	put(c, "unread", 6);
	R(system("true"));
	R(read(s, buf, 10));
	put(c, "x", 1);
	R(read(s, buf, 10));
	put(s, "y", 1);
	R(read(c, buf, 10));
	FILE *f = popen("echo out", "r");
	out("%d", f && fgets(buf, 100, f) ? (int)strlen(buf) : -1);
	R(pclose(f));
	put(c, "x", 1);
	R(read(s, buf, 10));
}

/* A vfork child closes its copy; the parent's must live. */
static void vfork_close(void)
{
	int c, s;
	pair(&c, &s);
	pid_t pid = vfork();
	if (pid == 0) {
		close(s);
		close(c);
		_exit(0);
	}
	finish(pid);
	put(c, "x", 1);
	R(read(s, buf, 10));
	put(s, "y", 1);
	R(read(c, buf, 10));
	close(s);
	R(read(c, buf, 10));
}

/* Closes the two descriptors at p, in a child that shares the parent's memory. */
static int close_both(void *p)
{
	int *fd = p;

	close(fd[0]);
	close(fd[1]);
	_exit(0);
}

/* A child of clone has a stack of its own. */
static void vfork_clone(void)
{
	static char stack[65536] __attribute__((aligned(16)));
	int fd[2];

	pair(&fd[0], &fd[1]);
	finish(clone(close_both, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, fd));
	put(fd[0], "x", 1);
	R(read(fd[1], buf, 10));
	close(fd[1]);
	R(read(fd[0], buf, 10));
}

/* A child of vfork makes another one. */
static void vfork_nested(void)
{
	int fd[2];

	pair(&fd[0], &fd[1]);
	pid_t pid = vfork();
	if (pid == 0) {
		pid_t child = vfork();
		if (child == 0)
			close_both(fd);
		waitpid(child, NULL, 0);
		close_both(fd);
	}
	finish(pid);
	put(fd[0], "yz", 2);
	R(read(fd[1], buf, 10));
	close(fd[1]);
	R(read(fd[0], buf, 10));
}

static void *reads_one(void *fd)
{
	char b;

	while (read(*(int *)fd, &b, 1) < 0 && errno == EINTR)
		;
	return NULL;
}

// A thread is in a call on a connection while another forks. The child, which has no such thread,
// closes it.
static void fork_thread_reads(void)
{
	int c, s, p[2];
	char b;
	pthread_t t;

	pair(&c, &s);
	R(pipe(p));
	pthread_create(&t, NULL, reads_one, &s);
	nap(50);
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		close(c);
		close(s);
		put(p[1], "x", 1);
		for (;;)
			pause();
	}
	get(p[0], &b, 1);
	put(c, "x", 1);
	pthread_join(t, NULL);
	R(close(s));
	R(readable(c, 5000));
	R(recv(c, &b, 1, MSG_DONTWAIT));
	kill(pid, SIGKILL);
	finish(pid);
}

const struct probe proc_probes[] = {
	{"fork-thread-reads", fork_thread_reads, 0},
	{"dup", dups, 0},
	{"dup2-over", dup2_over, 0},
	{"all-numbers", all_numbers, 0},
	{"fork-child-serves", fork_serves, 0},
	{"fork-system-call", fork_raw, 0},
	{"fork-both-use", fork_both, 0},
	{"fork-writers", fork_writers, 0},
	{"prefork-server", prefork, 1},
	{"scm-rights", rights, 0},
	{"rights-gone", rights_gone, 0},
	{"rights-copy", rights_copy, 0},
	{"rights-ended", rights_ended, 0},
	{"exec-stdin", exec_stdin, 0},
	{"exec-vfork", exec_vfork, 0},
	{"exec-spawn", exec_spawn, 0},
	{"exec-leak", exec_leak, 0},
	{"exec-last-words", exec_last_words, 0},
	{"vfork-close", vfork_close, 0},
	{"vfork-clone", vfork_clone, 0},
	{"vfork-nested", vfork_nested, 0},
	{NULL, NULL, 0},
};

#include "probe.h"

/* Probes of processes, descriptors, threads and signals. */

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

static void pass_fd(int over, int fd)
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

static void serve_and_die(void *p)
{
	int *fd = p;
	close(fd[0]);
	put(fd[1], "dying", 5);
	kill(getpid(), SIGKILL);
}

static void peer_killed(void)
{
	int fd[2];
	pair(&fd[0], &fd[1]);
	pid_t pid = start(serve_and_die, fd);
	close(fd[1]);
	finish(pid);
	R(read(fd[0], buf, 100));
	R(read(fd[0], buf, 100));
	signal(SIGPIPE, SIG_IGN);
	R(write(fd[0], "x", 1));
	nap(20);
	R(write(fd[0], "x", 1));
}

static void sleep_and_die(void *p)
{
	int *fd = p;
	close(fd[0]);
	nap(100);
	kill(getpid(), SIGKILL);
}

static void killed_while_reading(void)
{
	int fd[2];
	pair(&fd[0], &fd[1]);
	pid_t pid = start(sleep_and_die, fd);
	close(fd[1]);
	R(read(fd[0], buf, 100));
	finish(pid);
}

static void peer_exits(void)
{
	int c, s;
	pair(&c, &s);
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		close(c);
		put(s, "farewell", 8);
		exit(0);
	}
	close(s);
	R(read(c, buf, 100));
	R(read(c, buf, 100));
	finish(pid);
}

static void linger(void)
{
	int c, s;
	struct linger l = {1, 0};
	pair(&c, &s);
	R(setsockopt(c, SOL_SOCKET, SO_LINGER, &l, sizeof l));
	R(close(c));
	nap(20);
	struct pollfd p = {s, POLLIN | POLLOUT | POLLRDHUP, 0};
	R(poll(&p, 1, 1000));
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
	nap(20);
	R(close(s));
	nap(20);
	R(read(c, buf, 10));
	R(read(c, buf, 10));
}

static void so_error(void)
{
	int c, s, err = -1;
	socklen_t len = sizeof err;
	struct linger l = {1, 0};
	pair(&c, &s);
	setsockopt(c, SOL_SOCKET, SO_LINGER, &l, sizeof l);
	close(c);
	nap(20);
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
	nap(20);
	R(write(c, "x", 1));
	nap(20);
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

static void timeouts(void)
{
	int c, s;
	struct timeval t = {0, 50000};
	pair(&c, &s);
	R(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
	R(read(s, buf, 10));
	put(c, "x", 1);
	R(read(s, buf, 10));
	R(setsockopt(c, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t));
	ssize_t rc;
	while ((rc = write(c, buf, sizeof buf)) > 0)
		;
	out("%zd %s", rc, errname(errno));
	put(s, "back", 4);
	R(recv(s, buf, 10, MSG_PEEK));
	R(read(c, buf, 10));
}

static volatile int alarms;
static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
}

static void *poke(void *p)
{
	nap(50);
	pthread_kill(*(pthread_t *)p, SIGUSR1);
	return NULL;
}

static int late_fd;
static void *poke_and_write(void *p)
{
	poke(p);
	nap(50);
	put(late_fd, "data", 4);
	return NULL;
}

static void eintr(void)
{
	int c, s;
	pthread_t me = pthread_self(), t;
	struct sigaction sa = {.sa_handler = on_alarm};
	pair(&c, &s);
	sigaction(SIGUSR1, &sa, NULL);
	pthread_create(&t, NULL, poke, &me);
	R(read(s, buf, 10));
	pthread_join(t, NULL);
	pthread_create(&t, NULL, poke, &me);
	struct pollfd p = {s, POLLIN, 0};
	R(poll(&p, 1, 2000));
	pthread_join(t, NULL);
	sa.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &sa, NULL);
	late_fd = c;
	pthread_create(&t, NULL, poke_and_write, &me);
	R(read(s, buf, 10));
	pthread_join(t, NULL);
	pthread_create(&t, NULL, poke, &me);
	R(poll(&p, 1, 2000)); /* never restarted */
	pthread_join(t, NULL);
	out("%d", alarms);
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
	pthread_t me = pthread_self(), t;
	pair(&c, &s);
	signal(SIGUSR2, on_jump);
	for (volatile int i = 0; i < 3; i++) {
		pthread_create(&t, NULL, jump_later, &me);
		if (sigsetjmp(jump, 1) == 0) {
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

const struct probe proc_probes[] = {
	{"dup", dups, 0},
	{"dup2-over", dup2_over, 0},
	{"fork-child-serves", fork_serves, 0},
	{"fork-both-use", fork_both, 0},
	{"fork-writers", fork_writers, 0},
	{"prefork-server", prefork, 1},
	{"scm-rights", rights, 0},
	{"exec-stdin", exec_stdin, 0},
	{"exec-vfork", exec_vfork, 0},
	{"exec-spawn", exec_spawn, 0},
	{"exec-leak", exec_leak, 0},
	{"vfork-close", vfork_close, 0},
	{"peer-killed", peer_killed, 0},
	{"killed-while-reading", killed_while_reading, 0},
	{"peer-exits", peer_exits, 0},
	{"linger-0", linger, 0},
	{"close-unread", close_unread, 0},
	{"so-error", so_error, 0},
	{"sigpipe", sigpipe, 0},
	{"shutdown-read", shutdown_read, 0},
	{"shutdown-wakes", shutdown_wakes, 0},
	{"reuse-4-tuple", reuse, 0},
	{"timeouts", timeouts, 0},
	{"eintr", eintr, 0},
	{"longjmp", longjmps, 0},
	{"cancel", cancel, 0},
	{"threads-share", threads_share, 0},
	{"duplex", duplex, 0},
	{NULL, NULL, 0},
};

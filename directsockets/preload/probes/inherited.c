#include "probe.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

/* Probes of programs that are executed with a connection before it is direct, as inetd and sshd do:
 * they go on with it. The program is this one, in another role: inherited ROLE DESCRIPTOR. */

extern char **environ;
static char data[100000], buf[100000];

/* ---- the program that is executed ----------------------------------------------------- */

static void echo(int fd)
{
	ssize_t n;

	while ((n = read(fd, buf, sizeof buf)) > 0)
		put(fd, buf, (size_t)n);
}

/* Answers n messages of a byte. */
static void answer(int fd, int n)
{
	char c;

	for (int i = 0; i < n && get(fd, &c, 1) == 1; i++)
		put(fd, &c, 1);
}

/* The socket has come as a standard stream, as it does to sshd: it gets another number. */
static int renumber(void)
{
	int fd = dup(0), null = open("/dev/null", O_RDWR);

	dup2(null, 0);
	dup2(null, 1);
	close(null);
	return fd;
}

/* The kernel allows this process hardly more than read and write. */
static void sandbox(void)
{
	static const int fine[] = {SYS_read, SYS_write, SYS_getpid, SYS_exit, SYS_exit_group, SYS_brk, SYS_mmap, SYS_munmap};
	enum { FINE = sizeof fine / sizeof *fine };
	struct sock_filter f[FINE + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	struct sock_fprog p = {FINE + 3, f};

	for (int i = 0; i < FINE; i++)
		f[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)fine[i], (unsigned char)(FINE - i), 0);
	f[FINE + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	f[FINE + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		die("seccomp");
}

/* A child talks to the peer first, in a sandbox, while this process waits. */
static void before(int fd)
{
	int st = -1;
	pid_t pid = fork();

	if (pid == 0) {
		sandbox();
		answer(fd, 5);
		exit(0);
	}
	waitpid(pid, &st, 0);
	if (st)
		_exit(8);
}

int inherited(char **argv)
{
	const char *role = argv[0];
	int fd = atoi(argv[1]);
	char *again[] = {"probes", "inherited", "echo", argv[1], NULL};

	if (getenv("EXNET_DS_INHERITED"))
		return 9; /* nobody else's business */
	if (fd == 0 && strcmp(role, "stdio"))
		fd = renumber();
	if (!strcmp(role, "sealed"))
		return sealed_program();
	if (!strcmp(role, "stdio")) {
		while (fgets(buf, 100, stdin)) {
			printf("you said %s", buf);
			fflush(stdout);
		}
		return 0;
	}
	if (!strcmp(role, "sandbox")) {
		answer(fd, 1);
		before(fd);
	}
	if (!strcmp(role, "again")) {
		answer(fd, 1);
		execv("/proc/self/exe", again);
	}
	echo(fd);
	return 0;
}

/* ---- the program that executes ------------------------------------------------------------ */

static void become(const char *role, int fd, int plain)
{
	char number[12], *argv[] = {"probes", "inherited", (char *)role, number, NULL}, *none[] = {NULL};

	snprintf(number, sizeof number, "%d", fd);
	execve("/proc/self/exe", argv, plain ? none : environ);
	_exit(127);
}

/* A program that cannot be executed. */
static void fail(void)
{
	size_t n = 8 << 20;
	char *huge = malloc(n), *argv[] = {huge, NULL};

	memset(huge, 'x', n - 1);
	huge[n - 1] = 0;
	R(execv("/proc/self/exe", argv));
	free(huge);
}

/* A process that has fd alone, the caller's copy being closed, becomes the program; by number 0 and
 * 1, if std. Without a role that fails, and it goes on. */
static pid_t started(const char *role, int fd, int other, int std)
{
	int closed[2];
	if (pipe2(closed, O_CLOEXEC) < 0)
		die("pipe");
	pid_t pid = fork();

	if (pid == 0) {
		close(other);
		get(closed[0], buf, 1);
		if (!role) {
			fail();
			echo(fd);
			_exit(0);
		}
		if (std) {
			dup2(fd, 0);
			dup2(fd, 1);
			close(fd);
		}
		become(role, std ? 0 : fd, 0);
	}
	close(fd);
	put(closed[1], "x", 1);
	close(closed[0]);
	close(closed[1]);
	return pid;
}

/* Talks until fd is direct, in all a few times at least; then a lot; then its end. */
static void talk(int fd, int want)
{
	char c = 'x';
	int same = 1, rounds = 0;

	do {
		put(fd, &c, 1);
		same &= get(fd, &c, 1) == 1 && c == 'x';
		if (rounds > 20)
			nap(1);
	} while (++rounds < 20 || (want && has_library() && direct(fd) != 3 && rounds < LONG));
	fill(data, sizeof data, 3);
	put(fd, data, sizeof data);
	size_t n = get(fd, buf, sizeof data);
	out("same %d, %zu bytes, same %d", same, n, memcmp(buf, data, sizeof data) == 0);
	if (!want && direct(fd))
		out("direct, which it cannot be");
	shutdown(fd, SHUT_WR);
	R(read(fd, buf, 10));
}

static void by_number(void)
{
	int c, s;
	pair_cold(&c, &s);
	pid_t pid = started("echo", s, c, 0);
	talk(c, 1);
	finish(pid);
}

static void by_stream(void)
{
	int c, s;
	pair_cold(&c, &s);
	pid_t pid = started("echo", s, c, 1);
	talk(c, 1);
	finish(pid);
}

static void of_client(void)
{
	int c, s;
	pair_cold(&c, &s);
	pid_t pid = started("echo", c, s, 0);
	talk(s, 1);
	finish(pid);
}

static void sandboxed(void)
{
	int c, s;
	pair_cold(&c, &s);
	pid_t pid = started("sandbox", s, c, 1);
	talk(c, 1);
	finish(pid);
}

static void twice(void)
{
	int c, s;
	pair_cold(&c, &s);
	pid_t pid = started("again", s, c, 0);
	talk(c, 1);
	finish(pid);
}

/* What the C library itself reads and writes. */
static void by_stdio(void)
{
	int c, s;
	pair_cold(&c, &s);
	pid_t pid = started("stdio", s, c, 1);
	int rounds = 0, same = 1;
	do {
		put(c, "hello\n", 6);
		same &= get(c, buf, 15) == 15 && !memcmp(buf, "you said hello\n", 15);
	} while (++rounds < 50 || (streams_seen() && direct(c) != 3 && rounds < LONG));
	out("same %d", same);
	if (streams_seen() && direct(c) != 3)
		out("not direct");
	shutdown(c, SHUT_WR);
	R(read(c, buf, 10));
	finish(pid);
}

/* The old program keeps the connection, and answers first. */
static void shared(void)
{
	int c, s;
	pair_cold(&c, &s);
	pid_t client = fork();
	if (client == 0) {
		close(s);
		talk(c, 0);
		_exit(0);
	}
	close(c);
	answer(s, 5);
	pid_t pid = fork();
	if (pid == 0)
		become("echo", s, 0);
	finish(pid);
	close(s);
	finish(client);
}

static void without(void)
{
	int c, s;
	pair_cold(&c, &s);
	pid_t pid = fork();
	if (pid == 0)
		become("echo", s, 1);
	close(s);
	talk(c, 0);
	finish(pid);
}

static void not_executed(void)
{
	int c, s;
	pair_cold(&c, &s);
	pid_t pid = started(NULL, s, c, 0);
	talk(c, 1);
	finish(pid);
}

const struct probe inherited_probes[] = {
	{"inherited-number", by_number, 0},
	{"inherited-stream", by_stream, 0},
	{"inherited-client", of_client, 0},
	{"inherited-sandbox", sandboxed, 0},
	{"inherited-twice", twice, 0},
	{"inherited-stdio", by_stdio, 1},
	{"inherited-shared", shared, 1},
	{"inherited-without", without, 1},
	{"inherited-not-executed", not_executed, 0},
	{NULL, NULL, 0},
};

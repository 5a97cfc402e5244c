#include "probe.h"

#include <dlfcn.h>
#include <sys/ioctl.h>

/* Probes of a child of vfork that executes a program with its parent's connection by another
 * number. Parent and program have it from then on: what the peer says is the program's to read, and
 * the parent goes on writing. */

enum { ROUNDS = 100 };

/* What the child does with the number that the connection had, before it executes cat with it as
 * standard input. */
enum how { CLOSE, RANGE, REPLACE, REOPEN, UNSEEN, SHELL };

/* The C library's own close, as its posix_spawn and other libraries call it. */
static int (*unseen)(int fd);

/* In the child of vfork: becomes cat of s, whose peer is c, to o. */
static void become(enum how how, int s, int c, int o)
{
	char *cat[] = {"cat", NULL}, *sh[] = {"sh", "-c", "cat <&9", NULL};

	dup2(s, how == SHELL ? 9 : 0);
	dup2(o, 1);
	if (how == RANGE)
		close_range(3, ~0u, 0);
	if (how == CLOSE || how == SHELL || how == REOPEN)
		close(s);
	if (how == REPLACE)
		dup2(c, s);
	if (how == REOPEN)
		fcntl(c, F_DUPFD, s);
	if (how == UNSEEN)
		unseen(s);
	if (how == REPLACE || how == REOPEN)
		fcntl(s, F_SETFD, FD_CLOEXEC);
	execvp(how == SHELL ? "sh" : "cat", how == SHELL ? sh : cat);
	_exit(127);
}

/* The program that was started with s reads what c sends, and writes it to o. */
static void use(int c, int s, int o, int keeps)
{
	int said = 0, heard = 0;
	char b;

	for (int i = 0; i < ROUNDS; i++) {
		if (keeps) {
			put(s, "p", 1);
			said += get(c, &b, 1) == 1 && b == 'p';
		}
		put(c, "c", 1);
		if (readable(o, LONG) == 1)
			heard += get(o, &b, 1) == 1 && b == 'c';
		else
			break;
		nap(1); /* time to become direct, if it could */
	}
	out("said %d, heard %d", said, heard);
	shutdown(c, SHUT_WR);
	R(read(o, &b, 1));
	if (keeps) {
		put(s, "end", 3);
		close(s);
	}
	char rest[10];
	R(read(c, rest, sizeof rest));
}

/* keeps: the parent keeps its copy, and writes. */
static void start_cat(enum how how, int keeps)
{
	int c, s, p[2];

	pair(&c, &s);
	fcntl(s, F_SETFD, FD_CLOEXEC);
	fcntl(c, F_SETFD, FD_CLOEXEC);
	if (pipe2(p, O_CLOEXEC) < 0)
		die("pipe");
	pid_t pid = vfork();
	if (pid == 0)
		become(how, s, c, p[1]);
	close(p[1]);
	if (!keeps)
		close(s);
	use(c, s, p[0], keeps);
	close(c);
	close(p[0]);
	finish(pid);
}

static void both(enum how how)
{
	start_cat(how, 1);
	start_cat(how, 0);
}

static void exec_close(void) { both(CLOSE); }
static void exec_range(void) { both(RANGE); }
static void exec_replace(void) { both(REPLACE); }
static void exec_reopen(void) { both(REOPEN); }
static void exec_shell(void) { both(SHELL); }

static void exec_unseen(void)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

	unseen = close;
	if (libc)
		*(void **)&unseen = dlsym(libc, "close");
	both(UNSEEN);
}

/* The child closes all but one of two connections, for itself alone, and what passes that one's
 * bytes on gets the numbers of the others: the parent's other one goes on, and cat sees the end. */
static void others(int with)
{
	int c[2], s[2], null = open("/dev/null", O_WRONLY | O_CLOEXEC), said = 0, heard = 0, other = !with;
	char b;

	for (int i = 0; i < 2; i++)
		pair(&c[i], &s[i]);
	put(c[with], "unread", 6);
	pid_t pid = vfork();
	if (pid == 0)
		become(RANGE, s[with], c[with], null);
	while (ioctl(s[with], FIONREAD, &heard) == 0 && heard > 0) /* until cat has it */
		nap(1);
	heard = 0;
	for (int i = 0; i < ROUNDS && said == i && heard == i; i++) {
		said += write(c[other], "p", 1) == 1 && readable(s[other], LONG) == 1 && read(s[other], &b, 1) == 1;
		heard += write(s[other], "c", 1) == 1 && readable(c[other], LONG) == 1 && read(c[other], &b, 1) == 1;
	}
	out("said %d, heard %d", said, heard);
	shutdown(c[with], SHUT_WR);
	finish(pid);
	for (int i = 0; i < 2; i++)
		close(c[i]), close(s[i]);
	close(null);
}

static void exec_others(void)
{
	others(0);
	others(1);
}

const struct probe vfork_probes[] = {
	{"vfork-exec-others", exec_others, 0},
	{"vfork-exec-close", exec_close, 0},
	{"vfork-exec-range", exec_range, 0},
	{"vfork-exec-replace", exec_replace, 0},
	{"vfork-exec-reopen", exec_reopen, 0},
	{"vfork-exec-shell", exec_shell, 0},
	{"vfork-exec-unseen", exec_unseen, 0},
	{NULL, NULL, 0},
};

/* Calls that replace the program. */
#include "hooks/inherited.h"
#include "hooks/dgram.h"
#include "hooks/hooks.h"
#include "hooks/launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

/* ---- what a new program inherits -------------------------------------------- */

enum { CARRIED = 16 };

struct by_cookie {
	uint64_t cookie;
	int fd;
	bool found;	     /* a connection that has it */
	struct inheritance *inheritance; /* of the program that is about to run; NULL: it cannot continue with any connection */
	/* In a child of vfork: sockets that were carried, and the ends that replace all their
	 * descriptors. */
	struct carried {
		uint64_t cookie;
		int end;
	} *carried;
};

/* For conn_each: if c has the cookie of struct by_cookie *, leaves it to the new program, passes it
 * on, or moves it back to TCP. */
static void demote_cookie(struct conn *c, void *arg)
{
	struct by_cookie *b = arg;
	uint64_t cookie = conn_cookie(c);

	if (cookie != b->cookie)
		return;
	b->found = true;
	if (b->inheritance && inherit_add(c, b->fd, cookie, b->inheritance))
		return;
	for (int i = 0; i < CARRIED; i++)
		if (b->carried[i].cookie == 0) {
			hand_over(c, b->fd, TAKER_EXEC, &b->carried[i].end);
			if (b->carried[i].end >= 0)
				b->carried[i].cookie = cookie;
			return;
		} else if (b->carried[i].cookie == cookie) {
			REAL(dup2, b->carried[i].end, b->fd);
			return;
		}
	ds_fall_back(c->life.s, b->fd);
}

/* For conn_each, in a child of vfork: if the cookie of c is not to be had, moves it back to TCP. It
 * has no segment yet, so that nothing has to be passed on. */
static void demote_unknown(struct conn *c, void *arg)
{
	(void)arg;
	if (!conn_cookie(c))
		ds_fall_back(c->life.s, conn_fd(c));
}

/* For conn_each: sets *(bool *)arg, as there is one. */
static void count_one(struct conn *c, void *arg)
{
	(void)c;
	*(bool *)arg = true;
}

void inherit_demote(struct inheritance *inheritance)
{
	char buf[2048];
	struct carried carried[CARRIED] = {{0, 0}};
	int saved = errno;
	bool any = false;

	dg_inherited();
	if (!fd_vforked())
		uncounted_settle();
	conn_each(CONN_IN(CONN_KNOWN) | (fd_vforked() ? CONN_IN(CONN_CONNECTING) | CONN_IN(CONN_UNCOUNTED) : 0), count_one, &any);
	int dir = any ? kernel_open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (dir < 0) {
		if (any && !fd_vforked())
			spawn_demote(TAKER_SYSTEM);
		errno = saved;
		return;
	}
	for (long n; (n = syscall(SYS_getdents64, dir, buf, sizeof buf)) > 0;)
		for (long off = 0; off < n;) {
			struct dirent64 *d = (struct dirent64 *)(void *)(buf + off);
			struct by_cookie b = {0, 0, false, inheritance, carried};
			off += d->d_reclen;
			if (d->d_name[0] < '0' || d->d_name[0] > '9')
				continue;
			for (const char *c = d->d_name; *c; c++)
				b.fd = b.fd * 10 + (*c - '0');
			int fl = REAL(fcntl, b.fd, F_GETFD);
			if (fl < 0 || (fl & FD_CLOEXEC) || !(b.cookie = fd_cookie(b.fd)))
				continue;
			b.found = fd_vforked() && uncounted_leave(b.cookie);
			conn_each(CONN_IN(CONN_KNOWN), demote_cookie, &b);
			if (fd_vforked() && !b.found && fd_is_tcp(b.fd)) {
				/* One whose number the child has closed unseen, or none of ours. */
				uncounted_leave(0);
				conn_each(CONN_IN(CONN_KNOWN), demote_unknown, NULL);
			}
		}
	REAL(close, dir);
	errno = saved;
}

/* ---- exec ------------------------------------------------------------------ */

typedef int exec_fn(const char *, char *const[], char *const[]);

/* Executes the launcher of a static program by real. */
static int launch(exec_fn *real, const char *launcher, const char *file, char *const argv[], char *const envp[])
{
	char *args[launch_room(argv)];

	launch_args(file, argv, args);
	return real(launcher, args, envp);
}

/* Executes file by real. Before that, moves what the new program inherits back to TCP, or leaves it
 * to the program by a word in its environment; not if there is no such file to execute. A program
 * that has no use for this library does not get it. */
static int run(exec_fn *real, const char *file, bool search, char *const argv[], char *const envp[])
{
	struct inheritance inheritance;
	int saved = errno;

	inherit_begin(&inheritance, file, search, envp);
	if (search || fd_is_sealed() || (file && kernel_access(file, X_OK) == 0))
		inherit_demote(&inheritance);
	errno = saved;
	const char *launcher = inheritance.n ? NULL : launcher_of(file, search, argv, envp);
	if (launcher)
		launch(real, launcher, file, argv, envp);
	errno = saved;
	if (!inheritance.n && !spared(file, search, envp))
		return real(file, argv, envp);
	char *with[inherit_room(envp)];
	if (inheritance.n)
		inherit_tell(&inheritance, envp, with);
	else
		spared_env(envp, with);
	return real(file, argv, with);
}

EXPORT int execve(const char *path, char *const argv[], char *const envp[]) { return run(REAL_FN(execve), path, false, argv, envp); }
EXPORT int execv(const char *path, char *const argv[]) { return run(REAL_FN(execve), path, false, argv, environ); }
EXPORT int execvp(const char *file, char *const argv[]) { return run(REAL_FN(execvpe), file, true, argv, environ); }
EXPORT int execvpe(const char *file, char *const argv[], char *const envp[]) { return run(REAL_FN(execvpe), file, true, argv, envp); }

EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
	inherit_demote(NULL);
	return REAL_FN(fexecve)(fd, argv, envp);
}

EXPORT int execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags)
{
	inherit_demote(NULL);
	if (!REAL_FN(execveat))
		return (int)syscall(SYS_execveat, dir, path, argv, envp, flags);
	return REAL_FN(execveat)(dir, path, argv, envp, flags);
}

enum { MAX_ARGS = 4096 };

/* The body of execl and the like: collects the arguments from first up to NULL, and then calls.
 * envp follows them, if there is one. */
#define LISTED(first, env, call) \
	const char *argv[MAX_ARGS + 1] = {first}; \
	char *const *envp = environ; \
	int n = 0; \
	va_list ap; \
	va_start(ap, first); \
	while (argv[n] && n < MAX_ARGS) \
		argv[++n] = va_arg(ap, const char *); \
	if (env && !argv[n]) \
		envp = va_arg(ap, char *const *); \
	va_end(ap); \
	(void)envp; \
	errno = E2BIG; \
	return argv[n] ? -1 : call

EXPORT int execl(const char *path, const char *arg, ...) { LISTED(arg, false, execve(path, (char *const *)argv, envp)); }
EXPORT int execlp(const char *file, const char *arg, ...) { LISTED(arg, false, execvp(file, (char *const *)argv)); }
EXPORT int execle(const char *path, const char *arg, ...) { LISTED(arg, true, execve(path, (char *const *)argv, envp)); }

/* Calls that make processes, and the start and exit of this one. */
#include "hooks/inherited.h"
#include "hooks/dgram.h"
#include "hooks/hooks.h"
#include "hooks/launch.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* ---- fork ----------------------------------------------------------------- */

/* For pthread_atfork, in the parent: releases the locks of fork_prepare. */
static void forked(void) { fork_parent(1); }

/* A sanitizer's runtime registers handlers before it can bear a function that it watches. */
#define UNWATCHED __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

/* Registers this library's handlers, before anybody else's: the first prepare last, and take their
 * locks while nobody waits for a lock that a program's handlers take. */
UNWATCHED static void at_fork(void)
{
	static bool done;

	if (done || getauxval(AT_SECURE))
		return;
	done = true;
	pthread_atfork(fork_prepare, forked, fork_child);
}

#ifdef DS_FREE /* which sees the system call */
#elif defined(__GLIBC__)
/* What pthread_atfork calls. */
EXPORT int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *of);
EXPORT UNWATCHED int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *of)
{
	static __typeof__(__register_atfork) *real;

	if (!real)
		real = (__typeof__(__register_atfork) *)dlsym(RTLD_NEXT, "__register_atfork");
	at_fork();
	return real(prepare, parent, child, of);
}
#else
EXPORT UNWATCHED int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	static __typeof__(pthread_atfork) *real;

	if (!real)
		real = (__typeof__(pthread_atfork) *)dlsym(RTLD_NEXT, "pthread_atfork");
	at_fork();
	return real(prepare, parent, child);
}
#endif

EXPORT pid_t _Fork(void)
{
	fork_prepare();
	pid_t pid = REAL(_Fork);
	if (pid == 0)
		fork_child();
	else
		fork_parent(pid);
	return pid;
}

/* Does clone with these flags make a process that shares our memory, but is no thread? */
static bool is_stranger(unsigned long flags) { return (flags & (CLONE_VM | CLONE_THREAD)) == CLONE_VM; }

struct clone_start {
	int (*fn)(void *);
	void *arg;
};

/* The first function of a child of clone: struct clone_start *. Its locks are made anew. */
static int clone_child(void *p)
{
	struct clone_start s = *(struct clone_start *)p;

	fork_child();
	return s.fn(s.arg);
}

EXPORT int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	static __typeof__(clone) *real;
	struct clone_start start = {fn, arg};
	void *rest[3];
	va_list ap;

	va_start(ap, arg);
	for (int i = 0; i < 3; i++)
		rest[i] = va_arg(ap, void *);
	va_end(ap);
	if (!real)
		real = (__typeof__(clone) *)ds_next("clone");
	if ((flags & CLONE_VM) || !fn || !stack) {
		bool vforks = (flags & (CLONE_VM | CLONE_VFORK | CLONE_THREAD | CLONE_SETTLS)) == (CLONE_VM | CLONE_VFORK);

		if (!vforks && is_stranger((unsigned long)flags))
			fd_doubt();
		fd_vforks += vforks;
		int pid = real(fn, stack, flags, arg, rest[0], rest[1], rest[2]);
		fd_vforks -= vforks;
		return pid;
	}
	fork_prepare();
	pid_t pid = real(clone_child, stack, flags, &start, rest[0], rest[1], rest[2]);
	fork_parent(pid);
	return pid;
}
ALIAS(__clone, clone);

/* True if a system call makes a process with memory of its own on the same stack, as fork does. A
 * process that shares our memory is a thread or a child of vfork, and clone() handles those with a
 * new stack. */
static bool is_fork(long nr, const long *a)
{
	const struct clone_args *how = (const struct clone_args *)a[0];

	switch (nr) {
#ifdef SYS_fork
	case SYS_fork: return true;
#endif
	case SYS_clone: return !(a[0] & CLONE_VM) && !a[1];
	case SYS_clone3: return (uintptr_t)how >= 4096 && (size_t)a[1] >= CLONE_ARGS_SIZE_VER0 && !(how->flags & CLONE_VM) && !how->stack;
	}
	return false;
}

/* If a system call makes a process that shares our memory, the kernel is asked from now on which
 * process this is. */
static void note_stranger(long nr, const long *a)
{
	const struct clone_args *how = (const struct clone_args *)a[0];

#ifdef SYS_vfork
	if (nr == SYS_vfork)
		fd_doubt();
#endif
	if ((nr == SYS_clone && is_stranger((unsigned long)a[0])) ||
	    (nr == SYS_clone3 && (uintptr_t)how >= 4096 && (size_t)a[1] >= CLONE_ARGS_SIZE_VER0 && is_stranger(how->flags)))
		fd_doubt();
}

bool fork_call(long nr, const long *a, long *pid)
{
	note_stranger(nr, a);
	if (!is_fork(nr, a))
		return false;
	fork_prepare();
	*pid = ds_syscall((int)nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (*pid == 0)
		fork_child();
	else
		fork_parent((pid_t)*pid);
	return true;
}

/* ---- what a child that the C library makes inherits ---------------------------- */

void spawn_demote(enum taker taker)
{
	int saved = errno;

	dg_inherited();
	for (unsigned fd = 0; fd < fd_tab_end; fd++) {
		if (fd_kind((int)fd) != FD_CONN)
			continue;
		int fl = REAL(fcntl, (int)fd, F_GETFD);
		struct conn *c = fl >= 0 && !(fl & FD_CLOEXEC) ? conn_get((int)fd) : NULL;
		if (!c)
			continue;
		int end = -1;
		if (conn_is(c) == CONN_KNOWN)
			hand_over(c, (int)fd, taker, &end);
		conn_put(c);
	}
	errno = saved;
}

/* ---- children that the C library makes --------------------------------------- */

typedef int spawn_fn(pid_t *pid, const char *file, const posix_spawn_file_actions_t *fa, const posix_spawnattr_t *attr, char *const argv[], char *const envp[]);

/* Starts the program by real, without this library if it has no use for that. */
static int spawn(spawn_fn *real, bool search, pid_t *pid, const char *file, const posix_spawn_file_actions_t *fa, const posix_spawnattr_t *attr,
		 char *const argv[], char *const envp[])
{
	spawn_demote(TAKER_LEAK);
	/* In another folder a relative path may name another program. */
	bool elsewhere = fa && file && file[0] != '/';
	const char *launcher = elsewhere ? NULL : launcher_of(file, search, argv, envp);
	if (launcher) {
		char *args[launch_room(argv)];
		launch_args(file, argv, args);
		return real(pid, launcher, fa, attr, args, envp);
	}
	if (elsewhere || !spared(file, search, envp))
		return real(pid, file, fa, attr, argv, envp);
	char *with[inherit_room(envp)];
	spared_env(envp, with);
	return real(pid, file, fa, attr, argv, with);
}

EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *fa, const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	return spawn(REAL_FN(posix_spawn), false, pid, path, fa, attr, argv, envp);
}

EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *fa, const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	return spawn(REAL_FN(posix_spawnp), true, pid, file, fa, attr, argv, envp);
}

/* The child's copy stays open across exec, whatever the original's flag. */
EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *fa, int fd, int newfd)
{
	static __typeof__(posix_spawn_file_actions_adddup2) *real;
	struct conn *c = conn_get(fd);

	if (!real)
		real = (__typeof__(posix_spawn_file_actions_adddup2) *)ds_next("posix_spawn_file_actions_adddup2");
	if (c) {
		int end = -1;
		if (conn_is(c) == CONN_KNOWN)
			hand_over(c, fd, TAKER_DUP, &end);
		else
			conn_demote(c, fd);
		conn_put(c);
	}
	return real(fa, fd, newfd);
}

EXPORT int system(const char *command)
{
	if (command)
		spawn_demote(TAKER_SYSTEM);
	return REAL(system, command);
}

EXPORT FILE *popen(const char *command, const char *mode)
{
	spawn_demote(TAKER_SYSTEM);
	return REAL(popen, command, mode);
}

/* ---- this process ------------------------------------------------------------- */

/* For probes and tests: 1 fd sends direct, 2 receives direct, 3 both; 0 neither; -1 the
 * library does not know it. */
EXPORT int exnds_mode(int fd);
EXPORT int exnds_mode(int fd)
{
	struct conn *c = conn_get(fd);
	int mode = -1;

	if (!c)
		return mode;
	if (conn_is(c) == CONN_CONNECTING)
		conn_completed(c, fd);
	if (conn_is(c) == CONN_KNOWN) {
		ds_tick(c->life.s, fd);
		mode = ds_direct(c->life.s);
	}
	conn_put(c);
	return mode;
}

/* For probes: whether fd is an uncounted connection, which stays so. */
EXPORT int exnds_uncounted(int fd);
EXPORT int exnds_uncounted(int fd)
{
	struct conn *c = conn_peek(fd);
	int uncounted = c && conn_is(c) == CONN_UNCOUNTED;

	if (c)
		conn_put(c);
	return uncounted;
}

/* For probes: whether standard streams may be direct, as the C library's own calls come here. */
EXPORT int exnds_streams_seen(void);
EXPORT int exnds_streams_seen(void) { return !fd_is_stream(STDIN_FILENO); }

/* For probes: call makes the system calls that the library makes for itself. Returns what made them
 * before. */
EXPORT ds_kernel_fn *exnds_kernel(ds_kernel_fn *call);
EXPORT ds_kernel_fn *exnds_kernel(ds_kernel_fn *call) { return __atomic_exchange_n(&ds_kernel, call, __ATOMIC_SEQ_CST); }

uint32_t inherited_numbers = UINT32_MAX;

/* Tries all numbers: to have the kernel count the descriptors, in /proc, takes four times as long.
 * No poll: that is noticed, by a file of FUSE and by one of /proc, which tells each change once. */
DS_START void adopt_listeners(int first, int end)
{
	for (int fd = first; fd < end; fd++) {
		int yes = 0;
		socklen_t len = sizeof yes;

		if (fd < INHERITED_END && !(inherited_numbers >> fd & 1))
			continue;
		if (REAL(getsockopt, fd, SOL_SOCKET, SO_ACCEPTCONN, &yes, &len) == 0 && yes && ds_listen(fd))
			fd_set_listener(fd);
	}
}

#ifndef DS_FREE /* which sees the system call */
/* quick_exit calls it after what the program has registered. */
static void stop_at_once(void) { fd_leave(true); }
#endif

/* Before patch.c's, which has no place in the order. */
__attribute__((constructor(60000))) DS_START static void start(void)
{
	int saved = errno;

	ds_real_init();
	signals_init();
	if (getauxval(AT_SECURE))
		return; /* set-user-ID and the like: plain TCP */
	ds_env_keep();
	ep_init(stay_behind);
	vfork_init();
	at_fork();
#ifndef DS_FREE
	(void)at_quick_exit(stop_at_once); /* without memory for it, quick_exit ends as a kill does */
#endif
	ds_knock();
	adopt_listeners(STDERR_FILENO + 1, INHERITED_END);
	inherit_take();
	ds_own_path(); /* now, as this takes a lock */
	errno = saved;
}

__attribute__((destructor)) DS_START static void stop(void) { fd_leave(false); }

EXPORT void _exit(int status)
{
	fd_leave(true);
	REAL_FN(_exit)(status);
	__builtin_unreachable();
}
ALIAS(_Exit, _exit);

EXPORT int chroot(const char *path)
{
	if (!fd_vforked() && fd_tab_size > 0) /* it has sockets */
		ds_connect_broker();
	return REAL(chroot, path);
}

/* A thread with a table of descriptors of its own: what it closes there, others have still. The
 * table of this library (fd_tab) is one for the process, so the kernel has all sockets from now on.
 * */
EXPORT int unshare(int flags)
{
	fd_unshare((unsigned)flags & CLONE_FILES);
	return (int)ds_syscall(SYS_unshare, flags);
}

/* ---- fewer system calls ---------------------------------------------------------- */

EXPORT int prctl(int option, ...)
{
	unsigned long a[4];
	va_list ap;

	va_start(ap, option);
	for (int i = 0; i < 4; i++)
		a[i] = va_arg(ap, unsigned long);
	va_end(ap);
	if (option == PR_SET_SECCOMP && (a[0] == SECCOMP_MODE_STRICT || a[1])) /* without a filter it only asks what the kernel supports */
		fd_seal();
	return REAL(prctl, option, a[0], a[1], a[2], a[3]);
}

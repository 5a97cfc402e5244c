#include "conn/place.h"

#include "conn/env.h"
#include "conn/fds.h"
#include "conn/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { DIGITS = 24, RUN = 256 };
static const char roots[] = "/run/exn/ds";

/* Copies, since programs change their environment (nginx's workers clear it). */
static char env_tap[sizeof ((struct sockaddr_un *)0)->sun_path], env_path[sizeof env_tap], env_run[RUN];

void ds_place_init(void)
{
	const char *tap = ds_env("EXNET_TAP"), *path = ds_env("EXNET_BROKER"), *run = ds_env("XDG_RUNTIME_DIR");

	if (tap && strlen(tap) < sizeof env_tap)
		strcpy(env_tap, tap);
	/* A path that is too long must fail, rather than be passed over. */
	if (path)
		strncpy(env_path, strlen(path) < sizeof env_path ? path : "/", sizeof env_path - 1);
	if (run && strlen(run) < sizeof env_run)
		strcpy(env_run, run);
}

/* Appends v in decimal to path, which has room for it. */
DS_START static void append(char *path, unsigned long v)
{
	char digits[DIGITS];
	size_t len = strlen(path);
	int n = 0;

	do
		digits[n++] = (char)('0' + v % 10);
	while (v /= 10);
	while (n)
		path[len++] = digits[--n];
	path[len] = 0;
}

/* The first number of a file, or none if it is not there; skip: what comes before it. */
static unsigned long number_in(const char *path, int skip, unsigned long none)
{
	char b[128], *at = b, *end;
	int fd = (int)ds_syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : ds_syscall(SYS_read, fd, b, sizeof b - 1);

	if (fd >= 0)
		ds_syscall(SYS_close, fd);
	if (n <= 0)
		return none;
	b[n] = 0;
	for (;; skip--, at = end) {
		unsigned long v = strtoul(at, &end, 10);

		if (end == at)
			return none;
		if (!skip)
			return v;
	}
}

enum { OVERFLOW = 65534 };
static const unsigned long all_users = 4294967295;

/* Is a broker of user uid in roots the host's, as a container in a user namespace of its own sees
 * it? The user is none of the namespace's, and the directory a read-only mount, which nobody in the
 * container can have written to, at a path that only its root can have made. */
static bool is_given(uid_t uid)
{
	static const char *const path[] = {"/run", "/run/exn", roots};
	struct statfs fs;

	if (number_in("/proc/self/uid_map", 2, all_users) == all_users) /* all users are known */
		return false;
	uid_t unknown = (uid_t)number_in("/proc/sys/kernel/overflowuid", 0, OVERFLOW);
	if (uid != unknown)
		return false;
	for (unsigned i = 0; i < sizeof path / sizeof *path; i++) {
		struct stat st;

		if (kernel_lstat(path[i], &st) < 0 || !S_ISDIR(st.st_mode) || (st.st_mode & (S_IWGRP | S_IWOTH)) || (st.st_uid && st.st_uid != unknown))
			return false;
	}
	return kernel_statfs(roots, &fs) == 0 && (fs.f_flags & ST_RDONLY);
}

/* Connects to the socket at path, if root or this user listens there, or, given, the host's broker:
 * a descriptor, or -1 and errno. */
static int try(const char *path, bool given)
{
	uid_t user;
	int fd = rpc_dial(path, SOCK_NONBLOCK, &user);

	if (fd >= 0 && user != 0 && user != kernel_geteuid() && !(given && is_given(user))) {
		REAL(close, fd);
		fd = -EACCES;
	}
	if (fd >= 0)
		return fd;
	errno = -fd;
	return -1;
}

/* Puts the path of the socket of this network namespace in dir, which has at most RUN + 16 bytes,
 * into path, which has room for it. */
DS_START static bool path_in(const char *dir, char *path)
{
	struct stat st;

	if (kernel_stat("/proc/self/ns/net", &st) < 0)
		return false;
	strcpy(path, dir);
	strcat(path, "/");
	append(path, st.st_ino);
	strcat(path, ".sock");
	return true;
}

enum { PATH_ROOM = RUN + 16 + DIGITS + 8 };

/* Connects to the socket of this network namespace in dir. */
static int try_in(const char *dir)
{
	char path[PATH_ROOM];

	return path_in(dir, path) ? try(path, dir == roots) : -1;
}

/* Is path a directory, and no link to one, that only this user or root may write? Nobody else has
 * put there what is in it. */
static bool is_own(const char *path)
{
	struct stat st;

	return kernel_lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_uid == 0 || st.st_uid == kernel_geteuid()) &&
	       (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Has root or this user made the socket at path, which takes nobody? Whoever listens there does not
 * say who it is. */
static bool is_tap(const char *path)
{
	struct stat st;
	bool own = kernel_lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) && (st.st_uid == 0 || st.st_uid == kernel_geteuid());

	errno = EAGAIN;
	return own;
}

int ds_place_roots(void) { return try_in(roots); }

int ds_place_find(bool *users)
{
	char dir[RUN + 16] = "/tmp/exn-";
	int fd;

	*users = false;
	/* A daemon outlives the exn-run that has the tap. While that is there it is the way, also
	 * if it takes nobody at the moment. */
	if (*env_tap && ((fd = try(env_tap, false)) >= 0 || (errno == EAGAIN && is_tap(env_tap))))
		return fd;
	if (*env_path)
		return try(env_path, false);
	if ((fd = ds_place_roots()) >= 0)
		return fd;
	*users = true;
	if (*env_run) {
		strcpy(dir, env_run);
		strcat(dir, "/exn");
	} else {
		append(dir, kernel_geteuid());
	}
	/* In /tmp anybody could have made both. */
	if (!is_own(dir))
		return -1;
	strcat(dir, "/ds");
	return is_own(dir) ? try_in(dir) : -1;
}

static bool knocked DS_START_DATA = false;

DS_START void ds_knock(void)
{
	struct sockaddr_un a = {AF_UNIX, "/run/exn/ds/agent.sock"};
	char path[PATH_ROOM];
	struct stat st;

	if (ds_syscall(SYS_faccessat, AT_FDCWD, a.sun_path, F_OK) < 0) /* there is no agent */
		return;
	if (ds_env("EXNET_TAP") || ds_env("EXNET_BROKER") || !path_in(roots, path) || kernel_stat(path, &st) == 0)
		return;
	/* Nothing is said: the kernel tells the agent which process connects. */
	int fd = (int)ds_syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	if (ds_syscall(SYS_connect, fd, &a, sizeof a) == 0)
		knocked = true;
	ds_syscall(SYS_close, fd);
}

bool ds_place_knocked(void) { return knocked; }

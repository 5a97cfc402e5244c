#include "conn/place.h"

#include "conn/env.h"
#include "conn/fds.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { DIGITS = 24, RUN = 256 };

/* Copies, since programs change their environment (nginx's workers clear it). */
static char env_path[sizeof ((struct sockaddr_un *)0)->sun_path], env_run[RUN];

void ds_place_init(void)
{
	const char *path = ds_env("EXNET_BROKER"), *run = ds_env("XDG_RUNTIME_DIR");

	/* A path that is too long must fail, rather than be passed over. */
	if (path)
		snprintf(env_path, sizeof env_path, "%s", strlen(path) < sizeof env_path ? path : "/");
	if (run && strlen(run) < sizeof env_run)
		strcpy(env_run, run);
}

/* Appends v in decimal to path, which has room for it. */
static void append(char *path, unsigned long v)
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

/* Connects to the socket at path, if root or this user listens there: a kept descriptor, or -1 and
 * errno. */
static int try(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct ucred peer;
	socklen_t len = sizeof peer;
	int fd;

	if (strlen(path) >= sizeof a.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(a.sun_path, path, strlen(path) + 1);
	fd = REAL(socket)(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if (REAL(connect)(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
	    REAL(getsockopt)(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0) {
		if (peer.uid == 0 || peer.uid == geteuid())
			return ds_fd_keep(fd);
		errno = EACCES;
	}
	int saved = errno;
	REAL(close)(fd);
	errno = saved;
	return -1;
}

/* Connects to the socket of this network namespace in dir, a path of at most RUN + 16 bytes. */
static int try_in(const char *dir)
{
	char path[RUN + 16 + DIGITS + 8];
	struct stat st;

	if (stat("/proc/self/ns/net", &st) < 0)
		return -1;
	strcpy(path, dir);
	strcat(path, "/");
	append(path, st.st_ino);
	strcat(path, ".sock");
	return try(path);
}

/* Is path a directory, and no link to one, that only this user or root may write? Nobody else has
 * put there what is in it. */
static bool is_own(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_uid == 0 || st.st_uid == geteuid()) &&
	       (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

int ds_place_roots(void) { return try_in("/run/exn/ds"); }

int ds_place_find(bool *users)
{
	char dir[RUN + 16] = "/tmp/exn-";
	int fd;

	*users = false;
	if (*env_path)
		return try(env_path);
	if ((fd = ds_place_roots()) >= 0)
		return fd;
	*users = true;
	if (*env_run) {
		strcpy(dir, env_run);
		strcat(dir, "/exn");
	} else {
		append(dir, geteuid());
	}
	/* In /tmp anybody could have made both. */
	if (!is_own(dir))
		return -1;
	strcat(dir, "/ds");
	return is_own(dir) ? try_in(dir) : -1;
}

// Where the library looks for its broker: not in a directory that somebody else may write, which in
// /tmp anybody could have made.
#include "harness.h"

#include "conn/place.h"
#include "segment/real.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char run[] = "/tmp/exnds-place-XXXXXX", top[64], dir[96], other[64], name[160], link_to[64], tap[64];

// Whether the broker in the user's directory is found.
static bool found(void)
{
	bool own = false;
	int fd = ds_place_find(&own);

	if (fd >= 0)
		close(fd);
	CHECK(own || access(name, F_OK) != 0, "it is the user's");
	return fd >= 0;
}

static void refused(const char *path)
{
	static const mode_t open_to_others[] = {0777, 0775, 0757, 01777};

	for (unsigned i = 0; i < sizeof open_to_others / sizeof *open_to_others; i++) {
		CHECK(chmod(path, open_to_others[i]) == 0 && !found(), "%s with mode %o is used", path, open_to_others[i]);
		CHECK(chmod(path, 0755) == 0 && found(), "%s is not used", path);
	}
	if (geteuid() == 0) {
		CHECK(chown(path, 65534, 65534) == 0 && !found(), "%s of somebody else is used", path);
		CHECK(chown(path, 0, 0) == 0 && found(), "%s is not used", path);
	}
	CHECK(rename(path, other) == 0 && symlink(other, path) == 0 && !found(), "the link %s is used", path);
	CHECK(unlink(path) == 0 && rename(other, path) == 0 && found(), "%s is not used", path);
}

// The descriptor of a listener of a user's at path.
static int listening(const char *path, uid_t uid, int backlog)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	strcpy(at.sun_path, path);
	if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || seteuid(uid) < 0 || listen(fd, backlog) < 0 || seteuid(getuid()) < 0)
		abort();
	return fd;
}

// A tap goes before the broker's own places while it is there, and no longer: a daemon outlives the
// exn-run that has it.
static void tapped(void)
{
	bool own = true;
	int listener = listening(tap, getuid(), 0), fd = ds_place_find(&own);
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	strcpy(at.sun_path, tap);
	CHECK(fd >= 0 && !own, "a tap is not used");
	errno = 0; // one has its place in the queue
	CHECK(ds_place_find(&own) < 0 && errno == EAGAIN && !own, "a tap that takes nobody at the moment is passed over");
	close(fd);
	close(listener);
	CHECK(found(), "a tap that has ended is in the way");
	unlink(tap);
	CHECK(found(), "a tap that is gone is in the way");
	if (getuid() == 0) {
		listener = listening(tap, 65534, 1);
		CHECK(found(), "somebody else's tap is in the way");
		close(listener);
		unlink(tap);
		listener = listening(tap, 65534, 0);
		CHECK(lchown(tap, 65534, 65534) == 0, "the tap stays root's");
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
		CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0, "the tap takes nobody");
		CHECK(found(), "somebody else's tap that takes nobody is in the way");
		close(fd);
		close(listener);
		unlink(tap);
	}
}

int main(int argc, char **argv)
{
	struct stat st;

	(void)argc;
	if (getenv("XDG_RUNTIME_DIR") || getenv("EXNET_BROKER") || getenv("EXNET_TAP")) { // the library keeps what they were at first
		unsetenv("XDG_RUNTIME_DIR");
		unsetenv("EXNET_TAP");
		unsetenv("EXNET_BROKER");
		execv("/proc/self/exe", argv);
		abort();
	}
	ds_real_init();
	if (!mkdtemp(run) || stat("/proc/self/ns/net", &st) < 0)
		abort();
	snprintf(name, sizeof name, "/run/exn/ds/%lu.sock", (unsigned long)st.st_ino);
	if (access(name, F_OK) == 0) {
		printf("skipped: this namespace has a broker of root's\n");
		return rmdir(run);
	}
	snprintf(top, sizeof top, "%s/exn", run);
	snprintf(dir, sizeof dir, "%s/ds", top);
	snprintf(other, sizeof other, "%s/other", run);
	snprintf(name, sizeof name, "%s/%lu.sock", dir, (unsigned long)st.st_ino);
	snprintf(link_to, sizeof link_to, "%s/roots", run);
	snprintf(tap, sizeof tap, "%s/tap", run);
	listening(link_to, getuid(), 64);
	if (mkdir(top, 0755) < 0 || mkdir(dir, 0755) < 0 || symlink(link_to, name) < 0)
		abort();
	setenv("XDG_RUNTIME_DIR", run, 1);
	setenv("EXNET_TAP", tap, 1);
	ds_place_init();
	CHECK(found(), "the broker in the user's own directory");
	refused(top);
	refused(dir);
	tapped();
	unlink(name);
	unlink(link_to);
	rmdir(dir);
	rmdir(top);
	rmdir(run);
	printf("place: %d failed\n", failures);
	return failures != 0;
}

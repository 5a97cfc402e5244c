// Who ends a connection that processes share: the last one, also if two end at the same moment. If
// others were killed, nobody is the last; then, too, there is no clean end with bytes missing.
#include "ends.h"

#include <fcntl.h>
#include <sys/wait.h>

enum { N = 300000 };
static struct side c, s;
static uint8_t sent[N], got[N + 1];

// A process that shares the connections; it calls run, and ends.
static pid_t share(void (*run)(void))
{
	ds_fork_prepare();
	pid_t p = fork();
	if (p == 0) {
		ds_fork_child();
		if (run)
			run();
		_exit(failures != 0);
	}
	ds_fork_parent(p);
	return p;
}

static void ended(pid_t p)
{
	int status = -1;

	CHECK(waitpid(p, &status, 0) == p && status == 0, "a process that shares it: %#x", status);
}

static void exits(void) { ds_exit_one(c.s, c.fd, false); }

// The client has sent N bytes. The server has read none of them, has fallen back, and was killed;
// what is returned, without the segment, is left. The client has not looked since.
static int left_alone(void)
{
	int small = 4096, null = open("/dev/null", O_RDWR | O_CLOEXEC), raw;

	pair_up(&c, &s);
	put_all(&c, sent, N);
	setsockopt(c.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
	raw = dup(s.fd);
	ds_fall_back(s.s, s.fd);
	dup3(null, s.fd, O_CLOEXEC);
	dup3(null, s.s->seg.bell, O_CLOEXEC);
	close(null);
	return raw;
}

// Reads raw to its end, which must be no good one if bytes are missing.
static void read_all(const char *what, int raw)
{
	size_t n = 0;
	ssize_t r;

	while (n <= N && (r = recv(raw, got + n, sizeof got - n, 0)) > 0)
		n += (size_t)r;
	CHECK(r < 0 || n == N, "%s: an end after %zu of %d bytes", what, n, N);
	CHECK(!memcmp(got, sent, n < N ? n : N), "%s: other bytes", what);
	close(raw);
	hang_up(&s);
}

// This process is the last, whatever the count says.
static void killed_sharer(void)
{
	int raw = left_alone();

	ended(share(NULL));
	hang_up(&c);
	read_all("killed", raw);
}

// Two exit, and each counts the other.
static void both_exit(void)
{
	int raw = left_alone();

	ended(share(exits));
	exits();
	close(c.fd);
	read_all("exited", raw);
}

// One begins to close, another one closes, and then the first goes on: the second one is the last.
static void at_once(void)
{
	pair_up(&c, &s);
	int go[2];
	char b;

	if (pipe2(go, O_CLOEXEC) < 0)
		abort();
	ds_fork_prepare();
	pid_t p = fork();
	if (p == 0) {
		ds_fork_child();
		CHECK(read(go[0], &b, 1) == 1, "go");
		hang_up(&c);
		_exit(failures != 0);
	}
	ds_fork_parent(p);
	CHECK(ds_setup_lock(), "the lock of setup"); // without which the handle is not released
	hang_up(&c);
	CHECK(!(ds_seg_peer_attention(&s.s->seg) & DS_CLOSED), "the first one says that it is the last");
	CHECK(write(go[1], "g", 1) == 1, "go");
	ended(p);
	CHECK(ds_seg_peer_attention(&s.s->seg) & DS_CLOSED, "neither says that it is the last");
	ds_setup_unlock();
	hang_up(&s);
	close(go[0]);
	close(go[1]);
}

int main(void)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);

	for (size_t i = 0; i < N; i++)
		sent[i] = (uint8_t)(i * 167 + (i >> 8) * 13);
	at_once();
	killed_sharer();
	both_exit();
	ends_stop(broker, path);
	printf("last: %d failed\n", failures);
	return failures != 0;
}

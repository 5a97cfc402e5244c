// SO_LINGER of a sender that returns to TCP, where nobody has the segment any more: the shadow is
// on guard, and the program sees its own value.
#include "ends.h"

#include <fcntl.h>
#include <pthread.h>

enum { N = 300000 };
static struct side c, s;
static uint8_t sent[N], got[N + 1];
static int raw;

// The client has sent N bytes. The server has read none of them in memory, has fallen back, and was
// killed; raw, without the segment, is left. It has read nothing, and the shadow takes little.
static void on_guard(void)
{
	int small = 4096, null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (size_t i = 0; i < N; i++)
		sent[i] = (uint8_t)(i * 167 + (i >> 8) * 13);
	pair_up(&c, &s);
	put_all(&c, sent, N);
	setsockopt(c.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
	raw = dup(s.fd);
	ds_fall_back(s.s, s.fd);
	ds_ready(c.s, c.fd, POLLOUT);
	dup3(null, s.fd, O_CLOEXEC);
	dup3(null, s.s->seg.bell, O_CLOEXEC);
	close(null);
	ds_ready(c.s, c.fd, POLLOUT);
	CHECK(ds_left_behind(c.s), "it is not the case of this test");
}

// Reads raw to its end.
static void *read_all(void *arg)
{
	size_t n = 0;
	ssize_t r;

	while (n <= N && (r = recv(raw, got + n, sizeof got - n, 0)) > 0)
		n += (size_t)r;
	CHECK(r == 0 && n == N && !memcmp(got, sent, N), "%zu of %d bytes, then %s", n, N, r < 0 ? strerror(errno) : "an end");
	return arg;
}

static struct linger of_kernel(int fd)
{
	struct linger l = {-1, -1};
	socklen_t len = sizeof l;

	getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len);
	return l;
}

static struct linger of_program(void)
{
	struct linger l = of_kernel(c.fd);

	ds_linger_get(c.s, &l, sizeof l);
	return l;
}

#define IS(l, a, b) ((l).l_onoff == (a) && (l).l_linger == (b))

// What the program sets on guard is its own, and the shadow's when all is written.
static void set_on_guard(void)
{
	struct linger set = {1, 7}, l;
	int n = 0;

	on_guard();
	l = of_program();
	CHECK(!l.l_onoff, "the program reads the guard's: %d %d", l.l_onoff, l.l_linger);
	CHECK(ds_linger_set(c.s, c.fd, &set, sizeof set) == 0, "%s", strerror(errno));
	CHECK(ds_linger_set(c.s, c.fd, &set, sizeof set - 1) == -1 && errno == EINVAL, "a short value: %s", strerror(errno));
	CHECK(ds_linger_set(c.s, c.fd, (void *)1, sizeof set) == -1 && errno == EFAULT, "no memory: %s", strerror(errno));
	l = of_program();
	CHECK(IS(l, 1, 7), "the program reads %d %d", l.l_onoff, l.l_linger);
	l = of_kernel(c.fd);
	CHECK(IS(l, 1, 0), "the guard is off: %d %d", l.l_onoff, l.l_linger);
	while (ds_left_behind(c.s)) {
		n += recv(raw, got, sizeof got, MSG_DONTWAIT) > 0;
		ds_ready(c.s, c.fd, POLLOUT);
	}
	l = of_kernel(c.fd);
	CHECK(n && IS(l, 1, 7), "all is written, and the shadow has %d %d", l.l_onoff, l.l_linger);
	hang_up(&c);
	hang_up(&s);
	close(raw);
}

// close waits, as the program has asked for, and loses nothing.
static void close_waits(void)
{
	struct linger set = {1, 1000};
	pthread_t t;

	on_guard();
	ds_linger_set(c.s, c.fd, &set, sizeof set);
	pthread_create(&t, NULL, read_all, NULL);
	hang_up(&c);
	pthread_join(t, NULL);
	hang_up(&s);
	close(raw);
}

// Without that, close asks for a process that goes on: here it is this one, later.
static struct ds_sock *asked;
static bool stay(struct ds_sock *a, int fd)
{
	(void)fd;
	asked = a;
	return true;
}

static int still(struct ds_sock *a, int fd)
{
	(void)a;
	return fd;
}

static void close_hands_over(void)
{
	static const struct ds_notices notices = {.still = still, .stay = stay};
	pthread_t t;

	on_guard();
	ds_tell(&notices);
	ds_exit_one(c.s, c.fd, false);
	CHECK(asked == c.s && ds_left_behind(c.s), "nobody was asked to go on");
	CHECK(IS(of_kernel(c.fd), 1, 0), "the guard is off");
	pthread_create(&t, NULL, read_all, NULL);
	CHECK(ds_written(c.s, c.fd, 0), "%s", strerror(errno));
	asked = NULL;
	hang_up(&c);
	pthread_join(t, NULL);
	CHECK(!asked, "all is written, and it asks");
	hang_up(&s);
	close(raw);
}

int main(void)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);

	set_on_guard();
	close_waits();
	close_hands_over();
	ends_stop(broker, path);
	printf("linger: %d failed\n", failures);
	return failures != 0;
}

// What others find of a holder that was killed between two steps, or is stopped: the end of its
// direction, its gate, its guard, its share.
#include "ends.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { N = 300000 };
static struct side c, s;
static uint8_t sent[N], got[N + 1];

// A process that shares a; it calls run, and ends.
static pid_t share(struct side *a, void (*run)(struct side *a))
{
	ds_fork_prepare();
	pid_t p = fork();
	if (p == 0) {
		ds_fork_child();
		failures = 0;
		run(a);
		_exit(failures != 0);
	}
	ds_fork_parent(p);
	return p;
}

static void killed(struct side *a, void (*half)(struct side *a))
{
	int status = -1;
	pid_t p = share(a, half);

	CHECK(waitpid(p, &status, 0) == p && status == 0, "the killed one: %#x", status);
}

static void limit_read(int fd)
{
	struct timeval t = {60, 0};

	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0, "SO_RCVTIMEO");
}

// a's next bytes are these.
static void reads(const char *what, struct side *a, const char *bytes)
{
	char b[16] = {0};
	size_t n = strlen(bytes);

	limit_read(a->fd);
	ssize_t r = get(a, b, n, MSG_WAITALL);
	CHECK(r == (ssize_t)n && !memcmp(b, bytes, n), "%s: received %zd '%s' %s", what, r, b, r < 0 ? strerror(errno) : "");
}

static void ends_here(const char *what, struct side *a)
{
	char b;
	ssize_t r = get(a, &b, 1, 0);

	CHECK(r == 0, "%s: %zd, not the end: %s", what, r, strerror(errno));
}

static void hang_up_both(void)
{
	hang_up(&c);
	hang_up(&s);
}

// Both have the segment, and the server has sent nothing: it has still to promote.
static void pair_half(void)
{
	char b[2];

	connect_to(&c);
	accept_from(&s);
	while (ds_state_of(c.s) != CONN_UP || ds_state_of(s.s) != CONN_UP) {
		put(&c, "ab", 2, 0);
		get(&s, b, 2, MSG_WAITALL);
		usleep(100);
	}
	CHECK(s.s->sh->tx_mode == TX_SHADOW && c.s->sh->rx_mode == RX_SHADOW, "it is not the case of this test");
}

// The client has sent N bytes, of which the server has read none, and the shadow takes few.
static void pair_full(void)
{
	int small = 4096;

	pair_up(&c, &s);
	put_all(&c, sent, N);
	setsockopt(c.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
}

// It has sent few, of which the server has read none.
static void pair_few(void)
{
	pair_up(&c, &s);
	CHECK(put(&c, "one", 3, 0) == 3 && put(&c, "two", 3, 0) == 3, "send");
}

// And the server has fallen back, and was killed: what is returned, without the segment, is left.
static int left_alone(void (*pair)(void))
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), raw;

	pair();
	raw = dup(s.fd);
	ds_fall_back(s.s, s.fd);
	dup3(null, s.fd, O_CLOEXEC);
	dup3(null, s.s->seg.bell, O_CLOEXEC);
	close(null);
	return raw;
}

// ---- killed at a call of the kernel -------------------------------------------------------------

static bool late; // after the call
static int (*real_shutdown)(int, int);
static int (*real_setsockopt)(int, int, int, const void *, socklen_t);

static int dies_at_shutdown(int fd, int how)
{
	if (late)
		real_shutdown(fd, how);
	_exit(failures != 0);
}

static int dies_at_linger(int fd, int level, int name, const void *value, socklen_t n)
{
	if (level == SOL_SOCKET && name == SO_LINGER) {
		if (late)
			real_setsockopt(fd, level, name, value, n);
		_exit(failures != 0);
	}
	return real_setsockopt(fd, level, name, value, n);
}

static void writes_and_ends(struct side *a)
{
	a->s->sh->tx_shut = 1;
	real_shutdown = ds_real.shutdown;
	ds_real.shutdown = dies_at_shutdown;
	ds_tx_attend(a->s, a->fd);
	CHECK(false, "it does not shut down");
}

static void shuts_down(struct side *a)
{
	real_shutdown = ds_real.shutdown;
	ds_real.shutdown = dies_at_shutdown;
	ds_shutdown(a->s, a->fd, SHUT_WR);
	CHECK(false, "it does not shut down");
}

static void sets_guard(struct side *a)
{
	real_setsockopt = ds_real.setsockopt;
	ds_real.setsockopt = dies_at_linger;
	ds_tx_attend(a->s, a->fd);
	CHECK(false, "it sets no guard");
}

// All has returned to the shadow, and who was about to end that, or has, was killed.
static void written(void)
{
	pair_few();
	ds_fall_back(s.s, s.fd);
	killed(&c, writes_and_ends);
	ds_ready(c.s, c.fd, POLLOUT);
	reads("written", &s, "onetwo");
	ends_here("written", &s);
	CHECK(put(&c, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE, "a send after the end: %s", strerror(errno));
	CHECK(!c.s->sh->owed, "an error is owed: %d", c.s->sh->owed);
	hang_up_both();
}

// Some has not returned when the program ends its direction.
static void shut_down(void)
{
	int64_t until = ds_now() + 60000000000;
	size_t n = 0;
	ssize_t r;

	pair_full();
	ds_fall_back(s.s, s.fd);
	killed(&c, shuts_down);
	do {
		ds_ready(c.s, c.fd, POLLOUT);
		r = get(&s, got + n, sizeof got - n, MSG_DONTWAIT);
		n += r > 0 ? (size_t)r : 0;
	} while (n <= N && (r > 0 || (r < 0 && errno == EAGAIN && ds_now() < until)));
	CHECK(r == 0 && n == N && !memcmp(got, sent, N), "%zu bytes of %d, then %zd %s", n, N, r, strerror(errno));
	hang_up_both();
}

static struct linger linger_of(int fd)
{
	struct linger l = {-1, -1};
	socklen_t n = sizeof l;

	getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &n);
	return l;
}

static void guard(void)
{
	int64_t until = ds_now() + 60000000000;
	int raw = left_alone(pair_full);
	size_t n = 0;
	ssize_t r;

	killed(&c, sets_guard);
	ds_ready(c.s, c.fd, POLLOUT);
	CHECK(ds_left_behind(c.s) && linger_of(c.fd).l_onoff, "the shadow is not on guard");
	for (; c.s->sh->tx_mode == TX_RETURNING && ds_now() < until; ds_ready(c.s, c.fd, POLLOUT)) {
		r = recv(raw, got + n, sizeof got - n, MSG_DONTWAIT);
		n += r > 0 ? (size_t)r : 0;
	}
	CHECK(!linger_of(c.fd).l_onoff, "the guard's SO_LINGER is the program's");
	hang_up(&c);
	limit_read(raw);
	while (n <= N && (r = recv(raw, got + n, sizeof got - n, 0)) > 0)
		n += (size_t)r;
	CHECK(r == 0 && n == N && !memcmp(got, sent, N), "%zu bytes of %d, then %zd %s", n, N, r, strerror(errno));
	close(raw);
	hang_up(&s);
}

// It was on guard until then.
static void written_on_guard(void)
{
	int raw = left_alone(pair_few);
	char b[7] = {0};

	killed(&c, writes_and_ends);
	ds_ready(c.s, c.fd, POLLOUT);
	CHECK(!linger_of(c.fd).l_onoff, "all is written, and it is on guard");
	hang_up(&c);
	limit_read(raw);
	CHECK(recv(raw, b, 6, MSG_WAITALL) == 6 && !strcmp(b, "onetwo"), "'%s'", b);
	ssize_t r = recv(raw, b, 1, 0);
	CHECK(r == 0, "%zd, not the end: %s", r, strerror(errno));
	close(raw);
	hang_up(&s);
}

// ---- killed, with no call -----------------------------------------------------------------------

static void shuts_gate(struct side *a) { CHECK(ds_gate_shut(a->s), "the gate"); }

static void says_promote(struct side *a)
{
	struct ds_shared *h = a->s->sh;

	ds_tx_take(a->s, false);
	shuts_gate(a);
	CHECK(ds_kernel_sent(a->fd, a->s->side, &h->tx_carried) && ds_tx_promote(&a->s->seg, &h->tx, &h->attention, h->tx_carried) == 0, "promote");
}

// Who waits at the gate finds where the direction is by now.
static void gate(void)
{
	struct iovec v = {"no", 2};

	pair_half();
	killed(&s, says_promote);
	ssize_t r = ds_shadow_send(s.s, s.fd, &v, 1, 0);
	CHECK(r == DS_CHANGED, "%zd bytes on the shadow after PROMOTE", r);
	CHECK(put(&s, "one", 3, 0) == 3, "send: %s", strerror(errno));
	reads("the gate", &c, "one");
	hang_up_both();

	pair_half(); // one that cannot take the lock, as in a fault's handler, does not wait for it
	killed(&s, shuts_gate);
	alarm(60);
	ds_tx_take(s.s, false);
	ds_users_begin(s.s);
	ds_users_end(s.s);
	ds_unlock(&s.s->sh->tx_lock, false);
	alarm(0);
	hang_up_both();
}

// Has read two bytes of the shadow, and has not noted them.
static void reads_two(struct side *a)
{
	char b[2];

	ds_rx_take(a->s, false);
	CHECK(recv(a->fd, b, 2, MSG_WAITALL) == 2, "the shadow: %s", strerror(errno));
}

static bool closed(struct side *a)
{
	struct tcp_info t;
	socklen_t n = sizeof t;

	return getsockopt(a->fd, IPPROTO_TCP, TCP_INFO, &t, &n) == 0 && t.tcpi_state == 7;
}

// By then both directions have ended on TCP.
static void counts_closed(void)
{
	int64_t until = ds_now() + 60000000000;

	pair_half();
	CHECK(send(s.fd, "one", 3, 0) == 3 && put(&s, "two", 3, 0) == 3, "send");
	reads("before the last", &c, "o");
	CHECK(c.s->sh->rx_mode == RX_CATCH_UP, "it is not the case of this test: %d", c.s->sh->rx_mode);
	CHECK(ds_shutdown(c.s, c.fd, SHUT_WR) == 0 && ds_shutdown(s.s, s.fd, SHUT_WR) == 0, "shutdown");
	while (!closed(&c) && ds_now() < until)
		usleep(100);
	killed(&c, reads_two);
	reads("closed", &c, "two");
	ends_here("closed", &c);
	hang_up_both();
}

// ---- shares -------------------------------------------------------------------------------------

static void nothing(struct side *a) { (void)a; }

// Its number is another connection's: that was closed where the library does not see it.
static void renumbered(void)
{
	struct side other = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
	struct ds_shared *h;
	char b;

	CHECK(connect(other.fd, (void *)&at, sizeof at) == 0, "connect: %s", strerror(errno));
	int peer = accept(listener, NULL, NULL);
	pair_up(&c, &s);
	CHECK(c.s->sh->tx_carried > 0 && put(&c, "secret", 6, 0) == 6, "send");
	ds_fall_back(s.s, s.fd);
	int raw = dup(c.fd);
	dup2(other.fd, c.fd);
	ds_ready(c.s, c.fd, POLLOUT);
	CHECK(c.s->sh->tx_mode == TX_RETURNING, "written, and nothing was: %d", c.s->sh->tx_mode);
	CHECK(recv(peer, &b, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "another connection's peer reads something");
	killed(&c, nothing);
	h = c.s->sh;
	CHECK(ds_setup_lock(), "the lock of setup"); // without which the handle is not released
	ds_close(c.s, -1);
	CHECK(h->tx_mode == TX_RETURNING && !h->owed, "who has no descriptor has moved it on: %d", h->tx_mode);
	ds_setup_unlock();
	close(raw);
	close(c.fd);
	close(other.fd);
	close(peer);
	hang_up(&s);
}

static void *closes(void *arg)
{
	hang_up(&c);
	return arg;
}

// Another thread forks for a socket of its own meanwhile: a process that counts for that alone.
static void hidden_fork(void)
{
	struct ds_shared *h;
	pthread_t t;

	pair_up(&c, &s);
	h = c.s->sh;
	ds_fork_prepare_for(s.s);
	CHECK(s.s->sh->refs == 2, "its own does not count");
	uint32_t before = h->refs;
	pthread_create(&t, NULL, closes, NULL);
	while (__atomic_load_n(&h->refs, __ATOMIC_ACQUIRE) == before)
		usleep(100);
	ds_fork_parent(-1);
	pthread_join(t, NULL);
	CHECK(ds_seg_peer_attention(&s.s->seg) & DS_CLOSED, "nobody says that it is the last");
	CHECK(s.s->sh->refs == 1, "its own counts");
	hang_up(&s);
}

static void waits_to_end(struct side *a)
{
	(void)a;
	for (;;)
		pause();
}

// Who closes a connection that has no segment yet does not use it any more once it is not counted.
static void leaves_first(void)
{
	int status;

	connect_to(&c);
	accept_from(&s);
	ds_sharer_forking(c.s);
	pid_t p = share(&c, waits_to_end);
	struct ds_shared *h = c.s->sh;
	ds_sharer_use(c.s, c.fd);
	// musl does not say that there is one thread: then nobody counts who uses it.
	CHECK(h->refs == 2 && h->using == ds_one_thread(), "it is not the case of this test: %u, %u", h->refs, h->using);
	CHECK(ds_setup_lock(), "the lock of setup");
	hang_up(&c);
	CHECK(h->refs == 1 && h->using == 0, "%u have it, and %u use it", h->refs, h->using);
	ds_setup_unlock();
	kill(p, SIGKILL);
	waitpid(p, &status, 0);
	hang_up(&s);
}

static void stops(struct side *a)
{
	ds_tx_take(a->s, false);
	raise(SIGSTOP);
}

// Who closes does not wait for one that is stopped.
static void stopped(void)
{
	int status;

	pair_up(&c, &s);
	pid_t p = share(&c, stops);
	CHECK(waitpid(p, &status, WUNTRACED) == p && WIFSTOPPED(status), "it does not stop: %#x", status);
	alarm(60);
	hang_up(&c);
	alarm(0);
	kill(p, SIGKILL);
	waitpid(p, &status, 0);
	hang_up(&s);
}

int main(void)
{
	char path[64];

	for (size_t i = 0; i < N; i++)
		sent[i] = (uint8_t)(i * 167 + (i >> 8) * 13);
	pid_t broker = ends_start(path, sizeof path);
	leaves_first(); // in a process of one thread
	for (int i = 0; i < 2; i++, late = true) {
		written();
		shut_down();
		guard();
		written_on_guard();
	}
	gate();
	counts_closed();
	renumbered();
	stopped();
	hidden_fork();
	ends_stop(broker, path);
	printf("heir: %d failed\n", failures);
	return failures != 0;
}

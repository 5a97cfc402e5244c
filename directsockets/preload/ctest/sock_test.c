// Connections from end to end: two processes or threads, a small broker, real TCP.
#include "ends.h"

#include "conn/broker.h"
#include "conn/fds.h"
#include "conn/inner.h"
#include "small_broker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/wait.h>

// ---- semantics

// Takes at most what is left of a struct iovec *.
static ssize_t take(void *to, const struct iovec *v, int n)
{
	struct iovec *left = to;
	ssize_t sum = 0;

	for (int i = 0; i < n && left->iov_len; i++) {
		size_t k = v[i].iov_len < left->iov_len ? v[i].iov_len : left->iov_len;
		memcpy(left->iov_base, v[i].iov_base, k);
		left->iov_base = (uint8_t *)left->iov_base + k;
		left->iov_len -= k;
		sum += (ssize_t)k;
	}
	errno = EPIPE;
	return sum ? sum : -1;
}

static void by(void)
{
	struct side c, s;
	uint8_t big[3000], b[4096];
	struct iovec all = {b, 4}, rest = {b + 4, sizeof b - 4};
	int n;

	pair_up(&c, &s);
	CHECK(ds_recv_by(c.s, c.fd, 10, take, &all) == -1 && errno == EAGAIN, "%s", strerror(errno));
	memset(big, 7, sizeof big);
	put(&s, "hello", 5, 0);
	put(&s, big, sizeof big, 0);
	CHECK(ds_recv_by(c.s, c.fd, 10, take, &all) == 4 && ds_fionread(c.s, c.fd, &n) == 0 && n == 3001, "%d are left", n);
	CHECK(ds_recv_by(c.s, c.fd, 10, take, &all) == -1 && errno == EPIPE, "%s", strerror(errno));
	CHECK(ds_recv_by(c.s, c.fd, 101, take, &rest) == 101 && ds_recv_by(c.s, c.fd, 9999, take, &rest) == 2900, "%zu are left", rest.iov_len);
	CHECK(!memcmp(b, "hello", 5) && !memcmp(b + 5, big, sizeof big), "other bytes");
	CHECK(get(&c, b, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "%s", strerror(errno));
	hang_up(&c);
	hang_up(&s);
}

static void calls(void)
{
	struct side c, s;
	uint8_t b[4096] = {0}, big[3000] = {0};
	int n;

	pair_up(&c, &s);
	CHECK(get(&c, b, 10, MSG_DONTWAIT) == -1 && errno == EAGAIN, "%s", strerror(errno));
	put(&s, "hello", 5, 0);
	CHECK(ds_ready(c.s, c.fd, POLLIN | POLLOUT).now == (POLLIN | POLLOUT), "readiness");
	CHECK(ds_fionread(c.s, c.fd, &n) == 0 && n == 5, "FIONREAD %d", n);
	CHECK(get(&c, b, 3, MSG_PEEK) == 3 && !memcmp(b, "hel", 3), "peek");
	CHECK(get(&c, b, 2, 0) == 2 && get(&c, b + 2, 10, 0) == 3 && !memcmp(b, "hello", 5), "halves");
	CHECK(ds_ready(c.s, c.fd, POLLIN).now == 0, "readiness of nothing");
	memset(big, 7, sizeof big);
	put(&s, big, sizeof big, 0);
	put(&s, "x", 1, 0);
	CHECK(ds_outq(s.s, s.fd, &n) == 0 && n >= 3001, "SIOCOUTQ %d", n);
	CHECK(get(&c, b, sizeof b, MSG_TRUNC) == 3001 && ds_fionread(c.s, c.fd, &n) == 0 && n == 0, "discard");
	// a timeout
	struct timeval t = {0, 30000};
	setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	CHECK(get(&c, b, 1, 0) == -1 && errno == EAGAIN, "SO_RCVTIMEO: %s", strerror(errno));
	// room
	fcntl(s.fd, F_SETFL, O_NONBLOCK);
	ds_life_flags(&s.life, false);
	size_t sent = 0;
	ssize_t r;
	while ((r = put(&s, big, sizeof big, 0)) > 0)
		sent += (size_t)r;
	CHECK(errno == EAGAIN && sent > 100000, "%zu bytes, %s", sent, strerror(errno));
	CHECK(ds_ready(s.s, s.fd, POLLOUT).now == 0, "room when there is none");
	for (size_t got = 0; got < sent; got += (size_t)r)
		if ((r = get(&c, b, sizeof b, 0)) <= 0) {
			CHECK(false, "%zd %s after %zu", r, strerror(errno), got);
			break;
		}
	CHECK(ds_ready(s.s, s.fd, POLLOUT).now == POLLOUT, "no room when there is");
	// half-close
	put(&s, "last", 4, 0);
	CHECK(ds_shutdown(s.s, s.fd, SHUT_WR) == 0 && put(&s, "x", 1, 0) == -1 && errno == EPIPE, "EPIPE");
	CHECK(get(&c, b, 10, 0) == 4 && get(&c, b, 10, 0) == 0 && get(&c, b, 10, 0) == 0, "end of file");
	put(&c, "still", 5, 0);
	CHECK(get(&s, b, 10, 0) == 5, "the other direction");
	hang_up(&c);
	usleep(1000);
	CHECK(get(&s, b, 10, 0) == 0, "end after close");
	hang_up(&s);

	pair_up(&c, &s); // unread data: reset
	put(&c, "x", 1, 0);
	hang_up(&s);
	r = get(&c, b, 1, 0);
	CHECK(r == 0 || (r == -1 && errno == ECONNRESET), "%zd %s", r, strerror(errno));
	r = put(&c, "x", 1, 0);
	r = put(&c, "x", 1, 0);
	CHECK(r == -1 && (errno == EPIPE || errno == ECONNRESET), "send to who is gone: %s", strerror(errno));
	hang_up(&c);

	connect_to(&c); // closed before it was direct
	accept_from(&s);
	put(&c, "a", 1, 0);
	put(&c, "b", 1, 0);
	hang_up(&c);
	CHECK(get(&s, b, 2, MSG_WAITALL) == 2 && get(&s, b, 1, 0) == 0, "early close");
	hang_up(&s);
}

// ---- streams, while the transport changes under them

struct flow {
	struct side a;
	size_t total, fallback_at;
	int seed;
	bool first; // sends first
};

static uint8_t byte_at(size_t i, int seed) { return (uint8_t)(i * 167 + i / 1000 + (size_t)seed); }

static void *flow_out(void *arg)
{
	struct flow *f = arg;
	static __thread uint8_t buf[300000];
	unsigned state = (unsigned)f->seed;

	for (size_t done = 0; done < f->total;) {
		size_t n = (size_t)rand_r(&state) % (rand_r(&state) % 4 ? 2000 : sizeof buf) + 1;
		if (n > f->total - done)
			n = f->total - done;
		for (size_t i = 0; i < n; i++)
			buf[i] = byte_at(done + i, f->seed);
		put_all(&f->a, buf, n);
		done += n;
		if (f->fallback_at && done > f->fallback_at) {
			f->fallback_at = 0;
			ds_fall_back(f->a.s, f->a.fd);
		}
	}
	ds_shutdown(f->a.s, f->a.fd, SHUT_WR);
	return NULL;
}

static void *flow_in(void *arg)
{
	struct flow *f = arg;
	static __thread uint8_t buf[100000];
	unsigned state = (unsigned)f->seed + 5;
	size_t done = 0;

	for (;;) {
		ssize_t n = get(&f->a, buf, (size_t)rand_r(&state) % sizeof buf + 1, rand_r(&state) % 10 ? 0 : MSG_WAITALL);
		if (n == 0)
			break;
		CHECK(n > 0, "recv: %s", strerror(errno));
		if (n < 0)
			exit(1);
		for (ssize_t i = 0; i < n; i++)
			if (buf[i] != byte_at(done + (size_t)i, f->seed)) {
				CHECK(false, "byte %zu of %d", done + (size_t)i, f->seed);
				exit(1);
			}
		done += (size_t)n;
	}
	CHECK(done == f->total, "%zu of %zu", done, f->total);
	return NULL;
}

// Both directions at once. Each end is a thread for each direction.
static void flows(size_t total, size_t fallback_c, size_t fallback_s, bool direct)
{
	struct side c, s;
	pthread_t t[4];

	if (direct) {
		pair_up(&c, &s);
	} else { // the transport changes under the first bytes
		connect_to(&c);
		accept_from(&s);
	}
	struct flow f[4] = {
		{c, total, fallback_c, 1, true}, {s, total, 0, 1, false}, {s, total, fallback_s, 2, true}, {c, total, 0, 2, false},
	};
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, f[i].first ? flow_out : flow_in, &f[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	if (direct)
		CHECK(c.s->entry && c.s->entry->counters[DS_C_SENT] >= total, "only %llu bytes went direct",
		      (unsigned long long)c.s->entry->counters[DS_C_SENT]);
	hang_up(&c);
	hang_up(&s);
}

// ---- processes

static void forks(void)
{
	struct side c, s;
	uint8_t b[100] = {0};
	int status;

	pair_up(&c, &s);
	ds_fork_prepare();
	pid_t pid = fork();
	if (pid == 0) {
		ds_fork_child();
		hang_up(&s);
		for (int i = 0; i < 1000; i++)
			put(&c, "child.", 6, 0);
		get(&c, b, 5, MSG_WAITALL);
		hang_up(&c);
		_exit(memcmp(b, "hello", 5) || failures);
	}
	ds_fork_parent(pid);
	for (int i = 0; i < 1000; i++)
		put(&c, "paren.", 6, 0);
	hang_up(&c); // the child has it yet
	size_t dots = 0;
	for (int i = 0; i < 2000; i++) {
		CHECK(get(&s, b, 6, MSG_WAITALL) == 6, "message %d", i);
		dots += b[5] == '.';
	}
	CHECK(dots == 2000, "%zu messages were whole", dots);
	CHECK(get(&s, b, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "ended by the first close");
	put(&s, "hello", 5, 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "status %x", status);
	CHECK(get(&s, b, 1, 0) == 0, "not ended by the last close");
	hang_up(&s);
}

static void killed(int what)
{
	struct side c, s;
	int pipes[2];
	uint8_t b[100000] = {0};

	if (pipe(pipes) < 0)
		abort();
	ds_fork_prepare();
	pid_t pid = fork();
	if (pid == 0) {
		ds_fork_child();
		connect_to(&c);
		while (ds_direct(c.s) != 3) {
			put(&c, "x", 1, 0);
			get(&c, b, 1, 0);
		}
		if (what == 2) // at it
			for (;;)
				put(&c, b, sizeof b, 0);
		if (write(pipes[1], "", 1) < 0 || pause())
			_exit(0);
	}
	ds_fork_parent(pid);
	accept_from(&s);
	while (ds_direct(s.s) != 3) {
		get(&s, b, 1, 0);
		put(&s, "x", 1, 0);
	}
	if (what == 2) {
		for (int i = 0; i < 50; i++)
			get(&s, b, sizeof b, 0);
	} else if (read(pipes[0], b, 1) < 0) {
		abort();
	}
	kill(pid, SIGKILL);
	ssize_t r;
	if (what == 1) { // we send: as TCP, it fails at last, and does not hang
		for (int i = 0; i < 100000 && (r = put(&s, b, 100, 0)) > 0; i++)
			usleep(10);
		CHECK(r == -1 && (errno == EPIPE || errno == ECONNRESET), "%zd %s", r, strerror(errno));
	} else {
		while ((r = get(&s, b, sizeof b, 0)) > 0)
			;
		CHECK(r == 0 || errno == ECONNRESET, "%s", strerror(errno));
	}
	waitpid(pid, NULL, 0);
	close(pipes[0]);
	close(pipes[1]);
	hang_up(&s);
}

// A peer that scribbles over the segment: errors, no faults, and the next connection works.
static void hostile(void)
{
	struct side c, s;
	uint8_t b[5000] = {0};

	pair_up(&c, &s);
	for (int i = 0; i < 300; i++) {
		uint64_t x = rnd();
		struct ds_seg *g = &c.s->seg;
		memcpy(below(2) ? (uint8_t *)g->own + 8 * below(64) : (uint8_t *)g->txq + 8 * below(16 * 128), &x, 8);
		get(&s, b, sizeof b, MSG_DONTWAIT);
		put(&s, b, 1 + below(sizeof b), MSG_DONTWAIT);
		ds_ready(s.s, s.fd, POLLIN | POLLOUT);
	}
	hang_up(&s);
	hang_up(&c);
}

// Connections of the client that ended after so many sends, directly from there on.
static void ended(int how_many, unsigned sends, int side)
{
	static struct ds_shared sh;
	struct ds_sock s = {.state = CONN_UP, .side = (uint8_t)side, .sh = &sh, .sends = 2};

	sh.tx.count = sends - 2;
	while (how_many-- > 0)
		ds_habit(&s);
}

static void habit(void)
{
	struct ds_config before = ds_config;

	ds_config.fixed = false;
	ds_config.sends = 2;
	ds_config.bytes = 16384;
	ended(7, 1000, 0); // of the tests before
	ended(3, 2, 0);
	ended(9, 2, 1);
	CHECK(ds_worth(2, 0) && !ds_worth(1, 16383) && ds_worth(1, 16384), "three short ones");
	ended(1, 127, 0);
	CHECK(!ds_worth(3, 32767) && ds_worth(4, 0) && ds_worth(0, 32768), "four");
	ended(50, 2, 0);
	CHECK(!ds_worth(127, (1 << 20) - 1) && ds_worth(128, 0) && ds_worth(0, 1 << 20), "many");
	ds_config.fixed = true;
	CHECK(ds_worth(2, 0), "set by the user");
	ds_config.fixed = false;
	ended(2, 128, 0);
	CHECK(!ds_worth(31, 0) && ds_worth(32, 0), "two long ones");
	ended(4, 128, 0);
	CHECK(ds_worth(2, 0), "all of them");
	ds_config = before;
}

enum { BREACH, CUT, WAYS };

// Breaks the connection of arg, a struct side *, when what it has got is read.
static void *break_when_read(void *arg)
{
	struct side *a = arg;
	int left = 1;

	while (left && ds_fionread(a->s, a->fd, &left) == 0)
		usleep(100);
	ds_break(a->s);
	return NULL;
}

static int error_of(struct side *a) { return ds_tell_error(a->s, ds_take_error(a->s, a->fd)); }

// A connection that has broken, in each way, says so to one call, whichever comes first, as the
// kernel does; then it has ended.
static void told_once(int way, int first)
{
	struct side c, s;
	uint8_t b[8];
	pthread_t t;
	ssize_t r = -1;

	pair_up(&c, &s);
	CHECK(put(&c, "x", 1, 0) == 1, "not up");
	if (first == 3) { // a call that has got something already tells that
		pthread_create(&t, NULL, break_when_read, &s);
		CHECK((r = get(&s, b, sizeof b, MSG_WAITALL)) == 1, "in the middle: %zd %s", r, strerror(errno));
		pthread_join(t, NULL);
	} else if (way == CUT) {
		s.s->sh->rx_mode = RX_CATCH_UP;
		ds_on_rx(s.s, ON_CUT);
	} else {
		ds_break(s.s);
	}
	CHECK((ds_ready(s.s, s.fd, POLLIN).now & (POLLERR | POLLHUP)) == (POLLERR | POLLHUP), "no error is there");
	if (first == 2)
		errno = error_of(&s);
	else if (way == CUT || first)
		CHECK((r = get(&s, b, sizeof b, 0)) == -1, "first recv: %zd", r);
	else
		CHECK((r = put(&s, "x", 1, MSG_NOSIGNAL)) == -1, "first send: %zd", r);
	CHECK(errno == ECONNRESET, "way %d, first %d: %s", way, first, strerror(errno));
	ds_break(s.s); // found again
	CHECK(error_of(&s) == 0, "told, and told again");
	for (int i = 0; i < 2; i++) {
		r = put(&s, "x", 1, MSG_NOSIGNAL);
		CHECK(r == -1 && errno == EPIPE, "then send: %zd %s", r, strerror(errno));
		r = get(&s, b, sizeof b, 0);
		CHECK(r == 0, "then recv: %zd %s", r, strerror(errno));
	}
	CHECK((ds_ready(s.s, s.fd, POLLIN).now & (POLLERR | POLLHUP)) == POLLHUP, "it is told, and there still");
	hang_up(&c);
	hang_up(&s);
}

// The end is told with the edge that it is, also while bytes are to be read on the shadow first,
// and before the FIN comes there: who sees it only later has nothing more to wait for.
static void end_while_catching_up(void)
{
	struct side c, s;
	uint64_t before, end = (uint64_t)-1 << DS_EDGE_ENDS;

	pair_up(&c, &s);
	s.s->sh->rx_mode = RX_CATCH_UP;
	s.s->sh->carried = s.s->sh->rx_read + 1;
	before = ds_edges(s.s);
	CHECK(!(ds_ready(s.s, s.fd, POLLIN | POLLRDHUP).now & POLLRDHUP), "an end before there is one");
	CHECK(ds_tx_end(&c.s->seg, &c.s->sh->tx, &c.s->sh->attention, DS_SHUTDOWN) == 0, "no SHUTDOWN");
	ds_on_tx(c.s, ON_SHUTDOWN);
	CHECK((ds_edges(s.s) ^ before) & end, "no edge");
	CHECK(ds_ready(s.s, s.fd, POLLIN | POLLRDHUP).now & POLLRDHUP, "the edge, and not the end");
	hang_up(&c);
	hang_up(&s);
}

// Who closes with bytes unread in the segment resets the connection, also if some that come before
// are still on their way on the shadow.
static void unread_resets(void)
{
	for (int late = 0; late < 2; late++) {
		struct side c, s;

		pair_up(&c, &s);
		CHECK(put(&c, "x", 1, 0) == 1, "not up");
		if (late) {
			s.s->sh->rx_mode = RX_CATCH_UP;
			s.s->sh->carried = s.s->sh->rx_read + 1;
		}
		ds_exit_one(s.s, s.fd, false);
		CHECK(c.s->seg.peer->attention & DS_RESET, "bytes are unread, and no reset: late %d", late);
		hang_up(&c);
		hang_up(&s);
	}
}

int main(void)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);

	calls();
	by();
	habit();
	end_while_catching_up();
	unread_resets();
	for (int i = 0; i < 4 * WAYS; i++)
		told_once(i / 4, i % 4);
	ds_fork_prepare(); // for good, the first fork has a descriptor for the names of processes
	ds_fork_parent(-1);
	int fds = open_fds();
	flows(20 << 20, 0, 0, true);
	for (int i = 0; i < 12; i++)
		flows(4 << 20, i & 1 ? 1 + below(3 << 20) : 0, i & 2 ? 1 + below(3 << 20) : 0, false);
	for (int i = 0; i < 20; i++)
		hostile();
	forks();
	for (int i = 0; i < 3; i++)
		killed(i);
	CHECK(open_fds() == fds, "%d descriptors, %d before", open_fds(), fds);
	ends_stop(broker, path);
	printf("sock: %d failed\n", failures);
	return failures != 0;
}

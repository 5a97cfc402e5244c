// Datagrams: random calls on sockets that share addresses, are connected, closed, duplicated,
// passed to a child and read by several threads. Each call's result, and what each socket has
// received from each sender in its order, is as without the library.
#include "udp.h"

enum { SOCKETS = 6, ADDRS = 4, MOST = 40, STEPS = 200, SETTLE_MS = 130, ROUNDS = 8, BIGGEST = 3000 };

// A socket. Those of the upper half of the addresses share them. There is at most one that is not
// connected at each, and one for each peer: else the kernel chooses at random which one gets a
// datagram.
struct one {
	int fd, copy;  // -1: none
	int addr, peer; // peer -1: it is not connected
	int waiting;   // datagrams
	int id;        // of all sockets that there were
};

// What was received, from which address and socket, in the order in which it came.
struct came {
	uint32_t number;
	int from, id;
	ssize_t len;
	unsigned sum;
};

static struct {
	unsigned seed;
	uint32_t sent;
	int opened;
	in_addr_t first; // of the addresses, which no other process uses
	in_port_t port;
	struct one all[SOCKETS];
} r;

// What the socket that is read has had.
static struct {
	pthread_mutex_t lock;
	struct came list[MOST * 8];
	int n;
} had = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int pick(int n) { return (int)random_below(&r.seed, (unsigned)n); }

static struct sockaddr_in address(int at)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = r.port, .sin_addr.s_addr = htonl(r.first + (unsigned)at)};
}

// The socket at an address that has a peer, -1 for the one that is not connected; NULL: none has
// it.
static struct one *at_with(int addr, int peer)
{
	for (int i = 0; i < SOCKETS; i++)
		if (r.all[i].fd >= 0 && r.all[i].addr == addr && r.all[i].peer == peer)
			return &r.all[i];
	return NULL;
}

// The socket that gets what is sent from an address to another.
static struct one *receiver(int from, int addr)
{
	struct one *o = at_with(addr, from);

	return o ? o : at_with(addr, -1);
}

// Ends of flows ask the kernel again who has an address: SPEC.md 10.4.
static void settle(void) { nap(SETTLE_MS); }

static void change_peer(struct one *o, int peer)
{
	struct sockaddr_in a = address(peer);

	if (peer < 0)
		a.sin_family = AF_UNSPEC;
	o->peer = peer;
	R(connect(o->fd, (struct sockaddr *)&a, sizeof a));
}

static void open_one(struct one *o, int addr)
{
	struct sockaddr_in a = address(addr);
	int shares = addr >= ADDRS / 2, peer = shares && at_with(addr, -1) ? pick(ADDRS) : -1;

	for (int p = -1; p < ADDRS; p++)
		if (at_with(addr, p) && (!shares || p == peer))
			return;
	out("open %td at %d", o - r.all, addr);
	o->fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	setsockopt(o->fd, SOL_SOCKET, SO_REUSEPORT, &shares, sizeof shares);
	R(bind(o->fd, (struct sockaddr *)&a, sizeof a));
	o->addr = addr;
	o->peer = -1;
	o->id = ++r.opened;
	if (peer >= 0)
		change_peer(o, peer);
	settle();
}

static void forget(struct one *o)
{
	out("close %td", o - r.all);
	if (o->copy >= 0)
		R(close(o->copy));
	R(close(o->fd));
	*o = (struct one){.fd = -1, .copy = -1};
	settle();
}

static int descriptor(struct one *o) { return o->copy >= 0 && pick(2) ? o->copy : o->fd; }

/* ---- sending -------------------------------------------------------------------- */

static ssize_t send_by(int way, int fd, const char *b, size_t n, struct sockaddr_in *to)
{
	struct iovec v[2] = {{(void *)(uintptr_t)b, n / 2}, {(void *)(uintptr_t)(b + n / 2), n - n / 2}};
	struct mmsghdr m = {.msg_hdr = {.msg_name = to, .msg_namelen = to ? sizeof *to : 0, .msg_iov = v, .msg_iovlen = 2}};

	switch (way) {
	case 0:
		return sendmsg(fd, &m.msg_hdr, 0);
	case 1:
		return sendmmsg(fd, &m, 1, MSG_DONTWAIT);
	case 2:
		if (!to)
			return write(fd, b, n);
		break;
	case 3:
		if (!to)
			return writev(fd, v, 2);
		break;
	default:
		break;
	}
	return sendto(fd, b, n, 0, (struct sockaddr *)to, to ? sizeof *to : 0);
}

static void send_to(struct one *o, int to, int n)
{
	static char b[BIGGEST];
	int way = pick(5);
	size_t len = 5 + (size_t)pick(pick(5) ? 60 : BIGGEST - 5);
	struct sockaddr_in a = address(to);
	struct one *gets = receiver(o->addr, to);

	if (gets && gets->waiting + n > MOST)
		return;
	out("send %td from %d to %d, %zu bytes, by %d", o - r.all, o->addr, to, len, way);
	for (int i = 0; i < n; i++) {
		r.sent++;
		memset(b, (int)(r.sent * 7), len);
		memcpy(b, &r.sent, 4);
		b[4] = (char)o->id;
		ssize_t rc = result("sent", send_by(way, descriptor(o), b, len, o->peer >= 0 ? NULL : &a));
		if (gets && rc >= 0)
			gets->waiting++;
	}
}

static void send_some(struct one *o) { send_to(o, o->peer >= 0 ? o->peer : pick(ADDRS), 1 + pick(6)); }

/* ---- receiving ------------------------------------------------------------------ */

// Receives a datagram without waiting; says its length, or -1 with errno.
static ssize_t receive_by(int way, int fd, char *b, struct sockaddr_in *from)
{
	socklen_t len = sizeof *from;
	struct iovec v[2] = {{b, 5}, {b + 5, BIGGEST - 5}};
	struct mmsghdr m = {.msg_hdr = {.msg_name = from, .msg_namelen = len, .msg_iov = v, .msg_iovlen = 2}};
	struct pollfd p = {fd, POLLIN, 0};
	int ep;

	switch (way) {
	case 0:
		return recvmsg(fd, &m.msg_hdr, 0);
	case 1:
		return recvmmsg(fd, &m, 1, 0, NULL) == 1 ? (ssize_t)m.msg_len : -1;
	case 2:
		poll(&p, 1, 0);
		break;
	case 3:
		ep = ep_new();
		ep_set(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 0);
		epoll_wait(ep, &(struct epoll_event){0}, 1, 0);
		close(ep);
		break;
	case 4:
		recv(fd, b, 1, MSG_PEEK);
		break;
	default:
		break;
	}
	return recvfrom(fd, b, BIGGEST, 0, (struct sockaddr *)from, &len);
}

// Receives n datagrams at most, and keeps what they are. An error is one of its own.
static void take(struct one *o, int n)
{
	char b[BIGGEST];
	int way = pick(6);

	for (; n > 0; n--) {
		struct sockaddr_in from = {0};
		memset(b, 0, sizeof b);
		ssize_t len = receive_by(way, descriptor(o), b, &from);
		if (len < 0 && errno == EAGAIN)
			return;
		struct came c = {.len = len < 0 ? -errno : len, .from = len < 0 ? -1 : (int)(ntohl(from.sin_addr.s_addr) - r.first)};
		if (len >= 0)
			memcpy(&c.number, b, 4), c.id = b[4];
		for (ssize_t i = 5; i < len; i++)
			c.sum = c.sum * 31 + (unsigned char)b[i];
		pthread_mutex_lock(&had.lock);
		if (had.n < (int)(sizeof had.list / sizeof *had.list))
			had.list[had.n++] = c;
		pthread_mutex_unlock(&had.lock);
		o->waiting -= len >= 0;
	}
}

// Writes what was received, by sender.
static void tell(void)
{
	for (int id = 0; id <= r.opened; id++)
		for (int i = 0; i < had.n; i++)
			if (had.list[i].id == id)
				out("  from %d: %u, %zd bytes, %x", had.list[i].from, had.list[i].number, had.list[i].len, had.list[i].sum);
	had.n = 0;
}

// Reads all that there is, part by part: each part has its own way.
static void drain_one(struct one *o)
{
	out("drain %td: %d", o - r.all, o->waiting);
	for (int i = 0; i < 8; i++)
		take(o, MOST / 4);
	tell();
}

// Sends one by one to a socket that takes them: so a flow through memory begins.
static void talk(struct one *o)
{
	int to = o->peer >= 0 ? o->peer : pick(ADDRS);
	struct one *gets = receiver(o->addr, to);

	for (int i = 0; gets && i < ROUNDS; i++) {
		send_to(o, to, 1);
		drain_one(gets);
		nap(2);
	}
}

/* ---- more threads, more descriptors, other processes ---------------------------- */

static struct one *shared;

static void *take_in_thread(void *arg)
{
	char b[BIGGEST];
	struct sockaddr_in from;

	(void)arg;
	for (ssize_t len; (len = receive_by(5, shared->fd, b, &from)) >= 0 || errno != EAGAIN;) {
		pthread_mutex_lock(&had.lock);
		had.n += len >= 0;
		pthread_mutex_unlock(&had.lock);
	}
	return NULL;
}

// Two threads have all of it between them.
static void drain_together(struct one *o)
{
	pthread_t t[2];

	shared = o;
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, take_in_thread, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	out("two threads drain %td: %d of %d", o - r.all, had.n, o->waiting);
	had.n = o->waiting = 0;
}

static void duplicate(struct one *o)
{
	if (o->copy >= 0)
		close(o->copy);
	o->copy = pick(2) ? dup(o->fd) : fcntl(o->fd, F_DUPFD_CLOEXEC, 50);
	out("duplicate %td: %d", o - r.all, o->copy >= 0);
}

// A child sends and receives; the parent goes on. What waits in memory would stay with the parent
// (docs/exn-run.md).
static void fork_one(struct one *o)
{
	int status;

	drain_one(o);
	fflush(stdout);
	pid_t p = fork();
	if (!p) {
		send_to(o, o->addr, 2);
		drain_one(o);
		fflush(stdout);
		_exit(0);
	}
	R(waitpid(p, &status, 0) == p && status == 0);
	send_some(o);
	drain_one(o);
}

static void step(void)
{
	struct one *o = &r.all[pick(SOCKETS)];
	int what = pick(100), peer = pick(ADDRS + 1) - 1;

	if (o->fd < 0) {
		open_one(o, pick(ADDRS));
	} else if (what < 20) {
		talk(o);
	} else if (what < 65) {
		send_some(o);
	} else if (what < 82) {
		drain_one(o);
	} else if (what < 87) {
		if (peer == o->peer || at_with(o->addr, peer))
			return;
		out("connect %td to %d", o - r.all, peer);
		change_peer(o, peer);
		settle();
	} else if (what < 92) {
		forget(o);
	} else if (what < 95) {
		duplicate(o);
	} else {
		drain_together(o);
	}
}

static void at_random(unsigned seed)
{
	struct sockaddr_in a;
	int c, s;

	udp_pair(&c, &s);
	close(udp_socket(&a)); // whose port the kernel has found to be free
	r.port = a.sin_port;
	r.first = 0x7f000000 | ((unsigned)getpid() & 0x3fffff) << 2;
	r.seed = seed;
	for (int i = 0; i < SOCKETS; i++)
		r.all[i] = (struct one){.fd = -1, .copy = -1};
	for (int i = 0; i < ADDRS; i++)
		open_one(&r.all[i], i);
	for (int i = fewer(STEPS); i > 0; i--)
		step();
	for (int i = 0; i < SOCKETS; i++) // from here on a fork has made the sockets the kernel's
		if (r.all[i].fd >= 0)
			fork_one(&r.all[i]);
	for (int i = 0; i < SOCKETS; i++)
		if (r.all[i].fd >= 0)
			drain_one(&r.all[i]);
}

static void random_1(void) { at_random(1); }
static void random_2(void) { at_random(20); }
static void random_3(void) { at_random(300); }
static void random_4(void) { at_random(4000); }

const struct probe udprandom_probes[] = {
	{"udp-random-1", random_1, 0},
	{"udp-random-2", random_2, 0},
	{"udp-random-3", random_3, 0},
	{"udp-random-4", random_4, 0},
	{NULL, NULL, 0},
};

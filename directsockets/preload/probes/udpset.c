// Datagrams: poll, select, epoll, order, waiting.
#include "udp.h"

#include <sys/time.h>

static void polled(int fd, short events)
{
	struct pollfd p = {fd, events, 0};
	int n = poll(&p, 1, 0);

	out("  poll %d %s", n, revents((unsigned)p.revents));
}

static void *send_later(void *p)
{
	nap(30);
	send(*(int *)p, "late", 4, 0);
	return NULL;
}

// What poll and select say before and after, and that they wake.
static void ready(void)
{
	int c, s;
	fd_set in, none;
	struct timeval t = {0, 0}, more = {60, 0};
	pthread_t th;

	udp_pair(&c, &s);
	polled(s, POLLIN | POLLOUT);
	send(c, "a", 1, 0);
	send(c, "b", 1, 0);
	polled(s, POLLIN | POLLOUT);
	polled(s, POLLOUT);
	show(s, 0);
	polled(s, POLLIN | POLLRDNORM | POLLPRI);
	FD_ZERO(&in);
	FD_ZERO(&none);
	FD_SET(s, &in);
	R(select(s + 1, &in, NULL, &none, &t));
	out("  %d", FD_ISSET(s, &in) != 0);
	show(s, 0);
	R(select(s + 1, &in, NULL, NULL, &t));
	out("  %d", FD_ISSET(s, &in) != 0);
	polled(s, POLLIN);
	pthread_create(&th, NULL, send_later, &c);
	R(readable(s, LONG));
	show(s, MSG_DONTWAIT);
	pthread_join(th, NULL);
	pthread_create(&th, NULL, send_later, &c);
	FD_SET(s, &in);
	R(select(s + 1, &in, NULL, NULL, &more));
	show(s, MSG_DONTWAIT);
	pthread_join(th, NULL);
	pthread_create(&th, NULL, send_later, &c);
	show(s, 0);
	pthread_join(th, NULL);
	R(readable(s, 10));
}

// Level, edge and once: an edge for each arrival, none without one.
static void modes(void)
{
	int c, s, level = ep_new(), edge = ep_new(), once = ep_new();

	udp_pair(&c, &s);
	R(ep_set(level, EPOLL_CTL_ADD, s, EPOLLIN, 1));
	R(ep_set(edge, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLET, 2));
	R(ep_set(once, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLONESHOT, 3));
	for (int i = 0; i < 3; i++) {
		out("round %d", i);
		send(c, "a", 1, 0);
		ep_show(level, 8, LONG);
		ep_show(edge, 8, LONG);
		ep_show(once, 8, 0);
		ep_show(edge, 8, 0);
		ep_show(level, 8, 0);
		send(c, "b", 1, 0);
		ep_show(edge, 8, 0);
		ep_show(once, 8, 0);
		show(s, 0);
		ep_show(level, 8, 0);
		ep_show(edge, 8, 0);
		show(s, 0);
		quiet(s);
		ep_show(level, 8, 0);
		ep_show(edge, 8, 0);
		if (i == 1)
			R(ep_set(once, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT, 4));
	}
	R(ep_set(level, EPOLL_CTL_MOD, s, EPOLLOUT, 5));
	send(c, "c", 1, 0);
	ep_show(level, 8, 0);
	R(ep_set(level, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLOUT, 6));
	ep_show(level, 8, 0);
	R(ep_set(edge, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLOUT | EPOLLET, 7));
	ep_show(edge, 8, 0);
	ep_show(edge, 8, 0);
	R(ep_set(level, EPOLL_CTL_DEL, s, 0, 0));
	ep_show(level, 8, 0);
	R(ep_set(level, EPOLL_CTL_ADD, s, EPOLLIN, 8));
	ep_show(level, 8, 0);
	show(s, 0);
}

// The number that is in a set is closed, while the socket has another one: it is told of as before,
// once if that was asked for, and nothing can be changed any more.
static void renumbered(void)
{
	static const unsigned how[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};

	for (unsigned when = 0; when < 3; when++) // the number is closed: before a datagram comes, after, and is used again
		for (unsigned i = 0; i < 4; i++) {
			int c, s, t, u = -1, d = -1, ep = ep_new();

			out("how %d, when %d", i, when);
			udp_pair(&c, &s);
			R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN | how[i], 1));
			t = dup(s);
			if (when == 1)
				send(c, "a", 1, 0);
			close(s);
			if (when == 2) {
				udp_pair(&d, &u);
				dup2(u, s);
				R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 2));
			}
			if (when != 1)
				send(c, "a", 1, 0);
			ep_show(ep, 8, LONG);
			ep_show(ep, 8, 0);
			show(t, 0);
			for (int k = 0; k < 2; k++) { // asleep meanwhile
				ep_show(ep, 8, 20);
				send(c, "b", 1, 0);
				if (when != 1 || !(how[i] & EPOLLONESHOT)) // which may be told once more: docs/exn-run.md
					ep_show(ep, 8, 20);
				show(t, 0);
				quiet(t);
			}
			if (when == 2) {
				send(d, "d", 1, 0);
				ep_show(ep, 8, 20);
				ep_show(ep, 8, 20);
				show(u, 0);
				close(s);
				close(u);
				close(d);
			}
			close(ep);
			close(t);
			close(c);
		}
}

// Sets with other descriptors, a set that is full, one in another.
static void mixed(void)
{
	int c, s, d, t, p[2], ep = ep_new(), outer = ep_new();

	udp_pair(&c, &s);
	udp_pair(&d, &t);
	if (pipe(p))
		die("pipe");
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1));
	R(ep_set(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 2));
	R(ep_set(ep, EPOLL_CTL_ADD, t, EPOLLIN, 3));
	send(c, "a", 1, 0);
	put(p[1], "x", 1);
	send(d, "b", 1, 0);
	ep_show(ep, 8, LONG);
	struct epoll_event few[2];
	out("one at a time: %d %d", ep_hear(ep, few, 1, 0), ep_hear(ep, few, 2, 0));
	show(s, 0);
	ep_show(ep, 8, 0);
	R(ep_set(outer, EPOLL_CTL_ADD, ep, EPOLLIN, 9));
	ep_show(outer, 8, 0);
	show(t, 0);
	get(p[0], &(char){0}, 1);
	ep_show(outer, 8, 0);
	send(c, "nested", 6, 0);
	ep_show(outer, 8, LONG);
	ep_show(ep, 8, 0);
	show(s, 0);
	struct pollfd f[4] = {{p[0], POLLIN, 0}, {s, POLLIN, 0}, {-1, POLLIN, 0}, {t, POLLIN | POLLOUT, 0}};
	send(d, "c", 1, 0);
	R(poll(f, 4, LONG));
	out("%s %s %s %s", revents((unsigned)f[0].revents), revents((unsigned)f[1].revents), revents((unsigned)f[2].revents), revents((unsigned)f[3].revents));
	close(t);
	ep_show(ep, 8, 0);
}

// A thread that waits in a set is woken: by a datagram, by a socket that joins with one, by one
// that is to be told now.
static int joining[2];

static void *join_later(void *arg)
{
	(void)arg;
	nap(30);
	ep_set(joining[0], EPOLL_CTL_ADD, joining[1], EPOLLIN, 4);
	return NULL;
}

static void *modify_later(void *arg)
{
	(void)arg;
	nap(30);
	ep_set(joining[0], EPOLL_CTL_MOD, joining[1], EPOLLIN, 5);
	return NULL;
}

static void woken(void)
{
	int c, s, ep = ep_new();
	pthread_t th;

	udp_pair(&c, &s);
	send(c, "a", 1, 0);
	send(c, "b", 1, 0);
	show(s, 0);
	joining[0] = ep;
	joining[1] = s;
	pthread_create(&th, NULL, join_later, NULL);
	ep_show(ep, 8, LONG);
	pthread_join(th, NULL);
	R(ep_set(ep, EPOLL_CTL_MOD, s, EPOLLOUT, 5));
	R(ep_set(ep, EPOLL_CTL_MOD, s, 0, 5));
	pthread_create(&th, NULL, modify_later, NULL);
	ep_show(ep, 8, LONG);
	pthread_join(th, NULL);
	show(s, 0);
	pthread_create(&th, NULL, send_later, &c);
	ep_show(ep, 8, LONG);
	pthread_join(th, NULL);
	show(s, 0);
	ep_show(ep, 8, 0);
}

// What a program's own calls leave on the stack, where the library's variables are next.
static __attribute__((noinline)) void dirty(void)
{
	volatile char b[1 << 14];

	memset((char *)b, 0x5a, sizeof b);
	__asm__ volatile("" ::"r"(b) : "memory");
}

static int waiting_ep;

static void *wait_dirty(void *arg)
{
	struct epoll_event e;
	char b[8];

	dirty();
	if (epoll_wait(waiting_ep, &e, 1, LONG) == 1 && recv(e.data.fd, b, sizeof b, 0) == 1)
		*(int *)arg += 1;
	return NULL;
}

// A thread waits in a set with one UDP socket. Another joins, and gets a datagram, as with
// Boost.Asio, nng and tokio.
static void joined(void)
{
	struct sockaddr_in addr[2], from;
	pthread_t th;
	int told = 0, rounds = fewer(50);

	for (int i = 0; i < rounds; i++) {
		int a = udp_socket(&addr[0]), b = udp_socket(&addr[1]), c = udp_socket(&from);
		waiting_ep = ep_new();
		ep_set(waiting_ep, EPOLL_CTL_ADD, a, EPOLLIN, (unsigned long)a);
		pthread_create(&th, NULL, wait_dirty, &told);
		nap(i % 20);
		ep_set(waiting_ep, EPOLL_CTL_ADD, b, EPOLLIN, (unsigned long)b);
		nap(i % 10);
		sendto(c, "x", 1, 0, (struct sockaddr *)&addr[1], sizeof addr[1]);
		pthread_join(th, NULL);
		close(a), close(b), close(c), close(waiting_ep);
	}
	out("all told: %d", told == rounds);
}

// A thread that waits for a socket in one of three ways, and receives one datagram.
struct sleeper {
	int fd, how, tid;
	char b[16];
	ssize_t n;
};

static void *sleeper(void *arg)
{
	struct sleeper *p = arg;
	struct pollfd f = {p->fd, POLLIN, 0};
	struct epoll_event e;
	int ep = ep_new();

	ep_set(ep, EPOLL_CTL_ADD, p->fd, EPOLLIN, 1);
	__atomic_store_n(&p->tid, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	if (p->how == 1)
		poll(&f, 1, LONG);
	else if (p->how == 2)
		epoll_wait(ep, &e, 1, LONG);
	p->n = recv(p->fd, p->b, sizeof p->b, 0);
	close(ep);
	return NULL;
}

// While a receiver sleeps, another socket takes its sender over: it binds the same port and
// connects, as servers of DTLS do. What comes then is the other one's, and the first one sleeps
// on.
static void taken_over(void)
{
	for (int i = 0; i < 6; i++) {
		struct sockaddr_in a, b;
		int c, other, last, one = 1, s = udp_socket(&a);
		struct sleeper p = {.fd = s, .how = i % 3};
		pthread_t th;

		out("asleep in %s, shared %s", (const char *[]){"recv", "poll", "epoll_wait"}[i % 3], i < 3 ? "before" : "after");
		if (i < 3)
			R(setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one));
		c = udp_socket(&b);
		if (connect(c, (struct sockaddr *)&a, sizeof a))
			die("connect");
		if (!is_cold())
			udp_warm(c, s);
		if (i >= 3)
			R(setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one));
		quiet(s);
		pthread_create(&th, NULL, sleeper, &p);
		udp_asleep(&p.tid);
		other = socket(AF_INET, SOCK_DGRAM, 0);
		R(setsockopt(other, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one));
		R(bind(other, (struct sockaddr *)&a, sizeof a));
		R(connect(other, (struct sockaddr *)&b, sizeof b));
		for (int k = 0; k < 4; k++)
			R(send(c, (char[]){(char)('a' + k)}, 1, 0));
		for (int k = 0; k < 4; k++)
			show(other, MSG_DONTWAIT);
		last = udp_socket(&b);
		R(sendto(last, "end", 3, 0, (struct sockaddr *)&a, sizeof a));
		pthread_join(th, NULL);
		shown(p.b, p.n);
		quiet(s);
		close(c), close(s), close(other), close(last);
	}
}

// One sender's datagrams keep their order, however they travel: the receiver sleeps now and then,
// and each seventh goes by the kernel.
struct flood {
	int fd, n;
	int over;
};

static void *flood(void *p)
{
	struct flood *f = p;
	union {
		char b[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u;

	long end = monotonic() + 5000; // a busy machine does less

	for (int i = 0; i < f->n && monotonic() < end; i++) {
		struct iovec v = {&i, sizeof i};
		struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
		if (i % 7 == 6) { /* a TTL of its own */
			m.msg_control = u.b;
			m.msg_controllen = sizeof u.b;
			struct cmsghdr *c = CMSG_FIRSTHDR(&m);
			c->cmsg_level = IPPROTO_IP;
			c->cmsg_type = IP_TTL;
			c->cmsg_len = CMSG_LEN(sizeof(int));
			memcpy(CMSG_DATA(c), &(int){63}, sizeof(int));
		}
		if (sendmsg(f->fd, &m, 0) != sizeof i)
			die("sendmsg");
		if (i % 50 == 49)
			nap(1);
	}
	__atomic_store_n(&f->over, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void order(void)
{
	int c, s, last = -1, wrong = 0, n = 0;
	struct timeval t = {0, 200000};
	pthread_t th;
	struct flood f;

	udp_pair(&c, &s);
	f = (struct flood){c, fewer(3000), 0};
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	pthread_create(&th, NULL, flood, &f);
	for (int last_look = 0; n < f.n && !last_look;) {
		int i;
		last_look = __atomic_load_n(&f.over, __ATOMIC_ACQUIRE); // some may have been lost
		if (readable(s, 200) <= 0)
			continue;
		while (n < f.n && recv(s, &i, sizeof i, n % 3 ? MSG_DONTWAIT : 0) == sizeof i) {
			wrong += i <= last;
			last = i;
			n++;
		}
	}
	pthread_join(th, NULL);
	out("%d wrong, some %d", wrong, n > 0); /* how many are lost says how busy the machine is */
}

// Waiting ends with a time, or a signal, or not at all for one that does not block.
static void on_alarm(int sig) { (void)sig; }

static void waits(void)
{
	int c, s;
	struct timeval t = {0, 20000};
	struct sigaction a = {.sa_handler = on_alarm};
	struct itimerval soon = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};

	udp_pair(&c, &s);
	R(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
	show(s, 0);
	R(send(c, "in time", 7, 0));
	show(s, 0);
	t.tv_usec = 0;
	R(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
	sigaction(SIGALRM, &a, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
	show(s, 0);
	R(readable(s, LONG));
	setitimer(ITIMER_REAL, &never, NULL);
	nonblock(s, 1);
	show(s, 0);
	R(send(c, "a", 1, 0));
	show(s, 0);
	show(s, 0);
	nonblock(s, 0);
	signal(SIGALRM, SIG_DFL);
	alarm(300);
}

// A thread that has a socket join a set and leave it, again and again.
struct joins {
	int ep, fd, over;
};

static void *join(void *p)
{
	struct joins *j = p;

	while (!__atomic_load_n(&j->over, __ATOMIC_RELAXED)) {
		ep_set(j->ep, EPOLL_CTL_ADD, j->fd, EPOLLIN, 1);
		ep_set(j->ep, EPOLL_CTL_DEL, j->fd, 0, 0);
	}
	return NULL;
}

// While it does, the process forks: each child has its sets whole.
static void forking(void)
{
	struct sockaddr_in addr;
	pthread_t th;
	struct joins j = {ep_new(), udp_socket(&addr), 0};
	int failed = 0, status;

	pthread_create(&th, NULL, join, &j);
	for (int i = 0; i < 100 && !failed; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			struct epoll_event ev;
			alarm(60);
			int ep = ep_new(); // the other one is the parent's, too
			if (ep_set(ep, EPOLL_CTL_ADD, j.fd, EPOLLIN, 2) || sendto(j.fd, "a", 1, 0, (struct sockaddr *)&addr, sizeof addr) != 1)
				_exit(1);
			_exit(epoll_wait(ep, &ev, 1, LONG) != 1 || ev.data.u64 != 2);
		}
		failed = waitpid(pid, &status, 0) != pid || status != 0;
		drain(j.fd);
	}
	__atomic_store_n(&j.over, 1, __ATOMIC_RELAXED);
	pthread_join(th, NULL);
	out("failed %d", failed);
}

// A socket that is told to take little holds little.
static void buffer(void)
{
	char big[1400];
	int c, s, small = 1, n, lost;

	fill(big, sizeof big, 3);
	udp_pair(&c, &s);
	R(setsockopt(s, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
	if (!is_cold())
		udp_warm(c, s);
	for (int i = 0; i < 500; i++)
		send(c, big, sizeof big, 0);
	n = drain(s);
	out("some %d, all %d", n > 0, n == 500);
	R(send(c, "one more", 8, 0));
	show(s, 0);
	small = 1 << 20;
	R(setsockopt(s, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
	for (lost = 0; lost < 50; lost++)
		send(c, big, 100, 0);
	out("%d", drain(s));
}

const struct probe udpset_probes[] = {
	{"udp-ready", ready, 0},
	{"udp-modes", modes, 0},
	{"udp-renumbered", renumbered, 0},
	{"udp-mixed", mixed, 0},
	{"udp-woken", woken, 0},
	{"udp-joined", joined, 1},
	{"udp-taken-over", taken_over, 0},
	{"udp-order", order, 0},
	{"udp-waits", waits, 0},
	{"udp-forking", forking, 1},
	{"udp-buffer", buffer, 0},
	{NULL, NULL, 0},
};

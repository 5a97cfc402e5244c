#include "storm.h"

#include <setjmp.h>

/* Probes of handlers that do not return but jump, and of every call interrupted by every other. */

static sigjmp_buf back;
static volatile int may_jump;

static void jump(void)
{
	if (may_jump) {
		may_jump = 0;
		if (fired % 2)
			longjmp(back, 1); /* of sigsetjmp: the same */
		siglongjmp(back, 1);
	}
}

/* Sends from n frames further down. Counts the frames that something has spoilt. */
static __attribute__((noinline)) ssize_t deep(int n, size_t len)
{
	volatile char pad[4096];

	memset((void *)(uintptr_t)pad, n, sizeof pad);
	if (n == 0)
		return send(c, buf, len, MSG_NOSIGNAL);
	ssize_t r = deep(n - 1, len);
	add(&wrong, pad[7] != (char)n);
	return r;
}

/* Jumps out of sends that run and sends that wait, then a send from a deeper frame, of which a
 * signal may let a part go, but not nothing. */
static void signal_jump(void)
{
	struct counts n;
	volatile int failed = 0;

	for (volatile int flags = 0; flags <= SA_ONSTACK; flags += SA_ONSTACK) {
		pid_t pid = count_begin();
		storm(jump, flags);
		for (volatile unsigned k = 0; fired < TICKS && k < ROUNDS; k++) {
			if (sigsetjmp(back, 1)) {
				ssize_t r = deep(10, 64);
				failed += r < 1 || r > 64;
				continue;
			}
			may_jump = 1;
			send(c, buf, k % 3 ? 1 + k * 7919 % 3000 : sizeof buf, MSG_NOSIGNAL);
			may_jump = 0;
		}
		stop_timer();
		put(c, "H", 1);
		counted(pid, &n);
		out("failed %d spoilt %ld last %ld other %ld", failed, wrong, n.h, n.other);
		close(c);
	}
}

/* Jumps out of calls that wait, each time at another place: the next call, and other threads'
 * calls, go on. */
static void signal_jump_waiting(void)
{
	static const char *const names[] = {"recv", "poll", "select", "recvmsg", "read", "peek"};

	pair(&c, &s);
	for (volatile int how = 0; how < 6; how++) {
		volatile int jumps = 0;
		storm(jump, how & 1 ? SA_ONSTACK : 0);
		for (volatile int k = 0; k < 40; k++) {
			if (sigsetjmp(back, 1)) {
				jumps++;
				continue;
			}
			may_jump = 1;
			fd_set in;
			struct pollfd p = {s, POLLIN, 0};
			struct iovec v = {buf, 10};
			struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
			FD_ZERO(&in);
			FD_SET(s, &in);
			switch (how) {
			case 0: recv(s, buf, 10, 0); break;
			case 1: poll(&p, 1, -1); break;
			case 2: select(s + 1, &in, NULL, NULL, NULL); break;
			case 3: recvmsg(s, &m, 0); break;
			case 4: read(s, buf, 10); break;
			case 5: recv(s, buf, 10, MSG_PEEK); break;
			}
		}
		stop_timer();
		out("%s: %d jumps", names[how], jumps);
		pthread_t t;
		pthread_create(&t, NULL, write_later, &c);
		R(recv(s, buf, 10, 0));
		pthread_join(t, NULL);
	}
}

/* ---- every call in every call ------------------------------------------------ */

static int l;
static struct sockaddr_in at;
static volatile long sent_c, got_s;
static unsigned draw;

static unsigned below(unsigned n) { return random_below(&draw, n); }

static void note(ssize_t r, volatile long *n)
{
	if (r > 0)
		add(n, r);
	else if (r < 0 && errno != EAGAIN)
		add(&wrong, 1);
}

static void call_sockets(unsigned which)
{
	struct linger reset = {1, 0};
	int fd;

	switch (which) {
	case 0:
		fd = dup(c);
		if (fd < 0 || close(fd))
			add(&wrong, 1);
		return;
	case 1:
		fd = fcntl(s, F_DUPFD, 100);
		if (fd < 100 || close(fd))
			add(&wrong, 1);
		return;
	case 2:
		fd = socket(AF_INET, SOCK_STREAM, 0);
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
		if (fd < 0)
			add(&wrong, 1);
		/* Each of these may be interrupted, or find that the other end was closed. */
		if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) {
			send(fd, "x", 1, MSG_NOSIGNAL);
			shutdown(fd, SHUT_WR);
		}
		close(fd);
		return;
	case 3: /* over another descriptor of the other end */
		fd = dup(s);
		if (fd < 0 || dup2(c, fd) != fd || dup3(s, fd, O_CLOEXEC) != fd || close(fd))
			add(&wrong, 1);
		return;
	default:
		fd = which & 1 ? accept(l, NULL, NULL) : accept4(l, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			close(fd);
		else if (errno != EAGAIN && errno != ECONNABORTED)
			add(&wrong, 1);
	}
}

/* Waits that end at once. */
static int looks(unsigned which)
{
	struct pollfd p[2] = {{c, POLLIN | POLLOUT, 0}, {s, POLLIN | POLLOUT, 0}};
	struct timespec none = {0, 0};
	struct timeval now = {0, 0};
	fd_set set;

	FD_ZERO(&set);
	FD_SET(s, &set);
	switch (which) {
	case 0: return poll(p, 2, 0) >= 0 || errno == EINTR;
	case 1: return ppoll(p, 2, &none, NULL) >= 0 || errno == EINTR;
	case 2: return select(s + 1, &set, NULL, NULL, &now) >= 0 || errno == EINTR;
	default: return pselect(s + 1, &set, NULL, NULL, &none, NULL) >= 0 || errno == EINTR;
	}
}

/* Calls that change no descriptor, and all of them. */
enum { STAYING = 20, CALLS = STAYING + 6 };

/* One call of those that POSIX lists as async-signal-safe, or that programs make in handlers all
 * the same. */
static void call(unsigned which)
{
	char b[200] = "abc";
	struct iovec v = {b, sizeof b};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	struct sigaction sa;
	struct sockaddr_in a;
	socklen_t len = sizeof a, four = 4;
	int value = 1;

	switch (which) {
	case 0: note(send(c, b, 1 + below(150), MSG_DONTWAIT), &sent_c); break;
	case 1: note(recv(s, b, 1 + below(200), MSG_DONTWAIT), &got_s); break;
	case 2: note(sendmsg(c, &m, MSG_DONTWAIT), &sent_c); break;
	case 3: note(recvmsg(s, &m, MSG_DONTWAIT), &got_s); break;
	case 4: note(sendto(c, b, 1, MSG_DONTWAIT, NULL, 0), &sent_c); break;
	case 5: note(recvfrom(s, b, 10, MSG_DONTWAIT, NULL, NULL), &got_s); break;
	case 6:
	case 7: add(&wrong, !looks(below(4))); break;
	case 8: add(&wrong, getsockopt(c, SOL_SOCKET, SO_ERROR, &value, &four) || value); break;
	case 9: add(&wrong, setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value)); break;
	case 10: add(&wrong, fcntl(c, F_GETFL) < 0 || sockatmark(s)); break;
	case 11: add(&wrong, getsockname(c, (struct sockaddr *)&a, &len) || getpeername(s, (struct sockaddr *)&a, &len)); break;
	case 12: add(&wrong, sigaction(SIGRTMIN, NULL, &sa) || sa.sa_handler != on_tick); break;
	case 13: recv(s, b, 10, MSG_DONTWAIT | MSG_PEEK); break;
	case 14: note(write(c, b, 1 + below(150)), &sent_c); break;
	case 15: note(read(s, b, 1 + below(200)), &got_s); break;
	case 16: note(writev(c, &v, 1), &sent_c); break;
	case 17: note(readv(s, &v, 1), &got_s); break;
	case 18: add(&wrong, listen(l, 100) != 0); break;
	case 19: add(&wrong, signal(SIGUSR2, SIG_IGN) == SIG_ERR); break;
	default: call_sockets(which - STAYING);
	}
}

static void call_any(void) { call(below(CALLS)); }

static void begin_any(void)
{
	l = listener(&at);
	nonblock(l, 1);
	pair(&c, &s);
	nonblock(c, 1);
	nonblock(s, 1);
	sent_c = got_s = 0;
}

static void end_any(void)
{
	nonblock(c, 0);
	nonblock(s, 0);
	R(shutdown(c, SHUT_WR));
	for (ssize_t r; (r = recv(s, buf, sizeof buf, 0)) > 0;)
		got_s += r;
	close(c);
	close(s);
	close(l);
}

/* All pairs of them, one interrupted by the other. */
static void signal_any(void)
{
	for (int flags = 0; flags <= SA_ONSTACK; flags += SA_ONSTACK) {
		begin_any();
		storm(call_any, flags);
		for (unsigned k = 0; fired < 2 * TICKS && k < ROUNDS; k++)
			call(k % CALLS);
		stop_timer();
		end_any();
		out("all %d wrong %ld", got_s == sent_c, wrong);
	}
}

static void call_and_jump(void)
{
	call_any();
	jump();
}

/* The same, and the handler does not return. What was interrupted may have been done or not. */
static void signal_any_jump(void)
{
	for (volatile int flags = 0; flags <= SA_ONSTACK; flags += SA_ONSTACK) {
		begin_any();
		storm(call_and_jump, flags);
		for (volatile unsigned k = 0; fired < TICKS && k < ROUNDS; k++) {
			if (sigsetjmp(back, 1))
				continue;
			may_jump = k % 17 == 0;
			call(k % STAYING);
			may_jump = 0;
		}
		stop_timer();
		for (int i = 0; i < 2; i++)
			while (recv(i ? s : c, buf, sizeof buf, MSG_DONTWAIT) > 0)
				;
		nap(20);
		while (recv(s, buf, sizeof buf, MSG_DONTWAIT) > 0)
			;
		nonblock(c, 0);
		nonblock(s, 0);
		put(c, "there", 5);
		out("%zu", get(s, buf, 5));
		put(s, "back", 4);
		out("%zu", get(c, buf, 4));
		end_any();
	}
}

const struct probe jump_probes[] = {
	{"signal-jump", signal_jump, 0},
	{"signal-jump-waiting", signal_jump_waiting, 0},
	{"signal-any", signal_any, 0},
	{"signal-any-jump", signal_any_jump, 0},
	{NULL, NULL, 0},
};

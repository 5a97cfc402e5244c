#include "probe.h"

#include <setjmp.h>
#include <time.h>

/* Probes of calls in signal handlers that interrupt calls, on the same connection, of jumps out of them, and of
 * cancellation. What a storm of signals does is counted: the sums are the same whatever was interrupted when. */

enum { TICKS = 400, ROUNDS = 20000000 };

static char buf[1 << 18];
static int c, s;
static volatile long fired, by_handler, wrong;
static void (*volatile act)(void);
static unsigned char alternate[1 << 16];

/* A handler may add while another, or what it has interrupted, adds. */
static void add(volatile long *n, long more) { __atomic_fetch_add(n, more, __ATOMIC_RELAXED); }

static void on_tick(int sig)
{
	int saved = errno;

	(void)sig;
	add(&fired, 1);
	act();
	errno = saved;
}

static timer_t timer;
static stack_t stack_before; /* a sanitizer's */

/* A storm of signals for this thread, whose handler calls fn. */
static void storm(void (*fn)(void), int flags)
{
	struct sigaction a = {.sa_handler = on_tick, .sa_flags = SA_RESTART | flags};
	struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
	struct itimerspec every = {{0, 130000}, {0, 130000}};
	stack_t st = {.ss_sp = alternate, .ss_size = sizeof alternate};

	ev._sigev_un._tid = (int)syscall(SYS_gettid);
	sigaltstack(&st, &stack_before);
	sigaction(SIGRTMIN, &a, NULL);
	act = fn;
	fired = by_handler = wrong = 0;
	if (timer_create(CLOCK_MONOTONIC, &ev, &timer) || timer_settime(timer, 0, &every, NULL))
		die("timer");
}

static void stop_timer(void)
{
	timer_delete(timer);
	signal(SIGRTMIN, SIG_IGN);
	sigaltstack(&stack_before, NULL);
}

/* ---- bytes ---------------------------------------------------------------- */

struct counts {
	long m, h, other;
};

static int report[2];

/* Counts what comes, in another process, so that the sender has a connection and a process for itself. */
static void count_all(void *unused)
{
	struct counts n = {0, 0, 0};

	(void)unused;
	close(c);
	for (ssize_t r; (r = recv(s, buf, sizeof buf, 0)) > 0;)
		for (ssize_t i = 0; i < r; i++)
			*(buf[i] == 'M' ? &n.m : buf[i] == 'H' ? &n.h : &n.other) += 1;
	put(report[1], &n, sizeof n);
}

static void send_h(void)
{
	ssize_t r = send(c, "H", 1, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (r == 1)
		add(&by_handler, 1);
	else if (errno != EAGAIN)
		add(&wrong, 1);
}

static void sends(int flags)
{
	struct counts n;
	long sent = 0;

	pair(&c, &s);
	if (pipe(report))
		die("pipe");
	pid_t pid = start(count_all, NULL);
	close(s);
	memset(buf, 'M', sizeof buf);
	storm(send_h, flags);
	for (unsigned k = 0; fired < TICKS && k < ROUNDS; k++) {
		ssize_t r = send(c, buf, k % 50 ? 1 + k * 7919 % 3000 : sizeof buf, MSG_NOSIGNAL);
		if (r > 0)
			sent += r;
		else
			add(&wrong, 1);
	}
	stop_timer();
	R(shutdown(c, SHUT_WR));
	get(report[0], &n, sizeof n);
	finish(pid);
	out("main %d handler %d other %ld wrong %ld", n.m == sent, n.h == by_handler, n.other, wrong);
}

static void signal_send(void)
{
	sends(0);
	sends(SA_ONSTACK);
}

static void *sends_thread(void *flags)
{
	sends(*(int *)flags);
	return NULL;
}

/* The thread's stack lies below the alternate one, or above it. */
static void signal_send_thread(void)
{
	for (int flags = 0; flags <= SA_ONSTACK; flags += SA_ONSTACK) {
		pthread_t t;
		pthread_create(&t, NULL, sends_thread, &flags);
		pthread_join(t, NULL);
	}
}

static unsigned char byte_at(long i) { return (unsigned char)(i * 31 + (i >> 8)); }

enum { STREAM = 12 << 20 };

static void send_stream(void *unused)
{
	(void)unused;
	close(c);
	for (long at = 0; at < STREAM;) {
		size_t n = 1 + (size_t)at * 7919 % 5000;
		for (size_t i = 0; i < n; i++)
			buf[i] = (char)byte_at(at + (long)i);
		put(s, buf, n);
		at += (long)n;
	}
}

static unsigned long sum, sum_handler;

static void recv_some(void)
{
	unsigned char b[100];
	ssize_t r = recv(c, b, sizeof b, MSG_DONTWAIT);

	if (r < 0 && errno != EAGAIN)
		add(&wrong, 1);
	for (ssize_t i = 0; i < r; i++, by_handler++)
		sum_handler += b[i];
}

static void signal_recv(void)
{
	long got = 0;
	unsigned long want = 0;

	pair(&c, &s);
	pid_t pid = start(send_stream, NULL);
	close(s);
	storm(recv_some, SA_ONSTACK);
	for (ssize_t r; (r = recv(c, buf, 1 + (size_t)got * 31 % sizeof buf, 0)) != 0; got += r > 0 ? r : 0) {
		if (r < 0)
			add(&wrong, 1);
		for (ssize_t i = 0; i < r; i++)
			sum += (unsigned char)buf[i];
	}
	stop_timer();
	finish(pid);
	for (long i = 0; i < got + by_handler; i++)
		want += byte_at(i);
	out("all %d sum %d wrong %ld", got + by_handler >= STREAM, sum + sum_handler == want, wrong);
}

/* ---- jumps ------------------------------------------------------------------ */

static sigjmp_buf back;
static volatile int may_jump;

static void jump(void)
{
	if (may_jump) {
		may_jump = 0;
		siglongjmp(back, 1);
	}
}

static __attribute__((noinline)) ssize_t deep(int n, size_t len)
{
	volatile char pad[4096];

	memset((void *)(uintptr_t)pad, n, sizeof pad);
	if (n > 0)
		return deep(n - 1, len) + (pad[7] != (char)n ? 1 : 0);
	return send(c, buf, len, MSG_NOSIGNAL);
}

/* Jumps out of sends that run and sends that wait, then a send from a deeper frame. */
static void signal_jump(void)
{
	struct counts n;
	volatile int failed = 0;

	if (pipe(report))
		die("pipe");
	for (volatile int flags = 0; flags <= SA_ONSTACK; flags += SA_ONSTACK) {
		pair(&c, &s);
		pid_t pid = start(count_all, NULL);
		close(s);
		memset(buf, 'M', sizeof buf);
		storm(jump, flags);
		for (volatile unsigned k = 0; fired < TICKS && k < ROUNDS; k++) {
			if (sigsetjmp(back, 1)) {
				failed += deep(10, 64) != 64;
				continue;
			}
			may_jump = 1;
			send(c, buf, k % 3 ? 1 + k * 7919 % 3000 : sizeof buf, MSG_NOSIGNAL);
			may_jump = 0;
		}
		stop_timer();
		put(c, "H", 1);
		R(shutdown(c, SHUT_WR));
		get(report[0], &n, sizeof n);
		finish(pid);
		out("failed %d last %ld other %ld", failed, n.h, n.other);
		close(c);
	}
}

/* Jumps out of calls that wait, each time at another place: the next call, and other threads' calls, go on. */
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

static unsigned below(unsigned n)
{
	draw = draw * 1103515245 + 12345;
	return (draw >> 16) % n;
}

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
	default:
		fd = accept(l, NULL, NULL);
		if (fd >= 0)
			close(fd);
		else if (errno != EAGAIN && errno != ECONNABORTED)
			add(&wrong, 1);
	}
}

/* One call of those that POSIX lists as async-signal-safe, or that programs make in handlers all the same. */
static void call(unsigned which)
{
	struct pollfd p[2] = {{c, POLLIN | POLLOUT, 0}, {s, POLLIN | POLLOUT, 0}};
	struct timeval now = {0, 0};
	char b[200] = "abc";
	struct iovec v = {b, sizeof b};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	struct sigaction sa;
	struct sockaddr_in a;
	socklen_t len = sizeof a, four = 4;
	int value = 1;
	fd_set set;

	FD_ZERO(&set);
	FD_SET(s, &set);
	switch (which) {
	case 0: note(send(c, b, 1 + below(150), MSG_DONTWAIT), &sent_c); break;
	case 1: note(recv(s, b, 1 + below(200), MSG_DONTWAIT), &got_s); break;
	case 2: note(sendmsg(c, &m, MSG_DONTWAIT), &sent_c); break;
	case 3: note(recvmsg(s, &m, MSG_DONTWAIT), &got_s); break;
	case 4: note(sendto(c, b, 1, MSG_DONTWAIT, NULL, 0), &sent_c); break;
	case 5: note(recvfrom(s, b, 10, MSG_DONTWAIT, NULL, NULL), &got_s); break;
	case 6: add(&wrong, poll(p, 2, 0) < 0 && errno != EINTR); break;
	case 7: add(&wrong, select(s + 1, &set, NULL, NULL, &now) < 0 && errno != EINTR); break;
	case 8: add(&wrong, getsockopt(c, SOL_SOCKET, SO_ERROR, &value, &four) || value); break;
	case 9: add(&wrong, setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value)); break;
	case 10: add(&wrong, fcntl(c, F_GETFL) < 0); break;
	case 11: add(&wrong, getsockname(c, (struct sockaddr *)&a, &len) || getpeername(s, (struct sockaddr *)&a, &len)); break;
	case 12: add(&wrong, sigaction(SIGRTMIN, NULL, &sa) || sa.sa_handler != on_tick); break;
	case 13: recv(s, b, 10, MSG_DONTWAIT | MSG_PEEK); break;
	default: call_sockets(which - 14);
	}
}

enum { CALLS = 18 };

static void call_any(void) { call(below(CALLS)); }

static void begin_any(void)
{
	l = listener(&at);
	nonblock(l, 1);
	pair(&c, &s);
	sent_c = got_s = 0;
}

static void end_any(void)
{
	stop_timer();
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
			call(k % 14);
			may_jump = 0;
		}
		stop_timer();
		for (int i = 0; i < 2; i++)
			while (recv(i ? s : c, buf, sizeof buf, MSG_DONTWAIT) > 0)
				;
		nap(20);
		while (recv(s, buf, sizeof buf, MSG_DONTWAIT) > 0)
			;
		put(c, "there", 5);
		out("%zu", get(s, buf, 5));
		put(s, "back", 4);
		out("%zu", get(c, buf, 4));
		end_any();
	}
}

enum { FORKS = 60 };

static void fork_one(void)
{
	if (fired > FORKS)
		return; /* the next signal is there before the handler has returned */
	pid_t pid = fork();

	if (pid == 0)
		_exit(send(c, "H", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 ? 1 : errno == EAGAIN ? 0 : 2);
	int st = -1;
	while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(st) || WEXITSTATUS(st) > 1)
		add(&wrong, 1);
	else
		add(&by_handler, WEXITSTATUS(st));
}

/* A handler that forks, and whose child sends. */
static void signal_fork(void)
{
	struct counts n;
	long sent = 0;

	pair(&c, &s);
	if (pipe(report))
		die("pipe");
	pid_t pid = start(count_all, NULL);
	close(s);
	memset(buf, 'M', sizeof buf);
	storm(fork_one, SA_ONSTACK);
	for (unsigned k = 0; fired < FORKS && k < ROUNDS; k++) {
		ssize_t r = send(c, buf, 1 + k * 7919 % 3000, MSG_NOSIGNAL);
		if (r > 0)
			sent += r;
		else
			add(&wrong, 1);
	}
	stop_timer();
	R(shutdown(c, SHUT_WR));
	get(report[0], &n, sizeof n);
	finish(pid);
	out("main %d handler %d other %ld wrong %ld", n.m == sent, n.h == by_handler, n.other, wrong);
}

/* ---- nesting, and what is told of handlers ----------------------------------- */

static volatile int depth, deepest;

static void send_and_raise(void)
{
	if (++depth > deepest)
		deepest = depth;
	send_h();
	if (depth < 4)
		raise(SIGRTMIN);
	send_h();
	depth--;
}

static void signal_nested(void)
{
	struct counts n;
	long sent = 0;

	pair(&c, &s);
	if (pipe(report))
		die("pipe");
	pid_t pid = start(count_all, NULL);
	close(s);
	memset(buf, 'M', sizeof buf);
	storm(send_and_raise, SA_NODEFER);
	for (unsigned k = 0; fired < TICKS && k < ROUNDS; k++) {
		ssize_t r = send(c, buf, 1 + k * 7919 % 3000, MSG_NOSIGNAL);
		if (r > 0)
			sent += r;
		else
			add(&wrong, 1);
	}
	stop_timer();
	R(shutdown(c, SHUT_WR));
	get(report[0], &n, sizeof n);
	finish(pid);
	out("main %d handler %d other %ld wrong %ld deep %d", n.m == sent, n.h == by_handler, n.other, wrong, deepest >= 4);
}

static volatile int told;

static void on_info(int sig, siginfo_t *info, void *context)
{
	told = sig == SIGUSR1 && info->si_code == SI_QUEUE && context ? info->si_value.sival_int : -1;
}

static void on_plain(int sig) { told = sig; }

static void show(int sig)
{
	struct sigaction a;

	R(sigaction(sig, NULL, &a));
	out("%s flags %#x", a.sa_sigaction == on_info ? "on_info" : a.sa_handler == on_plain ? "on_plain" : a.sa_handler == SIG_DFL ? "default"
		: a.sa_handler == SIG_IGN ? "ignored" : "other", (unsigned)a.sa_flags & ~0x04000000u);
}

static void signal_shown(void)
{
	struct sigaction a = {.sa_sigaction = on_info, .sa_flags = SA_SIGINFO | SA_RESTART}, old;

	R(sigaction(SIGUSR1, &a, NULL));
	show(SIGUSR1);
	R(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 77}));
	out("told %d", told);
	out("%d", signal(SIGUSR1, on_plain) == (void (*)(int))(void *)on_info);
	show(SIGUSR1);
	raise(SIGUSR1);
	out("told %d", told == SIGUSR1);
	out("%d", signal(SIGUSR1, SIG_IGN) == on_plain);
	show(SIGUSR1);
	a.sa_flags = (int)(SA_SIGINFO | SA_RESETHAND | SA_NODEFER);
	R(sigaction(SIGUSR1, &a, &old));
	out("%d", old.sa_handler == SIG_IGN);
	show(SIGUSR1);
	R(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 78}));
	out("told %d", told);
	show(SIGUSR1);
	R(sigaction(SIGKILL, &a, NULL));
	R(sigaction(0, &a, NULL));
	R(sigaction(1000, NULL, &a));
	out("%d", signal(SIGKILL, on_plain) == SIG_ERR);
	sysv_signal(SIGUSR2, on_plain);
	show(SIGUSR2);
	raise(SIGUSR2);
	show(SIGUSR2);
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGTERM, SIG_DFL);
		raise(SIGTERM);
	}
	finish(pid);
}

/* ---- cancellation -------------------------------------------------------------- */

struct victim {
	int how, fd;
	char *full;
};

static void *wait_in(void *p)
{
	struct victim *v = p;
	struct pollfd f = {v->fd, POLLIN, 0};
	struct iovec iov = {buf, 10};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	struct epoll_event ev;
	fd_set in;
	int ep;

	FD_ZERO(&in);
	FD_SET(v->fd, &in);
	switch (v->how) {
	case 0: recv(v->fd, buf, 10, 0); break;
	case 1: read(v->fd, buf, 10); break;
	case 2: recvmsg(v->fd, &m, 0); break;
	case 3: recvfrom(v->fd, buf, 10, MSG_WAITALL, NULL, NULL); break;
	case 4: poll(&f, 1, -1); break;
	case 5: select(v->fd + 1, &in, NULL, NULL, NULL); break;
	case 6: ppoll(&f, 1, NULL, NULL); break;
	case 7:
		ep = ep_new();
		ep_set(ep, EPOLL_CTL_ADD, v->fd, EPOLLIN, 1);
		epoll_wait(ep, &ev, 1, -1);
		break;
	case 8: accept(l, NULL, NULL); break;
	case 9:
		for (;;)
			send(v->fd, v->full, 1 << 20, MSG_NOSIGNAL);
	}
	return NULL;
}

static void cancel_calls(void)
{
	static char full[1 << 20];
	size_t n = 0;

	l = listener(&at);
	pair(&c, &s);
	for (int how = 0; how < 10; how++) {
		struct victim v = {how, how == 9 ? c : s, full};
		pthread_t t;
		void *ret = NULL;

		pthread_create(&t, NULL, wait_in, &v);
		nap(30);
		pthread_cancel(t);
		pthread_join(t, &ret);
		out("%d: cancelled %d", how, ret == PTHREAD_CANCELED);
		if (how == 9)
			break;
		pthread_create(&t, NULL, write_later, &c);
		R(recv(s, buf, 10, 0));
		pthread_join(t, NULL);
	}
	shutdown(c, SHUT_WR);
	for (ssize_t r; (r = recv(s, buf, sizeof buf, 0)) > 0;)
		n += (size_t)r;
	out("some %d", n > 0);
	put(s, "back", 4);
	R(recv(c, buf, 10, 0));
}

/* Asynchronous cancellation, anywhere in a send: another thread's sends go on. */
static void *send_until_cancelled(void *unused)
{
	(void)unused;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (;;)
		send(c, buf, 300, MSG_NOSIGNAL);
	return NULL;
}

static void cancel_async(void)
{
	struct counts n;

	if (pipe(report))
		die("pipe");
	pair(&c, &s);
	pid_t pid = start(count_all, NULL);
	close(s);
	memset(buf, 'M', sizeof buf);
	for (int i = 0; i < 30; i++) {
		pthread_t t;
		void *ret;
		pthread_create(&t, NULL, send_until_cancelled, NULL);
		usleep((unsigned)(300 + i * 37));
		pthread_cancel(t);
		pthread_join(t, &ret);
		if (send(c, buf, 10, MSG_NOSIGNAL) != 10)
			add(&wrong, 1);
	}
	put(c, "H", 1);
	R(shutdown(c, SHUT_WR));
	get(report[0], &n, sizeof n);
	finish(pid);
	out("last %ld other %ld wrong %ld", n.h, n.other, wrong);
}

const struct probe signal_probes[] = {
	{"signal-send", signal_send, 0},
	{"signal-send-thread", signal_send_thread, 0},
	{"signal-recv", signal_recv, 0},
	{"signal-jump", signal_jump, 0},
	{"signal-jump-waiting", signal_jump_waiting, 0},
	{"signal-any", signal_any, 0},
	{"signal-any-jump", signal_any_jump, 0},
	{"signal-fork", signal_fork, 0},
	{"signal-nested", signal_nested, 0},
	{"signal-shown", signal_shown, 1},
	{"cancel-calls", cancel_calls, 0},
	{"cancel-async", cancel_async, 0},
	{NULL, NULL, 0},
};

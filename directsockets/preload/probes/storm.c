#include "storm.h"

#include <time.h>

char buf[1 << 18];
int c, s;
volatile long fired, by_handler, wrong;
static void (*volatile act)(void);
static unsigned char alternate[1 << 16];

void add(volatile long *n, long more) { __atomic_fetch_add(n, more, __ATOMIC_RELAXED); }

void on_tick(int sig)
{
	int saved = errno;

	(void)sig;
	add(&fired, 1);
	act();
	errno = saved;
}

static timer_t timer;
static stack_t stack_before; /* a sanitizer's */

void storm(void (*fn)(void), int flags)
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

void stop_timer(void)
{
	timer_delete(timer);
	signal(SIGRTMIN, SIG_IGN);
	sigaltstack(&stack_before, NULL);
}

static int report[2];

/* Counts what comes, and tells it when the stream ends. */
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

pid_t count_begin(void)
{
	pair(&c, &s);
	if (!report[0] && pipe(report))
		die("pipe");
	pid_t pid = start(count_all, NULL);
	close(s);
	memset(buf, 'M', sizeof buf);
	return pid;
}

void counted(pid_t pid, struct counts *n)
{
	R(shutdown(c, SHUT_WR));
	get(report[0], n, sizeof *n);
	finish(pid);
}

long send_until(long ticks, unsigned big)
{
	long sent = 0;

	for (unsigned k = 0; fired < ticks && k < ROUNDS; k++) {
		ssize_t r = send(c, buf, !big || k % big ? 1 + k * 7919 % 3000 : sizeof buf, MSG_NOSIGNAL);
		if (r > 0)
			sent += r;
		else
			add(&wrong, 1);
	}
	return sent;
}

void count_end(pid_t pid, long sent)
{
	struct counts n;

	stop_timer();
	counted(pid, &n);
	out("main %d handler %d other %ld wrong %ld", n.m == sent, n.h == by_handler, n.other, wrong);
}

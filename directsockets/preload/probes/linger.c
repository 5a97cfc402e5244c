#include "probe.h"

/* Probes of SO_LINGER with a time: how long close waits. Only bounds are told that a busy machine
 * keeps. */

static char buf[65536];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Sends until nothing more fits. */
static size_t stuff(int fd, size_t piece)
{
	size_t all = 0;
	ssize_t n;

	nonblock(fd, 1);
	for (;;) {
		while ((n = write(fd, buf, piece)) > 0)
			all += (size_t)n;
		/* What is under way in the kernel may make room once more. */
		struct pollfd p = {fd, POLLOUT, 0};
		if (poll(&p, 1, 50) <= 0)
			break;
	}
	out("stuffed: %s", errname(errno));
	return all;
}

static void set(int fd, int seconds)
{
	struct linger l = {1, seconds};

	R(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l));
}

/* Nobody reads: close waits for all of the time, and the bytes are there all the same. */
static void linger_full(void)
{
	static const size_t pieces[] = {65536, 100};

	for (int i = 0; i < 2; i++) {
		int c, s;
		pair(&c, &s);
		size_t all = stuff(c, pieces[i]), got = 0;
		set(c, 1);
		double t = now();
		R(close(c));
		out("waited a second %d", now() - t > 0.9);
		for (ssize_t n; (n = read(s, buf, sizeof buf)) > 0;)
			got += (size_t)n;
		out("all there %d", got == all);
		R(read(s, buf, 1));
		close(s);
	}
}

/* The peer has all bytes: close does not wait. */
static void linger_little(void)
{
	int c, s;
	pair(&c, &s);
	put(c, buf, 10000);
	set(c, 1000);
	R(close(c));
	out("%zu", get(s, buf, 20000));
}

static size_t stuffed;

static void *read_later(void *fd)
{
	size_t got = 0;

	nap(300);
	for (ssize_t n; (n = read(*(int *)fd, buf, sizeof buf)) > 0;)
		got += (size_t)n;
	return (void *)(long)(got == stuffed);
}

/* It reads after a while: close waits until then. */
static void linger_read(void)
{
	int c, s;
	pthread_t t;
	void *all;
	pair(&c, &s);
	stuffed = stuff(c, 65536);
	set(c, 1000);
	double begin = now();
	pthread_create(&t, NULL, read_later, &s);
	R(close(c));
	out("waited %d", now() - begin > 0.25);
	pthread_join(t, &all);
	out("all there %ld", (long)all);
}

static void on_alarm(int sig) { (void)sig; }

/* A signal ends the wait. And unread bytes: a reset, and nothing is waited for. */
static void linger_ends(void)
{
	int c, s;
	struct sigaction a = {.sa_handler = on_alarm};
	struct itimerspec when = {.it_value = {0, 200000000}, .it_interval = {0, 200000000}};
	struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	timer_t timer;

	pair(&c, &s);
	put(s, "unread", 6);
	readable(c, LONG);
	stuff(c, 65536);
	set(c, 1000);
	R(close(c));
	close(s);

	pair(&c, &s);
	stuff(c, 65536);
	set(c, 1000);
	sigaction(SIGUSR1, &a, NULL);
	if (timer_create(CLOCK_MONOTONIC, &e, &timer) || timer_settime(timer, 0, &when, NULL))
		die("timer");
	R(close(c));
	timer_delete(timer);
	close(s);
}

/* A small SO_SNDBUF stops the sender early, also when it is set late; and a larger one lets it go
 * on. */
static void small_buffer(void)
{
	int c, s, small = 4096, large = 1 << 20;

	pair(&c, &s);
	R(setsockopt(c, SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
	size_t all = stuff(c, 65536), got = 0;
	out("stopped early %d", all < 512 << 10);
	struct pollfd p = {c, POLLOUT, 0};
	R(poll(&p, 1, 0));
	R(setsockopt(c, SOL_SOCKET, SO_SNDBUF, &large, sizeof large));
	R(poll(&p, 1, LONG));
	R(write(c, buf, 10));
	still_direct(c, s);
	shutdown(c, SHUT_WR);
	for (ssize_t n; (n = read(s, buf, sizeof buf)) > 0;)
		got += (size_t)n;
	out("all there %d", got == all + 10);
}

const struct probe linger_probes[] = {
	{"linger-full", linger_full, 0},
	{"small-buffer", small_buffer, 0},
	{"linger-little", linger_little, 0},
	{"linger-read", linger_read, 0},
	{"linger-ends", linger_ends, 0},
	{NULL, NULL, 0},
};

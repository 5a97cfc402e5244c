/* udpbench CPU CPU PART BYTES MS: measures UDP between two processes of this host, and prints a
 * line of figures.
 *
 *   pingpong   half a round trip: the median, in microseconds
 *   oneway     datagrams sent, received, and received after a later one; seconds
 *   lossless   the most datagrams a second of which none is lost, found as RFC 2544 does: trials at
 *              paced rates, halving the distance (of logarithms) between one that passes and one
 *              that does not. A sender that was kept from its pace does not catch up in a burst.
 *
 * The two ends are processes that share no socket. What is sent in the first WARM_MS does not
 * count: direct sockets move a flow into memory in that time. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WARM_MS = 300, LOST_MS = 200, ROUNDS = 1 << 22, MOST = 65507 };
enum { SLOWEST = 1000, FIRSTS = 10, STEPS = 8, BURST = 32, TRIALS = 5 }; /* of lossless */
enum { WARM, COUNTS, END };

/* The beginning of each datagram. */
struct head {
	uint16_t kind, trial;
	uint32_t number;
};

struct found {
	uint64_t received, late;
	double first, last;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void place(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (cpu >= 0 && sched_setaffinity(0, sizeof set, &set))
		die("sched_setaffinity");
}

static int bound(struct sockaddr_in *a)
{
	socklen_t n = sizeof *a;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	memset(a, 0, sizeof *a);
	a->sin_family = AF_INET;
	a->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)a, n) || getsockname(fd, (struct sockaddr *)a, &n))
		die("bind");
	return fd;
}

/* Answers each datagram. */
static void echo(int fd)
{
	static char b[MOST];
	struct sockaddr_in from;
	socklen_t n = sizeof from;

	for (;; n = sizeof from) {
		ssize_t m = recvfrom(fd, b, sizeof b, 0, (struct sockaddr *)&from, &n);
		if (m >= 0)
			sendto(fd, b, (size_t)m, 0, (struct sockaddr *)&from, n);
	}
}

/* Counts the datagrams of each trial, and tells by the pipe what it has found when its end
 * comes. */
static void count(int fd, int out)
{
	static char b[MOST];
	struct found f = {0, 0, 0, 0};
	struct head h;
	uint32_t next = 0;
	uint16_t trial = 0;

	for (;;) {
		if (recv(fd, b, sizeof b, 0) < (ssize_t)sizeof h)
			continue;
		memcpy(&h, b, sizeof h);
		if (h.kind == WARM || h.trial != trial)
			continue;
		if (h.kind == END) {
			f.last = now();
			if (write(out, &f, sizeof f) != sizeof f)
				die("write");
			memset(&f, 0, sizeof f);
			next = 0;
			trial++;
			continue;
		}
		if (f.received++ == 0)
			f.first = now();
		if (h.number < next)
			f.late++;
		else
			next = h.number + 1;
	}
}

/* The sending end of what goes one way. */
struct sender {
	int fd, answers;
	size_t size;
	uint16_t trial;
	char b[MOST];
};

/* Sends one datagram, of a kernel's whose queue is full later. */
static void put(struct sender *s, uint16_t kind, uint32_t number)
{
	struct head h = {kind, s->trial, number};

	memcpy(s->b, &h, sizeof h);
	while (send(s->fd, s->b, s->size, 0) < 0)
		if (errno != ENOBUFS && errno != EAGAIN && errno != ECONNREFUSED)
			die("send");
}

/* With pauses, so that the receiver has all now and then. */
static void warm(struct sender *s)
{
	double end = now() + WARM_MS / 1e3;

	while (now() < end) {
		for (int i = 0; i < 64; i++)
			put(s, WARM, 0);
		usleep(2000);
	}
}

/* Ends a trial. */
static struct found finish(struct sender *s)
{
	struct found f;
	struct pollfd p = {s->answers, POLLIN, 0};

	do
		put(s, END, 0);
	while (poll(&p, 1, 20) == 0);
	if (read(s->answers, &f, sizeof f) != sizeof f)
		die("read");
	s->trial++;
	return f;
}

static void oneway(struct sender *s, double seconds)
{
	uint32_t sent = 0;
	double begin = now(), end = begin + seconds;

	while (now() < end)
		for (int i = 0; i < 64; i++)
			put(s, COUNTS, sent++);
	struct found f = finish(s);
	printf("%u %llu %llu %.6f\n", sent, (unsigned long long)f.received, (unsigned long long)f.late, f.last - begin);
}

/* Sends at a rate, in datagrams a second, or as fast as it can (0). Returns the rate at which they
 * came; 0: not all did. */
static double trial(struct sender *s, double rate, double seconds)
{
	uint32_t sent = 0;
	double begin = now(), end = begin + seconds, due = begin, t;

	while ((t = now()) < end) {
		if (rate > 0) {
			if (due < t - BURST / rate)
				due = t - BURST / rate;
			while (due <= t) {
				put(s, COUNTS, sent++);
				due += 1 / rate;
			}
		} else {
			for (int i = 0; i < BURST; i++)
				put(s, COUNTS, sent++);
		}
	}
	struct found f = finish(s);
	return f.received == sent ? sent / (f.last - begin) : 0;
}

static void lossless(struct sender *s, double seconds)
{
	double best = 0, low = SLOWEST, high, found = trial(s, 0, seconds);

	for (int i = 0; found == 0 && best == 0 && i < FIRSTS; i++)
		best = trial(s, SLOWEST, seconds);
	for (high = SLOWEST; found == 0 && best > 0 && high < 1e8; low = high) { /* until one fails */
		high *= 10;
		double came = trial(s, high, seconds);
		if (came == 0)
			break;
		best = came > best ? came : best;
	}
	for (int i = 0; found == 0 && best > 0 && i < STEPS; i++) {
		double middle = sqrt(low * high), came = trial(s, middle, seconds);
		if (came == 0) {
			high = middle;
		} else {
			low = middle;
			best = came > best ? came : best;
		}
	}
	printf("%.6f\n", (found > 0 ? found : best) / 1e6);
}

static int by_value(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static void pingpong(struct sender *s, double seconds)
{
	struct timeval lost = {0, LOST_MS * 1000};
	float *us = malloc(ROUNDS * sizeof *us);
	size_t n = 0;
	double begin = now(), t = begin, before;

	if (!us || setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &lost, sizeof lost))
		die("setsockopt");
	while ((t < begin + WARM_MS / 1e3 + seconds || n == 0) && n < ROUNDS) {
		before = t;
		put(s, COUNTS, 0);
		ssize_t m = recv(s->fd, s->b, sizeof s->b, 0);
		t = now();
		if (m == (ssize_t)s->size && before > begin + WARM_MS / 1e3)
			us[n++] = (float)((t - before) * 1e6 / 2);
	}
	if (n == 0)
		die("no answers");
	qsort(us, n, sizeof *us, by_value);
	printf("%.4f %.4f\n", (double)us[n / 2], (double)us[n - 1 - n / 100]);
}

int main(int argc, char **argv)
{
	int to[2], back[2], fd;
	struct sockaddr_in a, own;

	if (argc != 6 || pipe(to) || pipe(back)) {
		fprintf(stderr, "usage: udpbench CPU CPU pingpong|oneway|lossless BYTES MS\n");
		return 2;
	}
	static struct sender s;
	double seconds = atoi(argv[5]) / 1e3;
	int echoes = strcmp(argv[3], "pingpong") == 0;
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		place(atoi(argv[2]));
		fd = bound(&a);
		if (write(to[1], &a, sizeof a) != sizeof a)
			die("write");
		if (echoes)
			echo(fd);
		else
			count(fd, back[1]);
		return 0;
	}
	place(atoi(argv[1]));
	if (child < 0 || read(to[0], &a, sizeof a) != sizeof a)
		die("the receiver");
	s.fd = bound(&own);
	s.answers = back[0];
	s.size = (size_t)atoi(argv[4]);
	if (s.size < sizeof(struct head) || s.size > MOST || connect(s.fd, (struct sockaddr *)&a, sizeof a))
		die("connect");
	if (echoes) {
		pingpong(&s, seconds);
	} else {
		warm(&s);
		if (strcmp(argv[3], "oneway") == 0)
			oneway(&s, seconds);
		else
			lossless(&s, seconds / TRIALS);
	}
	kill(child, SIGKILL);
	return 0;
}

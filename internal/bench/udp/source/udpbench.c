/* udpbench CPU CPU PART BYTES MS: measures UDP between two processes of this host, and prints a
 * line of figures.
 *
 *   pingpong   half a round trip: the median, in microseconds
 *   oneway     datagrams sent, received, and received after a later one; seconds
 *
 * The two ends are processes that share no socket. What is sent in the first WARM_MS does not
 * count: direct sockets move a flow into memory in that time. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
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
enum { WARM, COUNTS, END };

/* The beginning of each datagram. */
struct head {
	uint32_t kind;
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

/* Counts datagrams, and tells by the pipe what it has found when the end comes. */
static void count(int fd, int out)
{
	static char b[MOST];
	struct found f = {0, 0, 0, 0};
	struct head h;
	uint32_t next = 0;

	for (;;) {
		if (recv(fd, b, sizeof b, 0) < (ssize_t)sizeof h)
			continue;
		memcpy(&h, b, sizeof h);
		if (h.kind == END)
			break;
		if (h.kind != COUNTS)
			continue;
		if (f.received++ == 0)
			f.first = now();
		if (h.number < next)
			f.late++;
		else
			next = h.number + 1;
	}
	f.last = now();
	if (write(out, &f, sizeof f) != sizeof f)
		die("write");
}

/* Sends one datagram, of a kernel's whose queue is full later. */
static void put(int fd, char *b, size_t size, uint32_t kind, uint32_t number)
{
	struct head h = {kind, number};

	memcpy(b, &h, sizeof h);
	while (send(fd, b, size, 0) < 0)
		if (errno != ENOBUFS && errno != EAGAIN && errno != ECONNREFUSED)
			die("send");
}

static void oneway(int fd, int in, size_t size, double seconds)
{
	static char b[MOST];
	struct found f;
	uint32_t sent = 0;
	struct pollfd p = {in, POLLIN, 0};
	double begin = now(), end = begin + WARM_MS / 1e3;

	while (now() < end) /* with pauses, so that the receiver has all now and then */
		for (int i = 0; i < 64; i++) {
			put(fd, b, size, WARM, 0);
			if (i == 63)
				usleep(2000);
		}
	begin = now();
	end = begin + seconds;
	while (now() < end)
		for (int i = 0; i < 64; i++)
			put(fd, b, size, COUNTS, sent++);
	do
		put(fd, b, size, END, 0);
	while (poll(&p, 1, 20) == 0);
	if (read(in, &f, sizeof f) != sizeof f)
		die("read");
	printf("%u %llu %llu %.6f\n", sent, (unsigned long long)f.received, (unsigned long long)f.late, f.last - begin);
}

static int by_value(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static void pingpong(int fd, size_t size, double seconds)
{
	static char b[MOST];
	struct timeval lost = {0, LOST_MS * 1000};
	float *us = malloc(ROUNDS * sizeof *us);
	size_t n = 0;
	double begin = now(), t = begin, before;

	if (!us || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &lost, sizeof lost))
		die("setsockopt");
	while ((t < begin + WARM_MS / 1e3 + seconds || n == 0) && n < ROUNDS) {
		before = t;
		put(fd, b, size, COUNTS, 0);
		ssize_t m = recv(fd, b, sizeof b, 0);
		t = now();
		if (m == (ssize_t)size && before > begin + WARM_MS / 1e3)
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
		fprintf(stderr, "usage: udpbench CPU CPU pingpong|oneway BYTES MS\n");
		return 2;
	}
	size_t size = (size_t)atoi(argv[4]);
	double seconds = atoi(argv[5]) / 1e3;
	int one = strcmp(argv[3], "oneway") == 0;
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		place(atoi(argv[2]));
		fd = bound(&a);
		if (write(to[1], &a, sizeof a) != sizeof a)
			die("write");
		if (one)
			count(fd, back[1]);
		else
			echo(fd);
		return 0;
	}
	place(atoi(argv[1]));
	if (child < 0 || read(to[0], &a, sizeof a) != sizeof a)
		die("the receiver");
	fd = bound(&own);
	if (connect(fd, (struct sockaddr *)&a, sizeof a))
		die("connect");
	if (one)
		oneway(fd, back[0], size, seconds);
	else
		pingpong(fd, size, seconds);
	kill(child, SIGKILL);
	return 0;
}

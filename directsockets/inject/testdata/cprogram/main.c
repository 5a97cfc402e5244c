/* A program whose threads, connections, signals and children a test watches. It prints how many of
 * its system calls came to the library. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int wrong, exchanges = 50;
static struct sockaddr_in addr;

static void check(int good)
{
	if (!good)
		__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
}

/* Sends back what comes. */
static void *echo(void *arg)
{
	int fd = (int)(long)arg;
	char b[4096];

	for (ssize_t n; (n = read(fd, b, sizeof b)) > 0;)
		check(write(fd, b, (size_t)n) == n);
	close(fd);
	return NULL;
}

static void *accepts(void *arg)
{
	int l = (int)(long)arg;

	for (int fd; (fd = accept(l, NULL, NULL)) >= 0;) {
		pthread_t t;
		check(pthread_create(&t, NULL, echo, (void *)(long)fd) == 0);
		pthread_detach(t);
	}
	return NULL;
}

static void *asks(void *arg)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	unsigned char out[3000], in[3000];

	check(connect(fd, (struct sockaddr *)&addr, sizeof addr) == 0);
	for (int k = 0; k < exchanges; k++) {
		for (size_t j = 0; j < sizeof out; j++)
			out[j] = (unsigned char)(j * (size_t)k + (size_t)(long)arg);
		check(send(fd, out, sizeof out, 0) == sizeof out);
		size_t have = 0;
		for (ssize_t n; have < sizeof in && (n = recv(fd, in + have, sizeof in - have, MSG_WAITALL)) > 0;)
			have += (size_t)n; /* a call that is interrupted returns what there is */
		check(have == sizeof in && !memcmp(in, out, sizeof in));
	}
	close(fd);
	return NULL;
}

static volatile int signals;
static void handler(int s) { signals += s == SIGUSR1; }

static void children(void)
{
	char *const argv[] = {"/bin/true", NULL};

	for (int i = 0; i < 20; i++) {
		int status = -1;
		pid_t pid = i % 3 == 0 ? fork() : i % 3 == 1 ? vfork() : -1;

		if (pid == 0) {
			execv(argv[0], argv);
			_exit(1);
		}
		if (i % 3 == 2)
			check(posix_spawn(&pid, argv[0], NULL, NULL, argv, NULL) == 0);
		check(waitpid(pid, &status, 0) == pid && status == 0);
	}
}

/* ---- load: until the standard input ends ------------------------------------------------------
 * */

static volatile int ended;

static void *asks_again(void *arg)
{
	exchanges = 20;
	while (!ended)
		asks(arg);
	return NULL;
}

/* Keeps all kinds of registers busy. */
static void *computes(void *arg)
{
	(void)arg;
	while (!ended) {
		volatile double x = 0.5;
		double a = x, b = 2 * x, c = 3 * x, d = 4 * x;
		for (int i = 0; i < 1000000; i++) {
			a = a * 1.5 - b * 0.5;
			b = b + (c - d) * 0;
			c = c * 2 - d * 0.75;
			d = d + (a - b) * 0;
			a = b;
			c = 1.5;
		}
		check(a == 1 && b == 1 && c == 1.5 && d == 2);
	}
	return NULL;
}

/* Waits in calls that the kernel repeats by itself, and checks that they take no less time, and
 * fail by no signal that is not handled. */
static void *waits(void *arg)
{
	int p[2];

	check(pipe(p) == 0);
	while (!ended) {
		struct pollfd f = {p[0], POLLIN, 0};
		struct timespec t = {0, 20000000}, before, after;
		clock_gettime(CLOCK_MONOTONIC, &before);
		if (arg)
			check(poll(&f, 1, 20) == 0);
		else
			check(nanosleep(&t, NULL) == 0);
		clock_gettime(CLOCK_MONOTONIC, &after);
		check((after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec >= 20000000);
	}
	return NULL;
}

/* A handler that is at work in system calls most of the time. */
static void ticks(int s)
{
	struct timespec t = {0, 1000000};
	int saved = errno;

	(void)s;
	nanosleep(&t, NULL);
	errno = saved;
}

/* The signal is this thread's alone. */
static void *is_interrupted(void *arg)
{
	sigset_t set;
	char c;
	int p[2];

	(void)arg;
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	check(pipe(p) == 0);
	while (!ended)
		check(read(p[0], &c, 1) == -1 && errno == EINTR);
	return NULL;
}

static void load(void)
{
	struct sigaction act = {.sa_handler = ticks};
	struct itimerval every = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
	pthread_t t[32];
	int n = 0;
	char c;

	sigaction(SIGALRM, &act, NULL);
	for (long i = 0; i < 16; i++)
		check(pthread_create(&t[n++], NULL, asks_again, (void *)i) == 0);
	check(pthread_create(&t[n++], NULL, computes, NULL) == 0);
	for (long i = 0; i < 2; i++)
		check(pthread_create(&t[n++], NULL, waits, (void *)i) == 0);
	check(pthread_create(&t[n++], NULL, is_interrupted, NULL) == 0);
	check(setitimer(ITIMER_REAL, &every, NULL) == 0);
	printf("ready\n");
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	ended = 1;
	for (int i = 0; i < n; i++)
		check(pthread_join(t[i], NULL) == 0);
	setitimer(ITIMER_REAL, &never, NULL);
	exchanges = 50;
}

int main(int argc, char *argv[])
{
	pthread_t t, client[8];
	socklen_t len = sizeof addr;
	char self[512] = "";
	int l = socket(AF_INET, SOCK_STREAM, 0);

	sigset_t set;

	if (argc > 1 && !strcmp(argv[1], "long"))
		exchanges = 600;
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	addr.sin_family = AF_INET;
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(bind(l, (struct sockaddr *)&addr, len) == 0 && listen(l, 16) == 0 && getsockname(l, (struct sockaddr *)&addr, &len) == 0);
	check(pthread_create(&t, NULL, accepts, (void *)(long)l) == 0);
	if (argc > 1 && !strcmp(argv[1], "load"))
		load();
	for (long i = 0; i < 8; i++)
		check(pthread_create(&client[i], NULL, asks, (void *)i) == 0);
	for (int i = 0; i < 8; i++)
		check(pthread_join(client[i], NULL) == 0);
	signal(SIGUSR1, handler);
	for (int i = 0; i < 100; i++)
		raise(SIGUSR1);
	check(signals == 100);
	children();
	check(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
	long calls = syscall(SYS_getppid, 0x6578);
	printf("self %s pid %d wrong %d calls %ld\n", self, (int)getpid(), wrong, calls == getppid() ? 0 : calls);
	return 0;
}

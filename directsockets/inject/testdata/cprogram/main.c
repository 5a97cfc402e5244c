/* A program whose threads, connections, signals and children a test watches. It prints how many of
 * its system calls came to the library. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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
		check(recv(fd, in, sizeof in, MSG_WAITALL) == sizeof in && !memcmp(in, out, sizeof in));
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

int main(int argc, char *argv[])
{
	pthread_t t, client[8];
	socklen_t len = sizeof addr;
	char self[512] = "";
	int l = socket(AF_INET, SOCK_STREAM, 0);

	if (argc > 1 && !strcmp(argv[1], "long"))
		exchanges = 600;
	addr.sin_family = AF_INET;
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(bind(l, (struct sockaddr *)&addr, len) == 0 && listen(l, 16) == 0 && getsockname(l, (struct sockaddr *)&addr, &len) == 0);
	check(pthread_create(&t, NULL, accepts, (void *)(long)l) == 0);
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

// Datagrams: sockets that two processes have, and what one of them does to the other's.
#include "udp.h"

static void *receives_one(void *fd)
{
	char b[16];

	while (recv(*(int *)fd, b, sizeof b, 0) < 0 && errno == EINTR)
		;
	return NULL;
}

// Its sockets are warm again, now that no other process has them.
static void warm_again(int c, int s)
{
	if (!is_cold())
		udp_warm(c, s);
}

// A process forks while its other thread waits for a datagram, and ends. The child, which has no
// such thread, closes the socket: what comes then is another one's at that address.
static void thread_waits(void)
{
	int c, s, p[2];
	struct sockaddr_in a;
	socklen_t len = sizeof a;
	pthread_t t;
	char b;

	R(pipe(p));
	pid_t pid = fork();
	if (pid == 0) {
		udp_pair(&c, &s);
		getsockname(s, (struct sockaddr *)&a, &len);
		pthread_create(&t, NULL, receives_one, &s);
		nap(50);
		if (fork() != 0)
			_exit(0);
		nap(50);
		warm_again(c, s);
		R(close(s));
		s = socket(AF_INET, SOCK_DGRAM, 0);
		R(bind(s, (struct sockaddr *)&a, sizeof a));
		for (int i = 0; i < 3; i++) {
			R(send(c, "to the next one", 15, 0));
			R(readable(s, 1000));
			show(s, MSG_DONTWAIT);
		}
		put(p[1], "x", 1);
		_exit(0);
	}
	close(p[1]);
	finish(pid);
	R(get(p[0], &b, 1));
	is_direct(); // the children's
}

static void has_it_wait(void *fd) { nonblock(*(int *)fd, 0); }

static void *sends_later(void *fd)
{
	nap(100);
	send(*(int *)fd, "late", 4, 0);
	return NULL;
}

// A child has a socket wait that did not, and ends: its parent waits.
static void child_waits(void)
{
	int c, s;
	pthread_t t;

	udp_pair(&c, &s);
	nonblock(s, 1);
	R(send(c, "one", 3, 0));
	R(readable(s, 1000));
	show(s, 0);
	show(s, 0);
	finish(start(has_it_wait, &s));
	nap(20);
	warm_again(c, s);
	pthread_create(&t, NULL, sends_later, &c);
	show(s, 0);
	pthread_join(t, NULL);
}

// A child executes a program that reads from the socket, when it is told so. Its parent has it,
// too.
static void program_reads(void)
{
	int c, s, p[2], wrong = 0;

	udp_pair(&c, &s);
	R(pipe(p));
	pid_t pid = fork();
	if (pid == 0) {
		dup2(p[0], 0);
		dup2(s, 5);
		close(p[1]);
		execl("/bin/sh", "sh", "-c", "read x; exec cat <&5", (char *)NULL);
		_exit(9);
	}
	nap(50);
	for (int i = 0; i < 200; i++) {
		send(c, "to the parent", 13, 0);
		wrong += readable(s, 1000) != 1 || drain(s) != 1;
		nap(1);
	}
	out("%d wrong", wrong);
	put(p[1], "\n", 1);
	nap(50);
	for (int i = 0; i < 3; i++)
		send(c, "to the program\n", 15, 0); // which writes them here
	send(c, "", 0, 0); // an end of file to it
	finish(pid);
	warm_again(c, s);
}

const struct probe udpfork_probes[] = {
	{"udp-fork-thread", thread_waits, 0},
	{"udp-child-waits", child_waits, 0},
	{"udp-program-reads", program_reads, 0},
	{NULL, NULL, 0},
};

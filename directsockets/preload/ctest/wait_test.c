// What keeps a thread that waits for a connection, and what does not.
#include "ends.h"

#include "conn/broker.h"
#include "conn/fds.h"
#include "conn/inner.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>

static void on_alarm(int sig) { (void)sig; }

static void *sends(void *side)
{
	usleep(30000);
	CHECK(put(side, "x", 1, 0) == 1, "send: %s", strerror(errno));
	return NULL;
}

static void signals(void)
{
	struct side c, s;
	struct sigaction a = {.sa_handler = on_alarm};
	uint8_t b[1];

	pair_up(&c, &s);
	sigaction(SIGALRM, &a, NULL);
	ualarm(20000, 20000); // repeatedly: the first may come before get sleeps
	CHECK(get(&c, b, 1, 0) == -1 && errno == EINTR, "not interrupted: %s", strerror(errno));
	a.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &a, NULL);
	struct timeval t = {0};
	setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	pthread_t thread;
	pthread_create(&thread, NULL, sends, &s);
	CHECK(get(&c, b, 1, 0) == 1, "not restarted: %s", strerror(errno));
	pthread_join(thread, NULL);
	ualarm(0, 0);
	hang_up(&c);
	hang_up(&s);
}

// What is in the queue and cannot be read yet, or is not enough, keeps nobody from their deadline:
// bytes that the shadow has to bring before come late, when a node is stopped (test/killmatrix).
static void late_shadow(void)
{
	struct side c, s;
	struct timeval limit = {0, 100000};
	uint8_t b[16];

	pair_up(&c, &s);
	setsockopt(s.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	s.s->sh->carried = s.s->sh->rx_read + 3; // as if PROMOTE had said so
	__atomic_store_n(&s.s->sh->rx_mode, RX_CATCH_UP, __ATOMIC_RELEASE);
	CHECK(put(&c, "def", 3, 0) == 3, "send: %s", strerror(errno));
	int64_t begin = ds_now();
	CHECK(get(&s, b, 3, 0) == -1 && errno == EAGAIN, "no deadline: %s", strerror(errno));
	CHECK(ds_now() - begin >= 100000000, "after %ld ns", (long)(ds_now() - begin));
	CHECK(send(c.fd, "abc", 3, 0) == 3, "send: %s", strerror(errno));
	CHECK(get(&s, b, 6, MSG_WAITALL) == 6 && !memcmp(b, "abcdef", 6), "out of order");
	CHECK(put(&c, "gh", 2, 0) == 2, "send: %s", strerror(errno));
	CHECK(get(&s, b, 10, MSG_PEEK | MSG_WAITALL) == 2 && !memcmp(b, "gh", 2), "peek");
	CHECK(get(&s, b, 2, 0) == 2, "recv: %s", strerror(errno));
	hang_up(&c);
	hang_up(&s);
}

static int pass(int over, int fd)
{
	char control[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec v = {"x", 1};
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&h);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	return sendmsg(over, &h, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

// A peer that puts a socket into our doorbell whose close waits for 20 s does not keep us.
static void slow_bell(void)
{
	struct linger l = {1, 20};
	static char b[1 << 20];
	int bells[2], own = fcntl(listener, F_DUPFD_CLOEXEC, 0), c = socket(AF_INET, SOCK_STREAM, 0), s;

	CHECK(connect(c, (struct sockaddr *)&at, sizeof at) == 0, "%s", strerror(errno));
	s = accept(own, NULL, NULL);
	close(own);
	while (send(c, b, sizeof b, MSG_DONTWAIT) > 0)
		;
	setsockopt(c, SOL_SOCKET, SO_LINGER, &l, sizeof l);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, bells) == 0, "%s", strerror(errno));
	CHECK(pass(bells[0], c) == 0, "%s", strerror(errno));
	close(c);
	int64_t begin = ds_now();
	ds_fd_abandon(bells[1]);
	CHECK(ds_now() - begin < 15000000000, "it waited");
	close(bells[0]);
	close(s);

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, bells) == 0, "%s", strerror(errno));
	if (ds_fd_no_rights(bells[1]))
		CHECK(pass(bells[0], bells[0]) == EPERM, "a descriptor came through: %s", strerror(errno));
	CHECK(send(bells[0], "x", 1, 0) == 1, "a byte: %s", strerror(errno));
	ds_fd_abandon(bells[1]);
	close(bells[0]);
}

// ---- a sleeper that has looked for the last time, and has not reached the kernel

// where it is: 1 there, until held is 2; 3 gone on
static int held;
static int (*kernels)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);

static int holds(struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
	if (!__atomic_load_n(&held, __ATOMIC_ACQUIRE)) {
		__atomic_store_n(&held, 1, __ATOMIC_RELEASE);
		while (__atomic_load_n(&held, __ATOMIC_ACQUIRE) != 2)
			usleep(1000);
		usleep(100000);
		__atomic_store_n(&held, 3, __ATOMIC_RELEASE);
	}
	return kernels(p, n, t, mask);
}

static void *receives(void *side)
{
	uint8_t b;

	CHECK(get(side, &b, 1, 0) == 0, "something came");
	return NULL;
}

// Close waits for it, if shutdown has woken it: its number may be another's soon.
static void shut_sleeper(int how)
{
	struct side c, s;
	pthread_t t;

	pair_up(&c, &s);
	kernels = REAL_FN(ppoll);
	held = 0;
	__atomic_store_n(&ds_real.ppoll, holds, __ATOMIC_RELAXED);
	pthread_create(&t, NULL, receives, &s);
	while (__atomic_load_n(&held, __ATOMIC_ACQUIRE) != 1)
		usleep(1000);
	ds_shutdown(s.s, s.fd, how);
	__atomic_store_n(&held, 2, __ATOMIC_RELEASE);
	ds_renumbered(s.s);
	CHECK(__atomic_load_n(&held, __ATOMIC_ACQUIRE) == 3, "close did not wait");
	pthread_join(t, NULL);
	__atomic_store_n(&ds_real.ppoll, kernels, __ATOMIC_RELAXED);
	hang_up(&c);
	hang_up(&s);
}

int main(void)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);
	struct side c, s;

	pair_up(&c, &s); // the first makes what stays
	hang_up(&c);
	hang_up(&s);
	int fds = open_fds();
	slow_bell();
	late_shadow();
	signals();
	shut_sleeper(SHUT_RD);
	shut_sleeper(SHUT_RDWR);
	CHECK(open_fds() == fds, "%d descriptors, %d before", open_fds(), fds);
	ends_stop(broker, path);
	printf("wait: %d failed\n", failures);
	return failures != 0;
}

#include "storm.h"

/* Probes of threads that are cancelled in calls, and of what they leave to others. */

struct victim {
	int how, fd;
	char *full;
};

enum { FULL = 13, ALL = 18 }; /* from FULL on it sends */

static int waiting; /* a listener */
static struct sockaddr_in busy; /* of one that takes no connection more */

/* Waits in the call that the victim says. */
static void *wait_in(void *p)
{
	struct victim *v = p;
	struct pollfd f = {v->fd, POLLIN, 0};
	struct iovec iov = {buf, 10};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	struct iovec much = {v->full, 1 << 20};
	struct msghdr out = {.msg_iov = &much, .msg_iovlen = 1};
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
	case 8: accept(waiting, NULL, NULL); break;
	case 9: pselect(v->fd + 1, &in, NULL, NULL, NULL, NULL); break;
	case 10: accept4(waiting, NULL, NULL, SOCK_CLOEXEC); break;
	case 11: readv(v->fd, &iov, 1); break;
	case 12: connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&busy, sizeof busy); break;
	default:
		for (int how = v->how - FULL;;)
			if (how == 0)
				send(v->fd, v->full, 1 << 20, MSG_NOSIGNAL);
			else if (how == 1)
				write(v->fd, v->full, 1 << 20);
			else if (how == 2)
				sendmsg(v->fd, &out, MSG_NOSIGNAL);
			else if (how == 3)
				sendto(v->fd, v->full, 1 << 20, MSG_NOSIGNAL, NULL, 0);
			else
				writev(v->fd, &much, 1);
	}
	return NULL;
}

static void cancel_calls(void)
{
	static char full[1 << 20];
	size_t n = 0;

	struct sockaddr_in at;
	int l = listener(&at);

	waiting = l;
	listen(listener(&busy), 0);
	for (int i = 0; i < 4; i++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(fd, (struct sockaddr *)&busy, sizeof busy);
	}
	pair(&c, &s);
	for (int how = 0; how < ALL; how++) {
		struct victim v = {how, how >= FULL ? c : s, full};
		pthread_t t;
		void *ret = NULL;

		pthread_create(&t, NULL, wait_in, &v);
		nap(30);
		pthread_cancel(t);
		pthread_join(t, &ret);
		out("%d: cancelled %d", how, ret == PTHREAD_CANCELED);
		if (how >= FULL)
			continue;
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

	pid_t pid = count_begin();
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
	counted(pid, &n);
	out("last %ld other %ld wrong %ld", n.h, n.other, wrong);
}

const struct probe cancel_probes[] = {
	{"cancel-calls", cancel_calls, 0},
	{"cancel-async", cancel_async, 0},
	{NULL, NULL, 0},
};

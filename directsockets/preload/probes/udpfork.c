// Datagrams: sockets that two processes have, and what one of them does to the other's.
#include "udp.h"

#include <linux/filter.h>

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

// What a child does to a socket that its parent has, too.
struct change {
	const char *what;
	int server, level, name, value;
	int kernel; // it leaves the socket to the kernel
};

static const struct change changes[] = {
	{"tos", 0, IPPROTO_IP, IP_TOS, 0x20, 0},
	{"ttl", 0, IPPROTO_IP, IP_TTL, 33, 0},
	{"segment", 0, IPPROTO_UDP, UDP_SEGMENT, 2, 0},
	{"priority", 0, SOL_SOCKET, SO_PRIORITY, 3, 0},
	{"pktinfo", 1, IPPROTO_IP, IP_PKTINFO, 1, 0},
	{"gro", 1, IPPROTO_UDP, UDP_GRO, 1, 0},
	{"timestamp", 1, SOL_SOCKET, SO_TIMESTAMP, 1, 1},
	{"drops", 1, SOL_SOCKET, SO_RXQ_OVFL, 1, 1},
	{"small", 1, SOL_SOCKET, SO_RCVBUF, 4608, 0},
	{"reuse", 1, SOL_SOCKET, SO_REUSEPORT, 1, 0},
	{"broadcast", 0, SOL_SOCKET, SO_BROADCAST, 1, 0},
	{"filter", 1, SOL_SOCKET, SO_ATTACH_FILTER, 0, 1},
	{"timeout", 1, SOL_SOCKET, SO_RCVTIMEO, 0, 0},
	{"elsewhere", 0, 0, 0, 0, 1},
	{"nowhere", 0, 0, 0, 0, 1},
};

struct changed {
	const struct change *how;
	int fd;
	struct sockaddr_in other;
};

static void change(void *arg)
{
	const struct changed *c = arg;
	const struct change *h = c->how;
	struct sock_filter code = {0x06, 0, 0, 8 + 2}; // two bytes of each
	struct sock_fprog filter = {1, &code};
	struct timeval t = {0, 30000};

	if (!strcmp(h->what, "elsewhere"))
		R(connect(c->fd, (const struct sockaddr *)&c->other, sizeof c->other));
	else if (!strcmp(h->what, "nowhere"))
		R(connect(c->fd, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr)));
	else if (h->name == SO_ATTACH_FILTER && h->level == SOL_SOCKET)
		R(setsockopt(c->fd, h->level, h->name, &filter, sizeof filter));
	else if (h->name == SO_RCVTIMEO && h->level == SOL_SOCKET)
		R(setsockopt(c->fd, h->level, h->name, &t, sizeof t));
	else
		R(setsockopt(c->fd, h->level, h->name, &h->value, sizeof h->value));
}

// Receives one, and writes what the kernel says with it.
static void show_all(int fd, int flags)
{
	union {
		char b[256];
		struct cmsghdr align;
	} u;
	char b[64];
	struct iovec v = {b, sizeof b};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = u.b, .msg_controllen = sizeof u.b};

	ssize_t n = recvmsg(fd, &m, flags);
	shown(b, n);
	if (n < 0)
		return;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		int byte = *CMSG_DATA(c), number = 0;
		memcpy(&number, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0) < sizeof number ? c->cmsg_len - CMSG_LEN(0) : sizeof number);
		out("  level %d type %d: %d", c->cmsg_level, c->cmsg_type,
		    c->cmsg_level == SOL_SOCKET ? -1 : c->cmsg_type == IP_TOS ? byte : number);
	}
}

// A child sets an option of its parent's socket, or connects it, and ends.
static void child_changes(void)
{
	int on = 1, c, s, o;
	struct changed how;

	for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
		const struct change *h = &changes[i];
		out("%s", h->what);
		udp_pair(&c, &s);
		o = udp_socket(&how.other);
		if (!h->server)
			R(setsockopt(s, IPPROTO_IP, IP_RECVTOS, &on, sizeof on) | setsockopt(s, IPPROTO_IP, IP_RECVTTL, &on, sizeof on));
		how.how = h;
		how.fd = h->server ? s : c;
		finish(start(change, &how));
		nap(20);
		if (!h->kernel)
			warm_again(c, s);
		for (int k = 0; h->kernel && k < 20; k++) { // time for flows, if there are any
			send(c, "w", 1, 0);
			nap(2);
			drain(s), drain(o);
		}
		R(send(c, "abcdef", 6, 0));
		R(send(c, "gh", 2, 0));
		int come = h->name == UDP_SEGMENT && h->level == IPPROTO_UDP ? 4 : h->level ? 2 : 0, n = 0;
		for (int k = 0; k < come; k++) {
			readable(s, 1000);
			show_all(s, MSG_DONTWAIT);
		}
		show_all(s, strcmp(h->what, "timeout") ? MSG_DONTWAIT : 0);
		if (!strcmp(h->what, "elsewhere"))
			readable(o, 1000);
		quiet(o);
		for (int k = 0; k < 60; k++)
			send(c, "many", 4, 0);
		for (int k = 0; k < 50 && n < 30; k++, nap(2))
			n += drain(s);
		out("%s", n < 30 ? "few" : "many");
		close(c), close(s), close(o);
	}
}

const struct probe udpfork_probes[] = {
	{"udp-fork-thread", thread_waits, 0},
	{"udp-child-waits", child_waits, 0},
	{"udp-program-reads", program_reads, 0},
	{"udp-child-changes", child_changes, 0},
	{NULL, NULL, 0},
};

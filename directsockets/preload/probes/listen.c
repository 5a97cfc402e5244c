#include "probe.h"

/* A listener that is gone is gone: for bind and for connect. How it goes: close, _exit, exit,
 * SIGKILL. */
enum how { CLOSE, UNDERSCORE_EXIT, EXIT, KILL };
static const char *const names[] = {"close", "_exit", "exit", "SIGKILL"};

enum { CLOSES = 1000, DEATHS = 200, GUARD = 300 };

/* At an address that no other program uses. port 0: any. -1: errno says why not. */
static int listen_at(struct sockaddr_in *at, in_port_t port)
{
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof *at;

	memset(at, 0, sizeof *at);
	at->sin_family = AF_INET;
	at->sin_port = port;
	at->sin_addr.s_addr = htonl(0x7f400000u | ((unsigned)getpid() & 0x3fffff));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(fd, (struct sockaddr *)at, sizeof *at) == 0 && listen(fd, 5) == 0 && getsockname(fd, (struct sockaddr *)at, &len) == 0)
		return fd;
	int saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

/* A listener that has gone in that way; at is where it was. */
static void gone(enum how how, struct sockaddr_in *at)
{
	int ports[2], fd;

	if (how == CLOSE) {
		if ((fd = listen_at(at, 0)) < 0)
			die("listen");
		close(fd);
		return;
	}
	if (pipe(ports) < 0)
		die("pipe");
	pid_t pid = fork();
	if (pid == 0) {
		struct sockaddr_in mine;

		if (listen_at(&mine, 0) < 0)
			die("listen");
		put(ports[1], &mine, sizeof mine);
		if (how == UNDERSCORE_EXIT)
			_exit(0);
		if (how == EXIT)
			exit(0);
		raise(SIGKILL);
	}
	close(ports[1]);
	get(ports[0], (char *)at, sizeof *at);
	close(ports[0]);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static void relisten(void)
{
	alarm(GUARD);
	for (enum how how = CLOSE; how <= KILL; how++) {
		int failed = 0, n = fewer(how == CLOSE ? CLOSES : DEATHS);

		for (int i = 0; i < n; i++) {
			struct sockaddr_in at, again;
			gone(how, &at);
			int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
			setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
			again = at;
			failed += bind(fd, (struct sockaddr *)&again, sizeof again) < 0 || listen(fd, 5) < 0;
			close(fd);
		}
		out("%s: %d of %d could not listen again", names[how], failed, n);
	}
}

static void refused(void)
{
	alarm(GUARD);
	for (enum how how = CLOSE; how <= KILL; how++) {
		int odd = 0, n = fewer(how == CLOSE ? CLOSES : DEATHS);

		for (int i = 0; i < n; i++) {
			struct sockaddr_in at;
			gone(how, &at);
			int fd = socket(AF_INET, SOCK_STREAM, 0);
			odd += connect(fd, (struct sockaddr *)&at, sizeof at) == 0 || errno != ECONNREFUSED;
			close(fd);
		}
		out("%s: %d of %d were not refused", names[how], odd, n);
	}
}

/* A socket joins a set, and begins to listen afterwards: Boost.Asio's acceptors do. DUPLICATED: the
 * set has it by another number, which is closed in the end. */
enum { DUPLICATED = 1, FIRED = 2 };

static void joined(const char *what, uint32_t events, int how)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	int set = epoll_create1(0), fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), own = how & DUPLICATED ? dup(fd) : fd;
	struct epoll_event e = {.events = events, .data.u64 = 0x123456789abcdef}, got;

	out("%s", what);
	R(epoll_ctl(set, EPOLL_CTL_ADD, own, &e));
	if (how & FIRED) {
		memset(&got, 0, sizeof got);
		R(epoll_wait(set, &got, 1, 0));
		out("%x", got.events);
	}
	R(bind(fd, (struct sockaddr *)&at, sizeof at));
	R(listen(fd, 5));
	R(epoll_wait(set, &got, 1, 0));
	getsockname(fd, (struct sockaddr *)&at, &len);
	for (int round = 0; round < 2; round++) {
		int c = socket(AF_INET, SOCK_STREAM, 0);
		R(connect(c, (struct sockaddr *)&at, sizeof at));
		memset(&got, 0, sizeof got);
		R(epoll_wait(set, &got, 1, 0));
		out("%x %d", got.events, got.data.u64 == e.data.u64);
		close(accept(fd, NULL, NULL));
		close(c);
		R(epoll_wait(set, &got, 1, 0));
		if (round == 0 && how & FIRED)
			R(epoll_ctl(set, EPOLL_CTL_MOD, own, &e));
	}
	R(epoll_ctl(set, EPOLL_CTL_ADD, own, &e));
	if (own != fd)
		close(own);
	else
		R(epoll_ctl(set, EPOLL_CTL_DEL, own, NULL));
	int c = socket(AF_INET, SOCK_STREAM, 0);
	R(connect(c, (struct sockaddr *)&at, sizeof at));
	R(epoll_wait(set, &got, 1, 0));
	close(c);
	close(fd);
	close(set);
}

static void in_sets_before(void)
{
	joined("level", EPOLLIN, 0);
	joined("level, fired", EPOLLIN, FIRED);
	joined("edge", EPOLLIN | EPOLLET, 0);
	joined("edge, all", EPOLLIN | EPOLLPRI | EPOLLERR | EPOLLHUP | EPOLLET, 0);
	joined("edge, fired", EPOLLIN | EPOLLET, FIRED);
	joined("once", EPOLLIN | EPOLLONESHOT, 0);
	joined("once, fired", EPOLLIN | EPOLLONESHOT, FIRED);
	joined("exclusive", EPOLLIN | EPOLLET | EPOLLEXCLUSIVE, 0);
	joined("duplicate, level", EPOLLIN, DUPLICATED);
	joined("duplicate, edge", EPOLLIN | EPOLLET, DUPLICATED);
}

const struct probe listen_probes[] = {
	{"listen-in-sets", in_sets_before, 1},
	{"relisten", relisten, 1},
	{"refused", refused, 1},
	{NULL, NULL, 0},
};

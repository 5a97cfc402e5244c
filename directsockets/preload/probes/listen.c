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

const struct probe listen_probes[] = {
	{"relisten", relisten, 1},
	{"refused", refused, 1},
	{NULL, NULL, 0},
};

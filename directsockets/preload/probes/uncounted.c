#include "probe.h"

/* Probes of the places where the library hands a connection that it hardly knows yet to the core,
 * because something is about to happen that the core must know of. A connection that is left
 * uncounted stays on TCP, and what a program sees is the same: so these ask the library. */

/* Writes a line if fd is uncounted, or the core has never heard of it. */
static void handed_over(const char *which, int fd)
{
	if (is_uncounted(fd))
		out("%s is uncounted", which);
	else if (!has_core(fd))
		out("%s is unknown", which);
}

/* Writes a line unless both ends become direct. */
static void become_direct(int c, int s)
{
	warm(c, s);
	if (has_library() && (direct(c) != 3 || direct(s) != 3))
		out("direct %d, %d", direct(c), direct(s));
}

static void by_listener(void)
{
	struct sockaddr_in at;
	int l = listener(&at), c, s;

	nap(20);
	pair_on(l, &at, &c, &s);
	R(close(l));
	handed_over("server", s);
	become_direct(c, s);
	hang_up(c, s);
}

static void by_fork(void)
{
	int c, s;

	pair_cold(&c, &s);
	pid_t pid = fork();
	handed_over("client", c);
	handed_over("server", s);
	if (pid == 0)
		_exit(0);
	finish(pid);
	become_direct(c, s);
	hang_up(c, s);
}

static void by_exec(void)
{
	char *none[] = {"no-such-program", NULL};
	int c, s;

	pair_cold(&c, &s);
	R(execvp(none[0], none));
	handed_over("client", c);
	handed_over("server", s);
	hang_up(c, s);
}

/* The child's program gets the server's end, and the parent, which lives in the same memory, is not
 * to use it as its own: it has left the core's care. */
static void by_vfork(void)
{
	char *cat[] = {"cat", NULL}, b[4] = "";
	int c, s;

	pair_cold(&c, &s);
	fcntl(c, F_SETFD, FD_CLOEXEC);
	pid_t pid = vfork();
	if (pid == 0) {
		dup2(s, 0);
		dup2(s, 1);
		execvp("cat", cat);
		_exit(127);
	}
	if (is_uncounted(s))
		out("server is uncounted");
	for (int i = 0; i < 20; i++) {
		put(c, "cat", 3);
		if (get(c, b, 3) != 3 || memcmp(b, "cat", 3))
			die("cat");
	}
	R(close(s));
	R(shutdown(c, SHUT_WR));
	R(read(c, b, 1));
	finish(pid);
	close(c);
}

/* A standard stream for a while. */
static void by_dup(void)
{
	int c, s, in = fcntl(0, F_DUPFD_CLOEXEC, 100);

	pair_cold(&c, &s);
	R(dup2(c, 0));
	R(dup2(in, 0));
	become_direct(c, s);
	hang_up(c, s);
}

/* Back to TCP, and the core knows why. */
static void by_rights(void)
{
	int c, s, over[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, over))
		die("socketpair");
	pair_cold(&c, &s);
	pass_fd(over[0], c);
	handed_over("client", c);
	hang_up(s, c);
}

/* An epoll instance with a direct member tells of events in their order: an uncounted one would
 * have no place in it. late: the other becomes direct when both are members. */
static void by_epoll(int late)
{
	int c[2], s[2], ep = ep_new();

	for (int i = 0; i < 2; i++) {
		pair_cold(&c[i], &s[i]);
		if (i == 0 && !late)
			become_direct(c[0], s[0]);
		ep_set(ep, EPOLL_CTL_ADD, s[i], EPOLLIN, (unsigned long)i);
	}
	if (late) {
		become_direct(c[0], s[0]);
		ep_show(ep, 2, 0);
	}
	handed_over("the other", s[1]);
	put(c[1], "x", 1);
	put(c[0], "x", 1);
	arrived(s[1], 1);
	ep_show(ep, 2, LONG);
	for (int i = 0; i < 2; i++)
		hang_up(c[i], s[i]);
	close(ep);
}

static void by_epoll_add(void) { by_epoll(0); }
static void by_epoll_wait(void) { by_epoll(1); }

/* What was set while it was uncounted is true of it when it is direct. */
static void with_options(void)
{
	struct pollfd p = {.events = POLLIN};
	int c, s, low = 3;

	pair_cold(&c, &s);
	R(setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
	if (has_library() && !is_uncounted(s))
		out("an option has made its handle");
	for (int i = 0; has_library() && i < LONG && (direct(c) != 3 || direct(s) != 3); i++) {
		char b[3];
		put(c, "abc", 3);
		put(s, "abc", 3);
		get(s, b, 3);
		get(c, b, 3);
		nap(1);
	}
	p.fd = s;
	put(c, "ab", 2);
	arrived(s, 2);
	R(poll(&p, 1, 0));
	put(c, "c", 1);
	R(poll(&p, 1, LONG));
	hang_up(s, c);
}

static void after_shutdown(void)
{
	char b[4];
	int c, s;

	pair_cold(&c, &s);
	R(shutdown(c, SHUT_RD));
	if (has_library() && !is_uncounted(c))
		out("shutdown has made its handle");
	for (int i = 0; i < 5 || (has_library() && i < LONG && direct(s) != 3); i++) {
		put(c, "abc", 3);
		put(s, "abc", 3);
		get(s, b, 3);
		if (get(c, b, 3) != 3)
			die("read");
		if (i >= 5)
			nap(1);
	}
	R(recv(c, b, 1, MSG_DONTWAIT));
	hang_up(c, s);
}

static volatile int over;

static void noted(int sig) { (void)sig; }

/* Signals a thread, a pthread_t *, repeatedly. */
static void *signals(void *thread)
{
	while (!over) {
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
		nap(3);
	}
	return NULL;
}

/* A thread that waits in recv is interrupted, or goes on, by how the handler was installed. */
static void by_signal(int flags)
{
	struct sigaction a = {.sa_handler = noted, .sa_flags = flags};
	pthread_t self = pthread_self(), t;
	struct sockaddr_in at;
	int l = listener(&at), c = dial(&at), s = accept(l, NULL, NULL);
	char b[8];

	sigaction(SIGUSR1, &a, NULL);
	over = 0;
	pthread_create(&t, NULL, signals, &self);
	if (flags) {
		pthread_t writer;
		pthread_create(&writer, NULL, write_later, &s);
		R(recv(c, b, 4, 0));
		pthread_join(writer, NULL);
	} else {
		for (int i = 0; i < 3; i++)
			R(recv(c, b, 4, 0));
	}
	over = 1;
	pthread_join(t, NULL);
	if (has_library() && flags)
		become_direct(c, s);
	hang_up(c, s);
	close(l);
}

static void by_signal_ends(void) { by_signal(0); }
static void by_signal_restarts(void) { by_signal(SA_RESTART); }

/* Where there are other threads, too, it stays uncounted over requests that are answered soon, and
 * its end, an error and a time-out are those of the kernel. */
static void beside_threads(void)
{
	struct timeval soon = {0, 30000};
	struct linger none = {1, 0};
	struct sockaddr_in at;
	pthread_t t, self = pthread_self();
	int l = listener(&at), c[3], s[3];
	char b[4];

	over = 1;
	pthread_create(&t, NULL, signals, &self); /* from now on there have been several */
	pthread_join(t, NULL);
	for (int i = 0; i < 3; i++) {
		c[i] = dial(&at);
		s[i] = accept(l, NULL, NULL);
	}
	put(c[0], "abc", 3);
	R(recv(s[0], b, 4, 0));
	put(s[0], "abc", 3);
	R(read(c[0], b, 4));
	if (has_library() && (!is_uncounted(c[0]) || !is_uncounted(s[0])))
		out("not uncounted");
	R(read(c[0], b, 0));
	R(setsockopt(c[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
	R(recv(c[0], b, 4, 0));
	R(recv(c[0], NULL, 0, MSG_DONTWAIT));
	R(close(s[0]));
	R(read(c[0], b, 4));
	close(c[0]);
	R(shutdown(s[1], SHUT_WR));
	R(recv(c[1], b, 4, 0));
	setsockopt(s[2], SOL_SOCKET, SO_LINGER, &none, sizeof none);
	R(close(s[2]));
	R(recv(c[2], b, 4, 0));
	R(recv(c[2], b, 4, 0));
	hang_up(c[1], s[1]);
	close(c[2]);
	close(l);
}

/* One beside which another is in the set of a poll or select is known no better for that. */
static void by_set(int selects)
{
	struct sockaddr_in at;
	struct mmsghdr m = {0};
	int l = listener(&at), known, c, s, s2;
	fd_set in;

	known = dial(&at);
	s = accept(l, NULL, NULL);
	c = dial(&at);
	s2 = accept(l, NULL, NULL);
	R(recvmmsg(known, &m, 1, MSG_DONTWAIT, NULL)); /* that needs the core */
	handed_over("the one", known);
	put(s2, "x", 1);
	for (int i = 0; i < 3; i++) {
		struct pollfd p[] = {{known, POLLIN, 0}, {c, POLLIN, 0}};
		struct timeval none = {0, 0};
		FD_ZERO(&in);
		FD_SET(known, &in);
		FD_SET(c, &in);
		if (selects)
			out("select %d", select((known > c ? known : c) + 1, &in, NULL, NULL, i ? &none : NULL));
		else
			out("poll %d", poll(p, 2, i ? 0 : -1));
		if (selects ? FD_ISSET(known, &in) || !FD_ISSET(c, &in) : p[0].revents != 0 || p[1].revents != POLLIN)
			out("of the wrong one");
		if (has_library() && !is_uncounted(c))
			out("the other is not uncounted");
	}
	get(c, (char[1]){0}, 1);
	become_direct(c, s2);
	become_direct(known, s);
	hang_up(c, s2);
	hang_up(known, s);
	close(l);
}

static void by_poll(void) { by_set(0); }
static void by_select(void) { by_set(1); }

/* Receives on the number *fd, whatever has it, until that is -1. */
static void *receives(void *fd)
{
	char b;

	for (int of; (of = __atomic_load_n((int *)fd, __ATOMIC_RELAXED)) >= 0;)
		(void)!recv(of, &b, 1, MSG_DONTWAIT);
	return NULL;
}

/* A number is that of one connection after the other, accepted and connected ones, while another
 * thread receives on it: what that notes is noted of none that comes after. */
static void renumbered(void)
{
	struct sockaddr_in at;
	int l = listener(&at), number = -1;
	pthread_t t;

	for (int i = 0; i < fewer(3000); i++) {
		int c = dial(&at), s = accept(l, NULL, NULL);
		if (number < 0) {
			number = s;
			pthread_create(&t, NULL, receives, &number);
		}
		close(s);
		close(c);
		s = socket(AF_INET, SOCK_STREAM, 0); /* has one of the two numbers */
		if (connect(s, (struct sockaddr *)&at, sizeof at))
			die("connect");
		c = accept(l, NULL, NULL);
		close(s);
		close(c);
	}
	__atomic_store_n(&number, -1, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	int c = dial(&at), s = accept(l, NULL, NULL);
	become_direct(c, s);
	hang_up(c, s);
	close(l);
}

const struct probe uncounted_probes[] = {
	{"uncounted-renumbered", renumbered, 0},
	{"uncounted-poll", by_poll, 0},
	{"uncounted-select", by_select, 0},
	{"uncounted-listener", by_listener, 0},
	{"uncounted-fork", by_fork, 0},
	{"uncounted-exec", by_exec, 0},
	{"uncounted-vfork", by_vfork, 0},
	{"uncounted-dup", by_dup, 0},
	{"uncounted-rights", by_rights, 0},
	{"uncounted-epoll-add", by_epoll_add, 0},
	{"uncounted-epoll-wait", by_epoll_wait, 0},
	{"uncounted-options", with_options, 0},
	{"uncounted-shutdown", after_shutdown, 0},
	{"uncounted-beside", beside_threads, 0},
	{"uncounted-eintr", by_signal_ends, 0},
	{"uncounted-restart", by_signal_restarts, 0},
	{0},
};

#include "storm.h"

/* Probes of calls in signal handlers that interrupt calls on the same connection, and of what the
 * program is told about its handlers. */

/* ---- bytes ---------------------------------------------------------------- */

static void send_h(void)
{
	ssize_t r = send(c, "H", 1, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (r == 1)
		add(&by_handler, 1);
	else if (errno != EAGAIN)
		add(&wrong, 1);
}

static void sends(int flags)
{
	pid_t pid = count_begin();

	storm(send_h, flags);
	long sent = send_until(TICKS, 50);
	count_end(pid, sent);
}

static void signal_send(void)
{
	sends(0);
	sends(SA_ONSTACK);
}

static void *sends_thread(void *flags)
{
	sends(*(int *)flags);
	return NULL;
}

/* The thread's stack lies below the alternate one, or above it. */
static void signal_send_thread(void)
{
	for (int flags = 0; flags <= SA_ONSTACK; flags += SA_ONSTACK) {
		pthread_t t;
		pthread_create(&t, NULL, sends_thread, &flags);
		pthread_join(t, NULL);
	}
}

static unsigned char byte_at(long i) { return (unsigned char)(i * 31 + (i >> 8)); }

enum { STREAM = 12 << 20 };

static void send_stream(void *unused)
{
	(void)unused;
	close(c);
	for (long at = 0; at < STREAM;) {
		size_t n = 1 + (size_t)at * 7919 % 5000;
		for (size_t i = 0; i < n; i++)
			buf[i] = (char)byte_at(at + (long)i);
		put(s, buf, n);
		at += (long)n;
	}
}

static unsigned long sum, sum_handler;

static void recv_some(void)
{
	unsigned char b[100];
	ssize_t r = recv(c, b, sizeof b, MSG_DONTWAIT);

	if (r < 0 && errno != EAGAIN)
		add(&wrong, 1);
	for (ssize_t i = 0; i < r; i++, by_handler++)
		sum_handler += b[i];
}

static void signal_recv(void)
{
	long got = 0;
	unsigned long want = 0;

	pair(&c, &s);
	pid_t pid = start(send_stream, NULL);
	close(s);
	storm(recv_some, SA_ONSTACK);
	for (ssize_t r; (r = recv(c, buf, 1 + (size_t)got * 31 % sizeof buf, 0)) != 0; got += r > 0 ? r : 0) {
		if (r < 0)
			add(&wrong, 1);
		for (ssize_t i = 0; i < r; i++)
			sum += (unsigned char)buf[i];
	}
	stop_timer();
	finish(pid);
	for (long i = 0; i < got + by_handler; i++)
		want += byte_at(i);
	out("all %d sum %d wrong %ld", got + by_handler >= STREAM, sum + sum_handler == want, wrong);
}

enum { FORKS = 60 };

/* Executes a program, in one of the ways that a handler may, that ends with status, 0 to 9. */
static void execute(unsigned way, int status)
{
	char text[] = "exit 0";
	char *argv[] = {"sh", "-c", text, NULL};

	text[5] = (char)('0' + status);
	switch (way % 5) {
	case 0: execl("/bin/sh", "sh", "-c", text, NULL); break;
	case 1: execle("/bin/sh", "sh", "-c", text, NULL, environ); break;
	case 2: execv("/bin/sh", argv); break;
	case 3: execve("/bin/sh", argv, environ); break;
	default: fexecve(open("/bin/sh", O_RDONLY), argv, environ);
	}
}

static void fork_one(void)
{
	if (fired > FORKS)
		return; /* the next signal is there before the handler has returned */
	pid_t pid = fired % 4 ? fork() : _Fork();

	if (pid == 0) {
		int status = send(c, "H", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 ? 1 : errno == EAGAIN ? 0 : 2;
		if (fired % 6 == 0)
			execute((unsigned)fired / 6, status);
		if (fired % 2)
			_Exit(status);
		_exit(status);
	}
	int st = -1;
	while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(st) || WEXITSTATUS(st) > 1)
		add(&wrong, 1);
	else
		add(&by_handler, WEXITSTATUS(st));
}

/* A handler that forks, and whose child sends, and at times executes a program. */
static void signal_fork(void)
{
	pid_t pid = count_begin();

	storm(fork_one, SA_ONSTACK);
	long sent = send_until(FORKS, 0);
	count_end(pid, sent);
}

/* ---- nesting, and what handlers are told ----------------------------------- */

static volatile int depth, deepest;

static void send_and_raise(void)
{
	if (++depth > deepest)
		deepest = depth;
	send_h();
	if (depth < 4)
		raise(SIGRTMIN);
	send_h();
	depth--;
}

static void signal_nested(void)
{
	pid_t pid = count_begin();

	storm(send_and_raise, SA_NODEFER);
	long sent = send_until(TICKS, 0);
	count_end(pid, sent);
	out("deep %d", deepest >= 4);
}

static volatile int told;

static void on_info(int sig, siginfo_t *info, void *context)
{
	told = sig == SIGUSR1 && info->si_code == SI_QUEUE && context ? info->si_value.sival_int : -1;
}

static void on_plain(int sig) { told = sig; }

static void show(int sig)
{
	struct sigaction a;

	R(sigaction(sig, NULL, &a));
	out("%s flags %#x", a.sa_sigaction == on_info ? "on_info" : a.sa_handler == on_plain ? "on_plain" : a.sa_handler == SIG_DFL ? "default"
		: a.sa_handler == SIG_IGN ? "ignored" : "other", (unsigned)a.sa_flags & ~0x04000000u);
}

static void signal_shown(void)
{
	struct sigaction a = {.sa_sigaction = on_info, .sa_flags = SA_SIGINFO | SA_RESTART}, old;

	R(sigaction(SIGUSR1, &a, NULL));
	show(SIGUSR1);
	R(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 77}));
	out("told %d", told);
	out("%d", signal(SIGUSR1, on_plain) == (void (*)(int))(void *)on_info);
	show(SIGUSR1);
	raise(SIGUSR1);
	out("told %d", told == SIGUSR1);
	out("%d", signal(SIGUSR1, SIG_IGN) == on_plain);
	show(SIGUSR1);
	a.sa_flags = (int)(SA_SIGINFO | SA_RESETHAND | SA_NODEFER);
	R(sigaction(SIGUSR1, &a, &old));
	out("%d", old.sa_handler == SIG_IGN);
	show(SIGUSR1);
	R(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 78}));
	out("told %d", told);
	show(SIGUSR1);
	R(sigaction(SIGKILL, &a, NULL));
	R(sigaction(0, &a, NULL));
	R(sigaction(1000, NULL, &a));
	out("%d", signal(SIGKILL, on_plain) == SIG_ERR);
	sysv_signal(SIGUSR2, on_plain);
	show(SIGUSR2);
	raise(SIGUSR2);
	show(SIGUSR2);
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGTERM, SIG_DFL);
		raise(SIGTERM);
	}
	finish(pid);
}

const struct probe signal_probes[] = {
	{"signal-send", signal_send, 0},
	{"signal-send-thread", signal_send_thread, 0},
	{"signal-recv", signal_recv, 0},
	{"signal-fork", signal_fork, 0},
	{"signal-nested", signal_nested, 0},
	{"signal-shown", signal_shown, 1},
	{NULL, NULL, 0},
};

#include "probe.h"

/* Probes of a program whose handlers of fork take a lock of its own, and were registered before any
 * library's: a thread that has the lock makes duplicates of connections meanwhile. */

static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
static int wanted, c, s, stop;

static void prepare(void)
{
	if (wanted)
		pthread_mutex_lock(&own);
}

static void after(void)
{
	if (wanted)
		pthread_mutex_unlock(&own);
}

/* Before the constructors of libraries. */
static void registers(void) { pthread_atfork(prepare, after, after); }
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = registers;

static void hangs(int sig)
{
	(void)sig;
	out("fork and dup wait for each other");
	_exit(1);
}

static void *duplicates(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
		pthread_mutex_lock(&own);
		int d = dup(c), e = fcntl(c, F_DUPFD, 300), f = dup2(c, 200);
		pthread_mutex_unlock(&own);
		close(d);
		close(e);
		close(f);
	}
	return NULL;
}

static void atfork_dup(void)
{
	pthread_t thread;
	char b;

	pair(&c, &s);
	signal(SIGALRM, hangs);
	wanted = 1;
	pthread_create(&thread, NULL, duplicates, NULL);
	for (int i = 0; i < fewer(300); i++) {
		alarm(LONG / 1000); /* for each: how long all of them take says nothing */
		pid_t pid = fork();
		if (pid == 0)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	put(c, "x", 1);
	get(s, &b, 1);
	out("%c", b);
	close(c);
	out("%zu more", get(s, &b, 1));
	close(s);
}

const struct probe atfork_probes[] = {
	{"atfork-dup", atfork_dup, 0},
	{NULL, NULL, 0},
};

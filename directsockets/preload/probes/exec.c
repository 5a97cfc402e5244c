#include "probe.h"

#include <sys/stat.h>

/* Probes of programs that inherit a connection with bytes on their way: which program, what the
 * peer does meanwhile, and who else has the socket. Nothing may be lost, and nothing wait for a
 * peer that says no more. */

extern char **environ;
static char data[400000], buf[400000];

/* The program: with the library if this one has it; without; one that the library cannot reach. */
enum { WITH, WITHOUT, STATIC };

static char *cat(int how)
{
	char *path = how == STATIC ? getenv("PROBE_CAT") : NULL;
	return path ? path : "/bin/cat";
}

/* This process becomes cat of in to to. */
static void become_cat(int how, int in, int to)
{
	char *argv[] = {"cat", NULL}, *none[] = {NULL};
	dup2(in, 0);
	dup2(to, 1);
	close_range(3, ~0u, 0);
	execve(cat(how), argv, how == WITHOUT ? none : environ);
	_exit(127);
}

/* cat in a process of its own; returns a pipe with its output. */
static int start_cat(int how, int in, pid_t *pid)
{
	int p[2];
	if (pipe2(p, O_CLOEXEC) < 0)
		die("pipe");
	*pid = fork();
	if (*pid == 0)
		become_cat(how, in, p[1]);
	close(p[1]);
	return p[0];
}

static void check(const char *what, int fd, size_t n)
{
	size_t got = get(fd, buf, n);
	out("%s: %zu of %zu, same %d", what, got, n, memcmp(buf, data, got) == 0);
}

/* The peer has written n bytes, and does nothing more until it ends without a word. */
static void passive(int how, size_t n)
{
	int c, s, said[2];
	pid_t peer, pid;
	pair(&c, &s);
	fill(data, n, 7);
	if (pipe(said) < 0)
		die("pipe");
	peer = fork();
	if (peer == 0) {
		close(s);
		put(c, data, n);
		put(said[1], "x", 1);
		for (;;)
			syscall(SYS_pause);
	}
	close(c);
	get(said[0], buf, 1);
	int o = start_cat(how, s, &pid);
	close(s);
	check("while it is there", o, n);
	kill(peer, SIGKILL);
	finish(peer);
	R(read(o, buf, 10));
	finish(pid);
}

static void exec_passive(void)
{
	passive(WITH, 11);
	passive(WITH, 100000);
}

static void exec_passive_plain(void)
{
	passive(WITHOUT, 1);
	passive(WITHOUT, 60000);
}

static void exec_passive_static(void)
{
	passive(STATIC, 300);
	passive(STATIC, 100000);
}

/* Both directions hold bytes when the program begins; the peer goes on. */
static void both(int how)
{
	int c, s;
	pair(&c, &s);
	fill(data, 100000, 9);
	put(s, data, 50000);
	put(c, data, 100000);
	pid_t pid = fork();
	if (pid == 0)
		become_cat(how, s, s);
	close(s);
	check("from the old program", c, 50000);
	check("from the new one", c, 100000);
	put(c, data, 70000);
	check("later", c, 70000);
	shutdown(c, SHUT_WR);
	R(read(c, buf, 10));
	finish(pid);
}

static void exec_both(void) { both(WITH); }
static void exec_both_plain(void) { both(WITHOUT); }
static void exec_both_static(void) { both(STATIC); }

/* The process itself becomes another program; and its last words to the peer are in the ring. */
static void exec_in_place(void)
{
	for (int how = WITH; how <= STATIC; how++) {
		int c, s;
		pair(&c, &s);
		fill(data, 100000, 11);
		pid_t pid = fork();
		if (pid == 0) {
			close(c);
			put(s, data, 100000);
			become_cat(how, s, s);
		}
		close(s);
		nap(50);
		put(c, data, 20000);
		check("old", c, 100000);
		check("new", c, 20000);
		shutdown(c, SHUT_WR);
		R(read(c, buf, 10));
		finish(pid);
	}
}

/* The old program keeps its copy, and reads what the new one has left. */
static void exec_shared(void)
{
	int c, s, o;
	pid_t pid;
	pair(&c, &s);
	put(c, "hello world", 11);
	int p[2];
	if (pipe(p) < 0)
		die("pipe");
	pid = fork();
	if (pid == 0) {
		dup2(s, 0);
		dup2(p[1], 1);
		execlp("head", "head", "-c", "5", NULL);
		_exit(127);
	}
	close(p[1]);
	o = p[0];
	/* The peer looks after its connection now and then, as programs do. */
	struct pollfd f = {c, POLLIN, 0};
	while (readable(o, 0) == 0)
		poll(&f, 1, 50);
	out("%zu %.5s", get(o, buf, 20), buf);
	finish(pid);
	out("%zu %.6s", get(s, buf, 6), buf);
	put(c, "more", 4);
	R(read(s, buf, 10));
	put(s, "back", 4);
	R(read(c, buf, 10));
}

/* A child that has the socket and does nothing with it is no reason for anything, whatever lies
 * unread. */
static void exec_leak_ended(void)
{
	int c, s;
	pair(&c, &s);
	put(c, "unread", 6);
	shutdown(c, SHUT_WR);
	nap(20);
	pid_t pid = fork();
	if (pid == 0) {
		execlp("true", "true", NULL);
		_exit(127);
	}
	finish(pid);
	R(system("true"));
	R(read(s, buf, 10));
	R(read(s, buf, 10));
	put(s, "answer", 6);
	R(read(c, buf, 10));
	close(s);
	R(read(c, buf, 10));
}

/* posix_spawn of a program whose peer has ended, or is gone, or is silent. */
static void spawn(int by_number, int gone)
{
	int c, s, p[2];
	pid_t pid;
	char text[40];
	char *argv[] = {"sh", "-c", text, NULL};
	posix_spawn_file_actions_t fa;
	pair(&c, &s);
	fcntl(c, F_SETFD, FD_CLOEXEC);
	if (!by_number)
		fcntl(s, F_SETFD, FD_CLOEXEC);
	fill(data, 60000, 13);
	put(c, data, 60000);
	if (gone)
		close(c);
	else
		shutdown(c, SHUT_WR);
	nap(20);
	if (pipe2(p, O_CLOEXEC) < 0)
		die("pipe");
	posix_spawn_file_actions_init(&fa);
	if (!by_number)
		posix_spawn_file_actions_adddup2(&fa, s, 0);
	posix_spawn_file_actions_adddup2(&fa, p[1], 1);
	snprintf(text, sizeof text, by_number ? "cat <&%d" : "cat", s);
	if (posix_spawnp(&pid, "sh", &fa, NULL, argv, environ))
		die("posix_spawnp");
	posix_spawn_file_actions_destroy(&fa);
	close(p[1]);
	close(s);
	check("spawned", p[0], 60000);
	R(read(p[0], buf, 10));
	finish(pid);
	close(p[0]);
	if (!gone) {
		R(read(c, buf, 10));
		close(c);
	}
}

static void spawn_last_words(void)
{
	spawn(0, 1);
	spawn(0, 0);
}

static void spawn_by_number(void)
{
	spawn(1, 1);
	spawn(1, 0);
}

/* A program that cannot be executed: the old one goes on, with all that it had. */
static void exec_fails(void)
{
	char path[] = "/tmp/exn-probe-XXXXXX", *argv[] = {path, NULL};
	int fd = mkstemp(path);
	put(fd, "\177nothing", 8);
	fchmod(fd, 0755);
	close(fd);
	for (int ended = 0; ended < 2; ended++) {
		int c, s;
		pair(&c, &s);
		put(c, "unread", 6);
		if (ended)
			shutdown(c, SHUT_WR);
		nap(20);
		R(execv(path, argv));
		struct pollfd p = {c, POLLIN, 0};
		poll(&p, 1, 20);
		out("%zu %.6s", get(s, buf, 6), buf);
		put(s, "answer", 6);
		out("%zu %.6s", get(c, buf, 6), buf);
		if (!ended)
			put(c, "x", 1);
		R(read(s, buf, 10));
		close(s);
		R(read(c, buf, 10));
	}
	unlink(path);
}

/* More unread than TCP has room for, from a peer that waits for the answer. */
static void exec_big(void)
{
	int c, s;
	size_t n = 950000, got = 0;
	pair(&c, &s);
	pid_t peer = fork();
	if (peer == 0) {
		close(s);
		fill(data, sizeof data, 17);
		for (size_t k = n; k > 0; k -= k < sizeof data ? k : sizeof data)
			put(c, data, k < sizeof data ? k : sizeof data);
		out("%zu", get(c, buf, 5));
		shutdown(c, SHUT_WR);
		_exit(0);
	}
	close(c);
	nap(100);
	pid_t pid;
	int o = start_cat(WITHOUT, s, &pid);
	for (size_t k; got < n && (k = get(o, buf, n - got < 65536 ? n - got : 65536)) > 0;)
		got += k;
	out("%zu", got);
	put(s, "done", 5);
	close(s);
	R(read(o, buf, 10));
	finish(pid);
	finish(peer);
}

/* What the process that hands bytes on to a new program has of the others must not keep them
 * open. */
static void exec_others(void)
{
	int c, s, c2, s2;
	pid_t pid;
	pair(&c2, &s2);
	pair(&c, &s);
	fill(data, 1000, 3);
	put(c, data, 1000);
	shutdown(c, SHUT_WR);
	nap(20);
	int o = start_cat(WITH, s, &pid);
	close(s);
	check("cat", o, 1000);
	put(c2, "x", 1);
	R(read(s2, buf, 10));
	close(s2);
	R(read(c2, buf, 10));
	R(read(o, buf, 10));
	finish(pid);
	/* cat's own direction ends with it */
	R(read(c, buf, 10));
}

/* A stream of numbers between two threads. */
struct stream {
	int in, from;
	int over, wrong;
	unsigned long sent, got;
};

static void *sends_numbers(void *arg)
{
	struct stream *t = arg;
	static uint64_t block[8192];

	while (!__atomic_load_n(&t->over, __ATOMIC_RELAXED)) {
		for (size_t i = 0; i < sizeof block / sizeof *block; i++)
			block[i] = t->sent++;
		put(t->in, block, sizeof block);
	}
	shutdown(t->in, SHUT_WR);
	return NULL;
}

static void *reads_numbers(void *arg)
{
	struct stream *t = arg;
	static uint64_t block[4096];

	for (size_t n; (n = get(t->from, block, sizeof block) / sizeof *block) > 0 && !t->wrong;)
		for (size_t i = 0; i < n; i++)
			t->wrong |= block[i] != t->got++;
	return NULL;
}

/* Programs start beside the threads that use a connection, and inherit both of its ends: none of
 * its bytes is lost, nor comes before another. */
static void spawns_beside(void)
{
	char *argv[] = {"true", NULL};
	int wrong = 0, missing = 0, n = fewer(20);

	for (int i = 0; i < n; i++) {
		struct stream t = {0};
		pthread_t writer, reader;
		pid_t pid;

		pair(&t.in, &t.from);
		pthread_create(&reader, NULL, reads_numbers, &t);
		pthread_create(&writer, NULL, sends_numbers, &t);
		nap(20 + i);
		if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ))
			die("posix_spawn");
		waitpid(pid, NULL, 0);
		nap(20);
		__atomic_store_n(&t.over, 1, __ATOMIC_RELAXED);
		pthread_join(writer, NULL);
		pthread_join(reader, NULL);
		wrong += t.wrong;
		missing += t.got != t.sent;
		close(t.in);
		close(t.from);
	}
	out("wrong %d missing %d", wrong, missing);
}

const struct probe exec_probes[] = {
	{"exec-passive", exec_passive, 0},
	{"exec-passive-plain", exec_passive_plain, 0},
	{"exec-passive-static", exec_passive_static, 0},
	{"exec-both", exec_both, 0},
	{"exec-both-plain", exec_both_plain, 0},
	{"exec-both-static", exec_both_static, 0},
	{"exec-in-place", exec_in_place, 0},
	{"exec-shared", exec_shared, 0},
	{"exec-leak-ended", exec_leak_ended, 0},
	{"spawn-last-words", spawn_last_words, 0},
	{"spawn-by-number", spawn_by_number, 0},
	{"exec-fails", exec_fails, 0},
	{"exec-big", exec_big, 0},
	{"exec-others", exec_others, 0},
	{"exec-spawn-beside", spawns_beside, 0},
	{NULL, NULL, 0},
};

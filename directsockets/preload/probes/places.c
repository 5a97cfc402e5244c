#include "ways.h"

#include <sched.h>
#include <ucontext.h>

/* Probes of calls that come from other places than a program's first thread: threads, handlers,
 * children, and small stacks. */

struct call {
	int fd, in;
	void *p;
	size_t n;
	long r;
};
static void *makes(void *call)
{
	struct call *k = call;

	k->r = by_read(k->fd, k->p, k->n, k->in);
	return NULL;
}
static long by_thread(int fd, void *p, size_t n, int in)
{
	struct call k = {fd, in, p, n, 0};
	pthread_t t;

	pthread_create(&t, NULL, makes, &k);
	pthread_join(t, NULL);
	return k.r;
}

static struct call *for_others;
static void handler(int sig)
{
	(void)sig;
	makes(for_others);
}
static long by_handler(int fd, void *p, size_t n, int in)
{
	struct call k = {fd, in, p, n, 0};

	for_others = &k;
	signal(SIGUSR1, handler);
	raise(SIGUSR1);
	return k.r;
}

static long by_child(int fd, void *p, size_t n, int in)
{
	char *shared = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int st = 0;

	memcpy(shared, p, n);
	pid_t pid = fork();
	if (pid == 0)
		_exit(by_read(fd, shared, n, in) == (long)n ? 0 : 1);
	waitpid(pid, &st, 0);
	memcpy(p, shared, n);
	munmap(shared, n);
	return st == 0 ? (long)n : -1;
}


/* Children that the C library does not know of: with tables of descriptors of their own, or not. */
static long by_clone(int fd, void *p, size_t n, int in, unsigned long flags)
{
	char *shared = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int st = 0;

	memcpy(shared, p, n);
	pid_t pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		_exit(by_read(fd, shared, n, in) == (long)n ? 0 : 1);
	waitpid(pid, &st, 0);
	memcpy(p, shared, n);
	munmap(shared, n);
	return st == 0 ? (long)n : -1;
}
static long by_number_child(int fd, void *p, size_t n, int in) { return by_clone(fd, p, n, in, 0); }
static long by_sharing_child(int fd, void *p, size_t n, int in) { return by_clone(fd, p, n, in, CLONE_FILES); }

/* A program whose standard input or output the socket is. */
static long by_spawn(int fd, void *p, size_t n, int in)
{
	posix_spawn_file_actions_t a;
	char count[24], *head[] = {"head", "-c", count, NULL};
	int st, ends[2], file = memfd_create("probe", 0);
	pid_t pid;

	snprintf(count, sizeof count, "%zu", n);
	if (file < 0 || pipe(ends) < 0 || write(file, p, n) != (ssize_t)n || lseek(file, 0, SEEK_SET) != 0)
		die("memfd_create");
	posix_spawn_file_actions_init(&a);
	posix_spawn_file_actions_adddup2(&a, in ? fd : file, 0);
	posix_spawn_file_actions_adddup2(&a, in ? ends[1] : fd, 1);
	if (posix_spawnp(&pid, head[0], &a, NULL, head, environ))
		die("posix_spawnp");
	posix_spawn_file_actions_destroy(&a);
	waitpid(pid, &st, 0);
	if (in && st == 0)
		st = read(ends[0], p, n) == (ssize_t)n ? 0 : -1;
	close(file);
	close(ends[0]);
	close(ends[1]);
	return st == 0 ? (long)n : -1;
}

/* A thread with a table of descriptors of its own, from which it closes the socket. */
static void *makes_apart(void *call)
{
	struct call *k = call;

	if (unshare(CLONE_FILES) < 0)
		die("unshare");
	makes(call);
	syscall(SYS_close, k->fd);
	return NULL;
}

static long threaded(void *(*body)(void *), struct call *k, size_t stack)
{
	pthread_attr_t a;
	pthread_t t;

	pthread_attr_init(&a);
	if (stack && pthread_attr_setstacksize(&a, stack))
		die("pthread_attr_setstacksize");
	if (pthread_create(&t, &a, body, k))
		die("pthread_create");
	pthread_attr_destroy(&a);
	pthread_join(t, NULL);
	return k->r;
}
static long by_apart(int fd, void *p, size_t n, int in) { return threaded(makes_apart, &(struct call){fd, in, p, n, 0}, 0); }
static void *closes_apart(void *call)
{
	struct call *k = call;

	makes(call);
	if (syscall(SYS_close_range, ~0u, ~0u, 2 /* CLOSE_RANGE_UNSHARE */) < 0)
		die("close_range");
	syscall(SYS_close, k->fd);
	return NULL;
}
static long by_range(int fd, void *p, size_t n, int in) { return threaded(closes_apart, &(struct call){fd, in, p, n, 0}, 0); }
static long by_least_thread(int fd, void *p, size_t n, int in) { return threaded(makes, &(struct call){fd, in, p, n, 0}, (size_t)sysconf(_SC_THREAD_STACK_MIN)); }

/* At a thread's end. */
static pthread_key_t key;
static void destroy(void *call) { makes(call); }
static void *ends_with(void *call)
{
	pthread_setspecific(key, call);
	return NULL;
}
static long by_destructor(int fd, void *p, size_t n, int in)
{
	pthread_key_create(&key, destroy);
	long r = threaded(ends_with, &(struct call){fd, in, p, n, 0}, 0);
	pthread_key_delete(key);
	return r;
}

/* The size of a small stack. A sanitizer's frames are larger. */
static size_t small_size(void)
{
	const char *size = getenv("PROBE_STACK");

	return size ? strtoul(size, NULL, 0) : 8 << 10;
}

/* One, at whose end is no memory. */
static char *small_stack(void)
{
	char *at = mmap(NULL, 4096 + small_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || mprotect(at, 4096, PROT_NONE) < 0)
		die("mmap");
	return at + 4096;
}

static ucontext_t on_small, on_first;
static void in_context(void) { makes(for_others); }
static long by_context(int fd, void *p, size_t n, int in)
{
	struct call k = {fd, in, p, n, 0};
	char *stack;

	if (getenv("PROBE_STACK")) /* the address sanitizer has a warning for each makecontext */
		return by_read(fd, p, n, in);
	stack = small_stack();
	for_others = &k;
	getcontext(&on_small);
	on_small.uc_stack = (stack_t){.ss_sp = stack, .ss_size = small_size()};
	on_small.uc_link = &on_first;
	makecontext(&on_small, in_context, 0);
	swapcontext(&on_first, &on_small);
	munmap(stack - 4096, 4096 + small_size());
	return k.r;
}

static long by_small_handler(int fd, void *p, size_t n, int in)
{
	struct call k = {fd, in, p, n, 0};
	struct sigaction a = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	char *stack = small_stack();
	stack_t small = {.ss_sp = stack, .ss_size = small_size()}, before;

	for_others = &k;
	if (sigaltstack(&small, &before) < 0)
		die("sigaltstack");
	sigaction(SIGUSR2, &a, NULL);
	raise(SIGUSR2);
	sigaltstack(&before, NULL);
	munmap(stack - 4096, 4096 + small_size());
	return k.r;
}

static const struct way ways[] = {
	{"thread", by_thread}, {"thread of the least stack", by_least_thread}, {"a thread's end", by_destructor},
	{"handler", by_handler}, {"handler on a small stack", by_small_handler}, {"small stack", by_context},
	{"child", by_child}, {"child by number", by_number_child}, {"program", by_spawn},
	{"child with these descriptors", by_sharing_child}, /* the last, as all connections stay on TCP after it */
	{0},
};

void all_places(void) { each_way(ways); }

/* After the first message all connections stay on TCP, so these are probes of their own. */
void unshared(void) { each_way((struct way[]){{"descriptors of its own", by_apart}, {0}}); }
void closed_apart(void) { each_way((struct way[]){{"closed in a table of its own", by_range}, {0}}); }

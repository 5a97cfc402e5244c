// Locks, critical sections and jumps: who holds a lock dies, is left by a jump, is interrupted.
#include "harness.h"

#include "segment/arena.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ds_lock *shared_lock(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void handle(int sig, void (*fn)(int, siginfo_t *, void *), int flags)
{
	struct sigaction a = {.sa_sigaction = fn, .sa_flags = SA_SIGINFO | flags};

	CHECK(ds_sigaction(sig, &a, NULL) == 0, "sigaction %d", sig);
}

// ---- threads and processes

enum { THREADS = 4, ROUNDS = 20000 };

static struct ds_lock contended;
static long counter;

static void *count(void *unused)
{
	(void)unused;
	for (int i = 0; i < ROUNDS; i++) {
		CHECK(ds_lock(&contended, false) == DS_TAKEN, "round %d", i);
		counter++;
		if (i % 512 == 0)
			sched_yield();
		ds_unlock(&contended, false);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[THREADS];

	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, count, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	CHECK(counter == THREADS * ROUNDS, "%ld", counter);
	CHECK(contended.word == 0 && ds_self.critical == 0 && ds_self.cleanups == 0, "left: %#x", contended.word);
}

static void *finds(void *unused)
{
	ds_real_init();
	return unused;
}

static void *calls(void *unused)
{
	CHECK(REAL(dup, -1) == -1 && REAL(syscall, -1) == -1, "went well");
	return unused;
}

// Each finds the C library's functions for itself while others call them.
static void first_calls(void)
{
	pthread_t t[THREADS];

	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, i % 2 ? finds : calls, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

static void nested(void)
{
	struct ds_lock l = {0};

	for (int alone = 0; alone < 2; alone++) {
		CHECK(ds_lock(&l, alone) == DS_TAKEN, "alone %d", alone);
		CHECK(ds_lock(&l, alone) == DS_NESTED, "alone %d", alone);
		ds_unlock(&l, alone);
		CHECK(l.word == 0 && ds_self.critical == 0, "%#x %d", l.word, ds_self.critical);
	}
	CHECK(ds_own_lock(&l) == DS_TAKEN, "own");
	CHECK(ds_own_lock(&l) == DS_NESTED && ds_own_try(&l) == DS_NESTED, "own");
	CHECK(ds_own_again(&l) == DS_TAKEN, "again");
	ds_own_unlock(&l);
	CHECK(l.word == ds_me(), "given back too early");
	ds_own_unlock(&l);
	CHECK(l.word == 0 && ds_self.critical == 0 && ds_self.cleanups == 0, "%#x %d", l.word, ds_self.critical);
	CHECK(ds_own_try(&l) == DS_TAKEN, "try");
	ds_own_unlock(&l);
}

static void dead_process(void)
{
	struct ds_lock *l = shared_lock();

	for (int i = 0; i < 3; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			ds_me_child();
			ds_lock(l, false);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
		CHECK(ds_lock(l, false) == DS_INHERITED, "round %d", i);
		ds_unlock(l, false);
	}
	CHECK(ds_lock(l, false) == DS_TAKEN, "after");
	ds_unlock(l, false);
	munmap(l, 4096);
}

static void *die_with(void *l)
{
	ds_lock(l, false);
	return NULL;
}

static void dead_thread(void)
{
	struct ds_lock l = {0};
	pthread_t t;

	pthread_create(&t, NULL, die_with, &l);
	pthread_join(t, NULL);
	CHECK(ds_lock(&l, false) == DS_INHERITED, "%#x", l.word);
	ds_unlock(&l, false);
}

// ---- signals

static volatile int handled, in_section, value, depth_seen;

static void on_queued(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	in_section = ds_self.critical;
	depth_seen = ds_self.level;
	value += info->si_value.sival_int;
	handled++;
	errno = EDOM;
}

static void deferred(void)
{
	sigset_t before, after;

	handle(SIGUSR1, on_queued, 0);
	handle(SIGRTMIN, on_queued, 0);
	sigprocmask(SIG_BLOCK, NULL, &before);
	handled = value = 0;
	ds_critical_begin();
	ds_critical_begin();
	sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 1});
	sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 10});
	sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 100});
	CHECK(handled == 0, "%d in the section", handled);
	ds_critical_end();
	CHECK(handled == 0, "%d in the outer section", handled);
	errno = ENOENT;
	ds_critical_end();
	CHECK(handled == 3 && value == 111, "%d, sum %d", handled, value);
	CHECK(in_section == 0 && depth_seen == 1 && ds_self.level == 0, "section %d, level %d", in_section, depth_seen);
	sigprocmask(SIG_BLOCK, NULL, &after);
	CHECK(memcmp(&before, &after, 8) == 0, "the mask has changed");
	raise(SIGUSR1);
	CHECK(handled == 4, "%d", handled);
}

// Signals that wait while a process forks are not the child's.
static void forked(void)
{
	sigset_t before, after;
	int st = -1;

	sigprocmask(SIG_BLOCK, NULL, &before);
	handled = 0;
	ds_critical_begin();
	raise(SIGUSR1);
	pid_t pid = fork();
	if (pid == 0)
		ds_me_child();
	ds_critical_end();
	if (pid == 0) {
		sigprocmask(SIG_BLOCK, NULL, &after);
		_exit(handled * 2 + (memcmp(&before, &after, 8) != 0));
	}
	waitpid(pid, &st, 0);
	CHECK(handled == 1, "%d in the parent", handled);
	CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 0, "child: %#x", st);
}

static void reset(void)
{
	struct sigaction a;

	handle(SIGUSR2, on_queued, (int)SA_RESETHAND);
	CHECK(ds_sigaction(SIGUSR2, NULL, &a) == 0 && a.sa_sigaction == on_queued, "not shown");
	CHECK((a.sa_flags & SA_SIGINFO) && (a.sa_flags & (int)SA_RESETHAND), "flags %#x", a.sa_flags);
	handled = 0;
	ds_critical_begin();
	raise(SIGUSR2);
	ds_critical_end();
	CHECK(handled == 1, "%d", handled);
	CHECK(ds_sigaction(SIGUSR2, NULL, &a) == 0 && a.sa_handler == SIG_DFL, "still there");
}

// ---- jumps

static sigjmp_buf back;
static struct ds_lock faulty, own;
static int cleaned;

static void clean(void *n)
{
	cleaned += *(int *)n;
	ds_lock_jumped(&faulty);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info, (void)context;
	CHECK(ds_lock(&faulty, false) == DS_NESTED, "in the handler");
	ds_jump(NULL);
	siglongjmp(back, 1);
}

static volatile int *forbidden;

// A fault with the lock held, whose handler jumps: on an alternate stack, too.
static void jumps(void)
{
	static int one = 1;

	forbidden = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (volatile int i = 0; i < 4; i++) {
		handle(SIGSEGV, on_fault, i & 1 ? SA_ONSTACK : 0);
		cleaned = 0;
		if (sigsetjmp(back, 1) == 0) {
			ds_critical_begin();
			ds_cleanup_push(clean, &one);
			ds_critical_end();
			ds_lock(&faulty, i & 2);
			ds_own_lock(&own);
			*forbidden = 1;
		}
		CHECK(cleaned == 1, "%d", cleaned);
		CHECK(ds_self.critical == 0 && ds_self.cleanups == 0 && ds_self.level == 0, "%d %d %d", ds_self.critical, ds_self.cleanups,
		      ds_self.level);
		CHECK(ds_lock(&faulty, i & 2) == DS_INHERITED, "%#x", faulty.word);
		ds_unlock(&faulty, i & 2);
		CHECK(ds_own_lock(&own) == DS_INHERITED, "%#x", own.word);
		ds_own_unlock(&own);
	}
	signal(SIGSEGV, SIG_DFL);
}

// ---- a storm of signals, whose handlers take the lock that they would interrupt

static struct ds_lock stormy;
static volatile long both[2], by_handler;

static void change(bool alone)
{
	int how = ds_lock(&stormy, alone);

	CHECK(how == DS_TAKEN, "how %d", how);
	both[0]++;
	CHECK(both[0] == both[1] + 1, "%ld %ld", both[0], both[1]);
	both[1]++;
	ds_unlock(&stormy, alone);
}

static volatile bool alone_now;

static void on_storm(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info, (void)context;
	change(alone_now);
	by_handler++;
}

static void storm(int flags)
{
	struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1};
	struct itimerspec every = {{0, 50000}, {0, 50000}};
	timer_t t;

	handle(SIGRTMIN + 1, on_storm, flags);
	timer_create(CLOCK_MONOTONIC, &ev, &t);
	timer_settime(t, 0, &every, NULL);
	by_handler = 0;
	for (long i = 0; by_handler < 500 && i < 2000000000; i++)
		change(alone_now);
	timer_delete(t);
	CHECK(by_handler >= 500, "%ld signals", by_handler);
	CHECK(both[0] == both[1] && stormy.word == 0, "%ld %ld", both[0], both[1]);
}

int main(void)
{
	static char stack[1 << 16];
	stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};

	setvbuf(stdout, NULL, _IONBF, 0);
	sigaltstack(&alternate, NULL);
	first_calls();
	nested();
	dead_process();
	dead_thread();
	threads();
#ifdef __SANITIZE_THREAD__ // calls handlers late, and one within another
	bool late = true;
#else
	bool late = false;
#endif
	if (!late) {
		deferred();
		forked();
		reset();
		for (int i = 0; i < 4; i++) {
			alone_now = i & 1;
			storm(i & 2 ? SA_ONSTACK : 0);
		}
		jumps();
	}
	printf("lock: %d failed\n", failures);
	return failures != 0;
}

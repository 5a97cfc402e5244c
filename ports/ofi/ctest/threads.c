// threads.c: threads share the objects of a domain (FI_THREAD_SAFE), and a process forks meanwhile.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

enum { THREADS = 3, EACH = 4000, ALL = THREADS * EACH };

static struct side a, b;
static unsigned sent, received, answered;
static uint64_t sum;
static uint8_t buffers[ALL][8];

static unsigned count(unsigned *n)
{
	return __atomic_load_n(n, __ATOMIC_ACQUIRE);
}

static void *sender(void *arg)
{
	for (uint64_t i = 0; i < EACH; i++) {
		uint64_t v = i * THREADS + (uint64_t)(uintptr_t)arg;
		for (ssize_t r; (r = fi_inject(a.ep, &v, 8, 0)) != 0; sched_yield())
			must(r == -FI_EAGAIN);
		__atomic_fetch_add(&sent, 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void *receiver(void *arg)
{
	struct fi_cq_data_entry e[4];
	(void)arg;
	while (count(&received) < ALL) {
		ssize_t n = fi_cq_sread(b.cq, e, 4, NULL, 10);
		must(n > 0 || n == -FI_EAGAIN);
		for (ssize_t i = 0; i < n; i++) {
			uint64_t v;
			must(e[i].len == 8 && (e[i].flags & FI_RECV));
			memcpy(&v, e[i].op_context, 8);
			__atomic_fetch_add(&sum, v, __ATOMIC_RELAXED);
			__atomic_fetch_add(&received, 1, __ATOMIC_RELEASE);
		}
	}
	return NULL;
}

static void *poster(void *arg)
{
	(void)arg;
	for (int i = 0; i < ALL; i++)
		for (ssize_t r; (r = fi_recv(b.ep, buffers[i], 8, NULL, 0, buffers[i])) != 0; sched_yield())
			must(r == -FI_EAGAIN);
	return NULL;
}

static void *driver(void *arg)
{
	struct fi_cq_data_entry e;
	(void)arg;
	while (count(&received) < ALL) {
		must(fi_cq_read(a.cq, &e, 1) == -FI_EAGAIN);
		sched_yield();
	}
	return NULL;
}

static void *forker(void *arg)
{
	(void)arg;
	while (count(&received) < ALL) {
		pid_t p = fork();
		must(p >= 0);
		if (p == 0) {
			// The child has no connection, and disturbs none.
			_exit(fi_inject(a.ep, "x", 1, 0) == -FI_ECONNABORTED && fi_cq_read(a.cq, NULL, 0) == -FI_EAGAIN ? 0 : 1);
		}
		int status;
		must(waitpid(p, &status, 0) == p && status == 0);
		__atomic_fetch_add(&answered, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[2 * THREADS + 3];
	int n = 0;
	side_open(&a);
	side_open(&b);
	pair_connect(&a, &b);
	for (uintptr_t i = 0; i < THREADS; i++) {
		must(pthread_create(&t[n++], NULL, sender, (void *)i) == 0);
		must(pthread_create(&t[n++], NULL, receiver, NULL) == 0);
	}
	must(pthread_create(&t[n++], NULL, poster, NULL) == 0);
	must(pthread_create(&t[n++], NULL, driver, NULL) == 0);
	if (argc > 1 && strcmp(argv[1], "fork") == 0)
		must(pthread_create(&t[n++], NULL, forker, NULL) == 0);
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	must(sum == (uint64_t)ALL * (ALL - 1) / 2);
	must(argc == 1 || answered > 0);
	side_close(&a);
	side_close(&b);
	puts("done");
	return 0;
}

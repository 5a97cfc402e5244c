// A thread forks while others make the handles of connections: the child has each of them whole, or
// not at all.
#include "ends.h"

#include <pthread.h>
#include <sys/wait.h>

enum { THREADS = 3, FORKS = 50, PREPARES = 200 };

static bool stop;

// Makes the handle of a connection again and again, whose life is l.
struct maker {
	pthread_t thread;
	int fd;
	struct ds_life l;
	unsigned made;
};

static void *make(void *p)
{
	struct maker *m = p;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		ds_life_begin(&m->l, CONN_NEW, DS_NONBLOCK_UNKNOWN);
		ds_life_connect(&m->l, false);
		ds_life_connected(&m->l, m->fd);
		if (!m->l.s)
			continue;
		DS_SET(m->made, m->made + 1);
		ds_close(m->l.s, m->fd);
	}
	return NULL;
}

// In the child: open handles of the pool, of which s is one of the first, whose connection does not
// know them.
static int strays(const struct ds_sock *s)
{
	const struct ds_sock *pool = s - s->index;
	int n = 0;

	for (int i = 0; i < 2 + THREADS; i++)
		n += pool[i].open && (!pool[i].life || (ds_life_is(pool[i].life) == CONN_KNOWN && pool[i].life->s != &pool[i]));
	return n;
}

int main(void)
{
	char path[64];
	struct side c, s;
	struct maker m[THREADS] = {0};
	int status;
	pid_t broker = ends_start(path, sizeof path);

	connect_to(&c);
	accept_from(&s);
	CHECK(c.s->index < 2, "%u", c.s->index);
	for (int i = 0; i < THREADS; i++) {
		m[i].fd = c.fd;
		pthread_create(&m[i].thread, NULL, make, &m[i]);
	}
	for (int i = 0; i < THREADS; i++)
		while (!DS_GET(m[i].made))
			usleep(100);
	for (int i = 0; i < FORKS; i++) {
		for (int j = 0; j < PREPARES; j++) { // a fork that fails
			ds_fork_prepare();
			ds_fork_parent(-1);
		}
		ds_fork_prepare();
		pid_t pid = fork();
		if (pid == 0) {
			ds_fork_child();
			_exit(strays(c.s));
		}
		ds_fork_parent(pid);
		CHECK(waitpid(pid, &status, 0) == pid && status == 0, "status %x", status);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		pthread_join(m[i].thread, NULL);
	hang_up(&c);
	hang_up(&s);
	ends_stop(broker, path);
	printf("handles: %d failed\n", failures);
	return failures != 0;
}

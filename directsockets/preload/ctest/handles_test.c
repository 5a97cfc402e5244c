// The handles of connections, and what other threads do while they are made. A fork: the child has
// each of them whole, or not at all. A close: the handle is that of the connection and not of what
// has the number next, from which nothing is received either.
#include "ends.h"

#include <pthread.h>
#include <sys/syscall.h>
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
		ds_life_begin(&m->l, CONN_ON_SOCKET, DS_NONBLOCK_UNKNOWN);
		ds_life_connect(&m->l, false);
		ds_life_connected(&m->l, m->fd);
		if (m->l.s)
			DS_SET(m->made, m->made + 1);
		ds_life_end(&m->l, m->fd);
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
		n += ds_open(&pool[i]) && (!pool[i].life || (ds_life_is(pool[i].life) == CONN_KNOWN && pool[i].life->s != &pool[i]));
	return n;
}

// A connection that is known to the layer above by a descriptor that is there.
static struct moving {
	struct ds_life life;
	int fd;	   // -1: it has none
	int other; // what it has when fd is closed; or -1
	int thief; // what the number is next
} moving = {.fd = -1};

static int open_of(struct ds_life *l, int fd) { return l == &moving.life ? moving.fd : fd; }
static int still(struct ds_sock *s, int fd) { return s->life == &moving.life ? moving.fd : fd; }
static void nothing(struct ds_sock *s) { (void)s; }

// Before the library is told the address of moving.fd, that is closed, and its number another's.
// (Of calls with fewer arguments it passes on more, which the kernel does not look at.)
__attribute__((no_sanitize_address)) static long steals(long n, ...)
{
	va_list ap;
	long a[6];

	va_start(ap, n);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (n == SYS_getsockname && (int)a[0] == moving.fd && moving.thief >= 0) {
		moving.fd = moving.other;
		ds_life_renumbered(&moving.life);
		dup2(moving.thief, (int)a[0]);
		moving.thief = -1;
	}
	return ds_kernel_call(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static uint16_t port_of(int fd)
{
	struct sockaddr_in a;
	socklen_t n = sizeof a;

	CHECK(syscall(SYS_getsockname, fd, &a, &n) == 0, "%s", strerror(errno));
	return ntohs(a.sin_port);
}

static int dial(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0, "%s", strerror(errno));
	return fd;
}

// A descriptor is closed while the handle is made, and has is whether there is another one.
static void renumbered(bool has)
{
	static const struct ds_notices above = {nothing, nothing, still, open_of, NULL, NULL, NULL};
	int fd = dial(), other = has ? dup(fd) : -1, thief = dial();
	uint16_t port = port_of(fd);

	ds_tell(&above);
	moving = (struct moving){.fd = fd, .other = other, .thief = thief};
	ds_life_begin(&moving.life, CONN_ON_SOCKET, DS_NONBLOCK_UNKNOWN);
	ds_life_connect(&moving.life, false);
	ds_life_connected(&moving.life, fd);
	CHECK(moving.thief == -1, "the library has not asked");
	if (has)
		CHECK(moving.life.s && moving.life.s->info.port[0] == port, "port %d, of another than %d",
		      moving.life.s ? moving.life.s->info.port[0] : 0, port);
	else
		CHECK(!moving.life.s && ds_life_is(&moving.life) == CONN_PLAIN, "a handle of another socket, port %d",
		      moving.life.s ? moving.life.s->info.port[0] : 0);
	if (moving.life.s)
		ds_close(moving.life.s, other);
	moving.fd = -1;
	ds_tell(NULL);
	close(fd);
	close(other);
	close(thief);
}

// A client that has offered, whose thread receives, and what it has when its descriptor is closed.
static struct side client;
static int kept;
static bool closed, reused;

static int still_client(struct ds_sock *s, int fd) { return s == client.s && __atomic_load_n(&closed, __ATOMIC_SEQ_CST) ? kept : fd; }

static void *receives(void *got)
{
	char b[8];

	*(ssize_t *)got = get(&client, b, 3, 0);
	return NULL;
}

// Holds the lock of rx until another thread waits for it, and some time more; p: a bool, for that
// it holds the lock.
static void *holds(void *p)
{
	CHECK(ds_rx_take(client.s, false), "the lock of rx");
	__atomic_store_n((bool *)p, true, __ATOMIC_SEQ_CST);
	while (!(DS_GET(client.s->sh->rx_lock.word) & DS_WAITERS))
		usleep(1000);
	for (int i = 0; i < 100 && !DS_GET(reused); i++)
		usleep(1000);
	ds_unlock(&client.s->sh->rx_lock, false);
	return NULL;
}

// A thread that receives has looked at its descriptor after it slept, and does not have the lock of
// rx yet, when another thread closes that, and its number gets to be another socket's.
static void closed_meanwhile(void)
{
	static const struct ds_notices above = {nothing, nothing, still_client, NULL, NULL, NULL, NULL};
	pthread_t receiver, holder;
	ssize_t got = -1;
	bool held = false;
	int thief[2];
	char b[8];

	connect_to(&client);
	int server = accept(listener, NULL, NULL);
	for (int i = 0; i < 1000 && ds_state_of(client.s) != CONN_OFFERED; i++, usleep(1000))
		CHECK(put(&client, "x", 1, 0) == 1, "%s", strerror(errno));
	CHECK(ds_state_of(client.s) == CONN_OFFERED, "state %d", client.s->state);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, thief) == 0 && write(thief[1], "new", 3) == 3, "%s", strerror(errno));
	kept = dup(client.fd);
	ds_tell(&above);
	pthread_create(&receiver, NULL, receives, &got);
	for (bool leads = false; !leads; usleep(20000)) { // then it sleeps
		ds_own_again(&client.s->arming);
		leads = client.s->leading;
		ds_own_unlock(&client.s->arming);
	}
	pthread_create(&holder, NULL, holds, &held);
	while (!__atomic_load_n(&held, __ATOMIC_SEQ_CST))
		usleep(1000);
	__atomic_store_n(&client.s->sh->rx_shut, 1, __ATOMIC_SEQ_CST); // as ds_shutdown does
	shutdown(client.fd, SHUT_RDWR);
	while (!(DS_GET(client.s->sh->rx_lock.word) & DS_WAITERS))
		usleep(1000);
	__atomic_store_n(&closed, true, __ATOMIC_SEQ_CST);
	ds_renumbered(client.s);
	dup2(thief[0], client.fd);
	DS_SET(reused, true);
	pthread_join(holder, NULL);
	pthread_join(receiver, NULL);
	CHECK(got == 0, "%zd bytes", got);
	CHECK(recv(thief[0], b, 3, MSG_DONTWAIT) == 3, "what the next socket of the number had is gone");
	ds_tell(NULL);
	ds_close(client.s, kept);
	close(kept);
	close(client.fd);
	close(server);
	close(thief[0]);
	close(thief[1]);
}

int main(void)
{
	char path[64];
	struct side c, s;
	struct maker m[THREADS] = {0};
	int status;
	pid_t broker = ends_start(path, sizeof path);

	ds_kernel = steals;
	renumbered(true);
	renumbered(false);
	for (int i = 0; i < 4; i++) // what these connections, and what had their numbers, leave behind
		close(accept(listener, NULL, NULL));
	closed_meanwhile();
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

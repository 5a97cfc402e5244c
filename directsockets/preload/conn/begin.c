/* How connections begin: sockets that connect, accept and listen, as the layer above reports them.
 * From there on setup.c has them. */
#include "conn/broker.h"
#include "conn/fds.h"
#include "conn/inner.h"
#include "conn/rules.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <sys/syscall.h>

/* By the settings: may the broker learn of a connection only when that is worth a segment? */
static bool patient(void) { return !ds_config.explain && !ds_config.wait && ds_config.sends && ds_config.bytes; }

bool ds_may_wait(void) { return !ds_broker_due() && patient(); }
bool ds_tests_wait(void) { return ds_config.wait; }

bool ds_may_defer(void)
{
	if (!ds_broker_due())
		return patient();
	if (ds_broker_looked())
		return false;
	int saved = errno;
	bool locked = ds_setup_lock();
	if (locked) {
		if (ds_start())
			ds_setup_broker();
		ds_setup_unlock();
	}
	errno = saved;
	return locked && patient();
}

struct ds_sock *ds_make(int fd, int side, const struct ds_life *l)
{
	struct ds_info info = {0};
	struct ds_sock *s;
	int why;

	if (ds_start())
		ds_setup_broker();
	bool broker = ds_broker_up(side == 1 || !patient()), known = ds_broker_known() || ds_broker_comes();
	if ((!known && !ds_config.explain) || !ds_addresses(fd, side, &info))
		return NULL;
	if (l && ds_life_has_moved(l)) /* the number may have been another socket's */
		return NULL;
	s = ds_handle();
	if (!s)
		return NULL;
	s->side = (uint8_t)side;
	s->info = info;
	s->entry = ds_stats_get(fd, side, &s->info);
	why = rules_decide(side, info.addr[1], info.port[1]);
	if (!why && !known)
		why = DS_WHY_NO_BROKER;
	if (!why && !(s->sh = ds_arena_get()))
		why = DS_WHY_NO_MEMORY;
	if (why) {
		ds_stats_say(s->entry, DS_MODE_TCP, why);
		ds_on(s, CONN_ON_EXCLUDE);
		return s;
	}
	s->bucket = ds_bucket(&s->info);
	ds_on(s, CONN_ON_MAKE);
	ds_stats_say(s->entry, DS_MODE_TCP, !broker ? ds_broker_absent() : side ? DS_WHY_NO_OFFER : DS_WHY_NOT_YET);
	if (side) {
		ds_broker_wait(&info);
		DS_SET(s->waits, true);
	}
	return s;
}

/* For tests (EXNET_DS_WAIT): waits until the connection has a segment, that long at most over all
 * its calls, so that nearly every byte of a suite of short connections is direct. The clock counts,
 * and not the naps: on a busy machine each takes many times what it asks for. Not in a signal
 * handler: the call that it interrupts waits as well, and would wait for all handlers, too. */
void ds_test_wait(struct ds_sock *s, int fd)
{
	struct timespec pause = {0, 50000};
	int64_t now = ds_now(), most = (int64_t)ds_config.wait * 1000000;
	int saved = errno;

	while (!ds_self.level && __atomic_load_n(&s->waited, __ATOMIC_RELAXED) < most) {
		int state = ds_state_of(s);
		int64_t before = now;

		if (state == CONN_UP || state <= CONN_LEFT)
			break;
		ds_tick(s, fd);
		syscall(SYS_nanosleep, &pause, NULL);
		now = ds_now();
		__atomic_fetch_add(&s->waited, now - before, __ATOMIC_RELAXED);
	}
	errno = saved;
}

struct ds_sock *ds_inherited(int fd, int side)
{
	struct ds_sock *s = NULL;
	int saved = errno;

	if (ds_setup_lock()) {
		s = ds_make(fd, side, NULL);
		ds_setup_unlock();
	}
	if (s)
		s->inherited = true;
	errno = saved;
	return s;
}

struct ds_life *ds_life_of(const struct ds_sock *s) { return s->life; }
bool ds_plain(const struct ds_sock *s) { return __atomic_load_n(&s->state, __ATOMIC_RELAXED) <= CONN_LEFT; }

void ds_connect_broker(void)
{
	int saved = errno;

	if (!ds_setup_lock())
		return;
	if (ds_broker_known() || !ds_broker_looked()) {
		if (ds_start())
			ds_setup_broker();
		ds_broker_up(true);
	}
	ds_setup_unlock();
	errno = saved;
}

void ds_tell_broker(void)
{
	int saved = errno;

	if (!ds_setup_lock())
		return;
	bool ours = !ds_stats_made() && ds_start();
	if (ours) {
		ds_setup_broker();
		ds_broker_up(false);
		ds_broker_child();
		ds_stats_child();
	}
	ds_setup_unlock();
	errno = saved;
}

void ds_broker_follow(void)
{
	int saved = errno;

	if (!ds_broker_looked() || !ds_broker_due() || !ds_setup_try())
		return;
	ds_broker_up(false);
	ds_setup_unlock();
	errno = saved;
}

bool ds_listen(int fd)
{
	struct sockaddr_storage a;
	uint8_t addr[16];
	uint16_t port;
	socklen_t n = sizeof a;
	int saved = errno;
	bool ours = false;

	if (!ds_setup_lock())
		return false;
	if (ds_start())
		ds_setup_broker();
	if (kernel_getsockname(fd, (struct sockaddr *)&a, &n) == 0 && ds_address(&a, addr, &port) && ds_is_tcp(fd))
		/* With EXNET_EXPLAIN, what it accepts is in the statistics even if it stays TCP. */
		ours = rules_listen(addr, port) == RULES_DIRECT ? ds_broker_listen(fd, addr, port) : ds_config.explain;
	ds_setup_unlock();
	errno = saved;
	return ours;
}

static bool no_classes; /* the rules are known, and have none */

/* ds_classify, if there may be classes. */
__attribute__((noinline)) static void classify(int fd, int side, const struct sockaddr *server, socklen_t len)
{
	struct sockaddr_storage a = {0};
	uint8_t addr[16];
	uint16_t port;
	socklen_t n = sizeof a;
	int saved = errno;

	if (!ds_setup_lock())
		return;
	if (ds_start())
		ds_setup_broker();
	DS_SET(no_classes, !rules_classes());
	if (!no_classes) {
		bool known = true;

		if (server)
			memcpy(&a, server, len < n ? len : n);
		else
			known = kernel_getsockname(fd, (struct sockaddr *)&a, &n) == 0;
		unsigned class = known && ds_address(&a, addr, &port) ? (unsigned)rules_class(side, addr, port) : 0;
		if (class && ds_is_tcp(fd) && !ds_class(fd, addr))
			ds_class_set(fd, addr, class);
	}
	ds_setup_unlock();
	errno = saved;
}

void ds_classify(int fd, int side, const struct sockaddr *server, socklen_t len)
{
	if (!DS_GET(no_classes))
		classify(fd, side, server, len);
}

void ds_node_changed(struct ds_sock *s, int fd)
{
	int saved = errno;

	if (!ds_setup_lock())
		return;
	if (ds_has_segment(s))
		ds_node_tell(s, fd);
	ds_setup_unlock();
	errno = saved;
}

/* With the lock of setup: fd, an int, no longer listens. */
static void unlisten(void *fd) { ds_broker_unlisten((int)(intptr_t)fd); }

void ds_unlisten(int fd)
{
	int saved = errno;

	ds_setup_do(unlisten, (void *)(intptr_t)fd);
	errno = saved;
}

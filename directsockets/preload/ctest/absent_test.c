// A broker that does not answer, that hangs up, that is gone: connections say so, and become direct
// when it is back, however long that took.
#include "ends.h"

#include "conn/stats.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

enum { LONG = 120 }; // s

// Has this process look for the broker anew.
static void forget(void)
{
	CHECK(ds_setup_lock(), "lock");
	ds_broker_child();
	ds_setup_unlock();
}

// Exchanges bytes until what may be is direct, both ways.
static void becomes_direct(struct side *c, struct side *s)
{
	int64_t end = ds_now() + LONG * 1000000000ll;

	for (int i = 0; ds_now() < end && (ds_direct(c->s) & ds_direct(s->s)) != 3; i++)
		exchange(c, s, i);
	CHECK(ds_direct(c->s) == 3 && ds_direct(s->s) == 3, "%d %d", ds_direct(c->s), ds_direct(s->s));
	hang_up(c);
	hang_up(s);
}

// Both ends of a connection, made now, say why.
static void stays(struct side *c, struct side *s, int why)
{
	connect_to(c);
	accept_from(s);
	for (int i = 0; i < 20; i++)
		exchange(c, s, i);
	CHECK(c->s->entry->reason == why && s->s->entry->reason == why, "reasons %d, %d instead of %d", c->s->entry->reason, s->s->entry->reason, why);
}

static void silent(pid_t broker)
{
	struct side c, s;

	kill(broker, SIGSTOP);
	forget();
	stays(&c, &s, DS_WHY_SILENT);
	kill(broker, SIGCONT);
	becomes_direct(&c, &s);
}

// A broker of the last version, and one of the next: they and this library speak the newest that
// both know.
static void of_a_version(int newest)
{
	struct side c, s;

	__atomic_store_n(broker_newest, newest, __ATOMIC_RELEASE);
	forget();
	connect_to(&c);
	accept_from(&s);
	becomes_direct(&c, &s);
	__atomic_store_n(broker_newest, 0, __ATOMIC_RELEASE);
	forget();
}

static void of_no_common_version(void)
{
	struct side c, s;

	__atomic_store_n(broker_hangs_up, BROKER_OF_NO_VERSION, __ATOMIC_RELEASE);
	forget();
	stays(&c, &s, DS_WHY_VERSION);
	__atomic_store_n(broker_hangs_up, 0, __ATOMIC_RELEASE);
	forget(); // it is not looked for at once
	becomes_direct(&c, &s);
}

// A broker that has no room refuses this program, and hangs up before it has read HELLO.
static void full(void)
{
	struct side c, s;

	__atomic_store_n(broker_hangs_up, BROKER_FULL, __ATOMIC_RELEASE);
	forget();
	stays(&c, &s, DS_WHY_NO_MEMORY);
	__atomic_store_n(broker_hangs_up, 0, __ATOMIC_RELEASE);
	forget();
	becomes_direct(&c, &s);
}

static int (*real_getsockopt)(int, int, int, void *, socklen_t *);

// The library asks who the broker is before it sends HELLO: the broker has hung up by then.
static int ends_first(int fd, int level, int name, void *value, socklen_t *n)
{
	struct pollfd p = {.fd = fd};
	int r = real_getsockopt(fd, level, name, value, n);

	if (level == SOL_SOCKET && name == SO_PEERCRED)
		CHECK(poll(&p, 1, LONG * 1000) == 1 && (p.revents & POLLHUP), "the broker hangs up");
	return r;
}

// A broker hangs up before HELLO is sent: what it has said before is heard.
static void faster_than_hello(int how, int why)
{
	struct side c, s;

	real_getsockopt = ds_real.getsockopt;
	__atomic_store_n(&ds_real.getsockopt, ends_first, __ATOMIC_RELAXED);
	__atomic_store_n(broker_hangs_up, how, __ATOMIC_RELEASE);
	forget();
	stays(&c, &s, why);
	__atomic_store_n(broker_hangs_up, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&ds_real.getsockopt, real_getsockopt, __ATOMIC_RELAXED);
	forget();
	becomes_direct(&c, &s);
}

// The broker ends with an offer, and stays away for longer than the offer of one that is there
// would be repeated.
static void gone(pid_t *broker, const char *path)
{
	struct side c, s;
	uint8_t b[1];

	connect_to(&c);
	accept_from(&s);
	for (int i = 0; i < 2; i++)
		CHECK(put(&c, "x", 1, 0) == 1, "offer");
	CHECK(c.s->state == CONN_OFFERED && c.s->offered[1] >= 0, "state %d", c.s->state);
	broker_stop(*broker, path);
	c.s->tries = 200;
	for (int64_t end = ds_now() + LONG * 1000000000ll; ds_now() < end && c.s->entry->reason != DS_WHY_NO_BROKER; usleep(1000))
		CHECK(put(&c, "x", 1, 0) == 1 && get(&s, b, 1, 0) == 1, "echo");
	CHECK(c.s->entry->reason == DS_WHY_NO_BROKER && c.s->offered[1] >= 0, "reason %d, kept %d", c.s->entry->reason, c.s->offered[1]);
	c.s->tries = 0; // the listener is not there at once
	*broker = broker_start(path);
	for (int i = 0; i < 2; i++)
		CHECK(get(&s, b, 1, 0) == 1, "what was sent first");
	becomes_direct(&c, &s);
}

// The peer's broker cannot be reached, for longer than an offer would be repeated: it refuses the
// offer, and its listeners go out of the page. When they are back, the connection becomes direct.
static void out_of_reach(void)
{
	struct side c, s;
	uint8_t b[1];
	uint16_t port = ntohs(at.sin_port);
	int looks = 0;

	__atomic_store_n(broker_reason, 3, __ATOMIC_RELEASE);
	__atomic_store_n(broker_refuses, 1, __ATOMIC_RELEASE);
	connect_to(&c);
	accept_from(&s);
	for (int64_t end = ds_now() + LONG * 1000000000ll; ds_now() < end && looks < 12; usleep(1000)) {
		uint64_t retry = c.s->retry;

		CHECK(put(&c, "x", 1, 0) == 1 && get(&s, b, 1, 0) == 1, "echo");
		if (c.s->state != CONN_OFFERED || c.s->retry == retry)
			continue;
		looks++;
		broker_listeners(port, 0);
		CHECK(c.s->entry->reason == DS_WHY_UNREACHABLE, "look %d: reason %d", looks, c.s->entry->reason);
		c.s->retry = ds_ticks(); // it need not take as long as it does
	}
	CHECK(looks == 12 && c.s->tries == 0 && c.s->offered[1] >= 0, "%d looks, %d counted, kept %d", looks, c.s->tries, c.s->offered[1]);
	broker_listeners(port, 1);
	becomes_direct(&c, &s);
}

int main(void)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);

	ds_config.welcome = 250; // ms: what is said of one that is silent is said soon
	silent(broker);
	of_a_version(DS_OLDEST);
	of_a_version(DS_NEWEST + 1);
	of_no_common_version();
	full();
	faster_than_hello(BROKER_FULL_AT_ONCE, DS_WHY_NO_MEMORY);
	faster_than_hello(BROKER_ENDS_AT_ONCE, DS_WHY_NO_BROKER);
	gone(&broker, path);
	out_of_reach();
	ends_stop(broker, path);
	printf("absent: %d failed\n", failures);
	return failures != 0;
}

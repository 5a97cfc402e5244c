// The peer promotes, sends, goes back to TCP and sends there, between two looks of one read: at
// each of them. The bytes are read in their order. It is built with DS_READ_HOOK, by which it hears
// of each look at the queue.
#include "ends.h"

#include <sys/ioctl.h>

static struct side c, s;
static int looks_left; // until the peer acts; 0: it has acted

static void act(void)
{
	int there = 0;

	CHECK(put(&s, "first", 5, 0) == 5, "in memory");
	ds_fall_back(s.s, s.fd); // it executes a program, or an operator's switch
	CHECK(send(s.fd, "second", 6, 0) == 6, "by TCP");
	while (ioctl(c.fd, DS_INQ, &there) == 0 && there < 6)
		;
}

void ds_read_hook(const volatile void *p, size_t n);
void ds_read_hook(const volatile void *p, size_t n)
{
	(void)n;
	if (looks_left > 0 && (const volatile uint8_t *)p == (const volatile uint8_t *)c.s->seg.rxq && --looks_left == 0)
		act();
}

// The peer acts at look at; false: a read has fewer.
static bool read_in_order(int at)
{
	char b[64], all[64] = {0};
	size_t n = 0;

	connect_to(&c);
	accept_from(&s);
	while (ds_state_of(c.s) != CONN_UP || ds_state_of(s.s) != CONN_UP) {
		put(&c, "ab", 2, 0);
		get(&s, b, 2, MSG_WAITALL);
		usleep(100);
	}
	looks_left = at;
	for (int i = 0; i < 1000 && n < 11; i++) {
		ssize_t r = get(&c, b, sizeof b, MSG_DONTWAIT);

		if (i == 0 && looks_left) {
			hang_up(&c);
			hang_up(&s);
			looks_left = 0;
			return false;
		}
		CHECK(r > 0 || errno == EAGAIN, "look %d: %s", at, r ? strerror(errno) : "an end");
		if (r > 0 && n + (size_t)r < sizeof all) {
			memcpy(all + n, b, (size_t)r);
			n += (size_t)r;
		}
	}
	CHECK(strcmp(all, "firstsecond") == 0, "look %d: \"%s\"", at, all);
	hang_up(&c);
	hang_up(&s);
	return true;
}

int main(void)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);
	int at = 1;

	while (read_in_order(at))
		at++;
	CHECK(at > 2, "no look is told: it is built without DS_READ_HOOK");
	ends_stop(broker, path);
	printf("order: %d looks, %d failed\n", at - 1, failures);
	return failures != 0;
}

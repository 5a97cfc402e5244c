// Reads of a direct connection whose other end does what few do: it goes back to TCP in the middle
// of a read, or says what it never would.
#include "ends.h"

#include <pthread.h>
#include <signal.h>

static struct side c, s;

static void limit_read(struct side *a, int ms)
{
	struct timeval t = {ms / 1000, ms % 1000 * 1000};

	CHECK(setsockopt(a->fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0, "SO_RCVTIMEO");
}

// Sends 40 bytes once the other end sleeps, or nearly so.
static void *send_later(void *arg)
{
	static const char b[40];

	usleep(50000);
	CHECK(put(&c, b, sizeof b, 0) == sizeof b, "the rest");
	return arg;
}

// SO_RCVLOWAT is 100. Some bytes come in memory, and 40 after the direction has returned to TCP;
// both: the other direction has returned, too. Returns what a read of size bytes gets.
static ssize_t read_across(bool both, size_t some, size_t size, int flags)
{
	char b[200] = {0};
	int low = 100;
	pthread_t t;

	pair_up(&c, &s);
	CHECK(setsockopt(s.fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low) == 0, "SO_RCVLOWAT");
	ds_options_changed(s.s, s.fd);
	limit_read(&s, 60000);
	CHECK(put(&c, b, some, 0) == (ssize_t)some, "the first");
	ds_fall_back(c.s, c.fd);
	if (both)
		ds_fall_back(s.s, s.fd);
	pthread_create(&t, NULL, send_later, NULL);
	int64_t before = ds_now();
	ssize_t r = get(&s, b, size, flags);
	CHECK(ds_now() - before < 50000000000, "it waited for more than there is");
	pthread_join(t, NULL);
	hang_up(&c);
	hang_up(&s);
	return r;
}

// The kernel would wait for 100 bytes, of which 60 came in memory.
static void low_water_mark(bool both)
{
	ssize_t r = read_across(both, 60, 200, 0);

	CHECK(r == 100 || r == 60, "both %d: %zd bytes", both, r);
}

// The read wants all of its 110 bytes: 70 come in memory, and 40 by TCP.
static void wait_all(bool both)
{
	ssize_t r = read_across(both, 70, 110, MSG_WAITALL);

	CHECK(r == 110, "both %d: %zd bytes", both, r);
}

// A peer that says that its end stands, or that it has found ours back, where neither can be: the
// reader sleeps all the same, and its time is over when it is.
static void lies(unsigned flag)
{
	char b[8];

	pair_up(&c, &s);
	limit_read(&c, 50);
	ds_attend(&s.s->seg, &s.s->sh->attention, flag, 0);
	alarm(60); // it would spin for ever
	CHECK(get(&c, b, sizeof b, 0) == -1 && errno == EAGAIN, "flag %#x: %s", flag, strerror(errno));
	alarm(0);
	hang_up(&c);
	hang_up(&s);
}

int main(void)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);

	low_water_mark(true);
	low_water_mark(false);
	wait_all(true);
	wait_all(false);
	lies(DS_STANDS);
	lies(DS_RETURNED);
	ends_stop(broker, path);
	printf("reads: %d failed\n", failures);
	return failures != 0;
}

// What a connection costs that has no segment or is still on the shadow: calls of the kernel.
#include "ends.h"

#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>

static int (*real_ioctl)(int, ds_request, ...);
static int inquiries;

static int count_inquiries(int fd, ds_request request, ...)
{
	va_list ap;

	va_start(ap, request);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	inquiries += request == DS_INQ;
	return real_ioctl(fd, request, arg);
}

// Small reads on a connection that is offered and not taken cost one call of the kernel each; one
// that asks for more than is known to be there gets all there is.
static void small_reads(void)
{
	struct side c;
	uint8_t b[3000];
	int fd, n = 0;

	connect_to(&c);
	fd = accept(listener, NULL, NULL);
	for (int i = 0; i < 40 && c.s->state != CONN_OFFERED; i++)
		CHECK(put(&c, "a", 1, 0) == 1, "%s", strerror(errno));
	CHECK(c.s->state == CONN_OFFERED, "state %d", c.s->state);
	for (size_t i = 0; i < sizeof b; i++)
		b[i] = nth_byte(i);
	CHECK(write(fd, b, 2000) == 2000, "%s", strerror(errno));
	for (int i = 0; n < 2000 && i < 60000; i++, usleep(1000))
		ioctl(c.fd, FIONREAD, &n);
	real_ioctl = ds_real.ioctl;
	ds_real.ioctl = count_inquiries;
	for (size_t i = 0; i < 1990; i++) {
		CHECK(get(&c, b, 1, MSG_PEEK) == 1 && b[0] == nth_byte(i), "byte %zu", i);
		CHECK(get(&c, b, 1, MSG_DONTWAIT) == 1 && b[0] == nth_byte(i), "byte %zu", i);
	}
	ds_real.ioctl = real_ioctl;
	CHECK(inquiries == 1, "%d inquiries", inquiries);
	for (size_t i = 0; i < 1000; i++)
		b[i] = nth_byte(2000 + i);
	CHECK(write(fd, b, 1000) == 1000, "%s", strerror(errno));
	for (int i = 0; n != 1010 && i < 60000; i++, usleep(1000))
		ioctl(c.fd, FIONREAD, &n);
	CHECK(get(&c, b, sizeof b, 0) == 1010, "short");
	for (size_t i = 0; i < 1010; i++)
		CHECK(b[i] == nth_byte(1990 + i), "byte %zu", 1990 + i);
	CHECK(get(&c, b, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "%s", strerror(errno));
	hang_up(&c);
	close(fd);
}

static long (*real_syscall)(long, ...);
static int naps;

// Naps last 5 ms at least, as on a busy machine, and are counted.
static long long_naps(long n, ...)
{
	va_list ap;
	long a[6];

	va_start(ap, n);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (n != SYS_nanosleep)
		return real_syscall(n, a[0], a[1], a[2], a[3], a[4], a[5]);
	naps++;
	return clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 5000000}, NULL);
}

// EXNET_DS_WAIT bounds the time, over all calls, and not the naps.
static void bounded_wait(void)
{
	struct side c;
	int fd;

	connect_to(&c);
	fd = accept(listener, NULL, NULL);
	real_syscall = ds_kernel;
	ds_kernel = long_naps;
	ds_config.wait = 2;
	ds_test_wait(c.s, c.fd);
	CHECK(naps == 1, "%d naps of 5 ms in 2 ms", naps);
	ds_test_wait(c.s, c.fd);
	CHECK(naps == 1, "%d naps after the time was over", naps);
	ds_config.wait = 0;
	ds_kernel = real_syscall;
	hang_up(&c);
	close(fd);
}

// The peer was killed: the kernel has ended the shadow, and the doorbell has not ended yet. By a
// node, the end of the far program's shadow comes before the node says that it has ended.
static void ended_first(bool relayed)
{
	struct side c, s;
	uint8_t b;

	pair_up(&c, &s);
	if (relayed)
		c.s->seg.own->flags |= DS_RELAYED;
	CHECK(put(&c, "last", 1, 0) == 1, "%s", strerror(errno));
	CHECK(syscall(SYS_shutdown, c.fd, SHUT_WR) == 0, "%s", strerror(errno));
	CHECK(get(&s, &b, 1, 0) == 1, "what was sent before: %s", strerror(errno));
	ssize_t r = get(&s, &b, 1, 0);
	CHECK(r == 0, "relayed %d: %zd %s", relayed, r, strerror(errno));
	CHECK(ds_ready(s.s, s.fd, POLLIN).kernel & POLLIN, "relayed %d: the kernel is not asked", relayed);
	CHECK(!relayed || (ds_direct(s.s) & 1), "the other direction has left");
	hang_up(&s);
	hang_up(&c);
}

int main(void)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);

	small_reads();
	bounded_wait();
	ended_first(false);
	ended_first(true);
	ends_stop(broker, path);
	printf("shadow: %d failed\n", failures);
	return failures != 0;
}

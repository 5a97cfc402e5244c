// What a UDP socket that has flows to it finds: in memory, and in the kernel's queue.
#include "flow.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static struct ds_dgram d;

// A receiver's end of f, which ds_dg_in_sweep can free.
static struct ds_dg_in *receiver(struct flow *f)
{
	struct ds_dg_in *in = mmap(NULL, sizeof *in, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	fresh(f, RING);
	f->rx.in->flags = DS_DG_TAKES_AFTER;
	f->tx.base = 1;
	in->seg = f->rx;
	in->seg.mem = NULL; // the test's
	in->alive = -1;
	in->counters = ds_stats_counters(NULL);
	return in;
}

// Sends the number v, after so many datagrams by the kernel.
static int say(struct flow *f, uint64_t kernel, uint32_t v)
{
	struct iovec vec;
	struct ds_cursor c = cursor_of(&vec, &v, sizeof v);
	struct ds_dg_meta m = {.kernel = kernel, .lost = 1, .len = sizeof v, .after = true};

	return ds_dg_send(&f->tx, &m, &c);
}

static ssize_t hear(int fd, uint32_t *v, int flags)
{
	struct iovec vec = {v, sizeof *v};
	struct msghdr m = {.msg_iov = &vec, .msg_iovlen = 1};

	return ds_dg_recvmsg(&d, fd, &m, flags);
}

// A record waits for a bell, which the kernel has. Another thread is counted as asleep, and takes
// nothing: it has just been woken, or was left by a jump. A receive takes the bell, and the next
// one the record; one that does not wait does so, too, and finds nothing while the kernel has
// nothing.
static void nobody_else(bool nonblocking)
{
	struct sockaddr_in at, from;
	struct flow f;
	struct ds_dg_in *in = receiver(&f);
	int s = udp_socket(&from), fd = udp_socket(&at);
	uint32_t v = 0;

	ds_dg_arm(&f.rx, DS_DG_BELL);
	in->state = DG_IN_ARMED;
	CHECK(ds_address((void *)&from, in->seg.info.addr[0], &in->seg.info.port[0]), "address");
	d = (struct ds_dgram){.family = AF_INET, .nonblock = nonblocking ? DS_NONBLOCK_YES : DS_NONBLOCK_NO, .nin = 1, .flows = {in}, .looked = ds_ticks(), .swept = ds_ticks(), .sleepers = 1};
	CHECK(say(&f, 1, 7) == DS_DG_ARMED && say(&f, 2, 8) == DS_DG_SENT, "no bell");
	if (nonblocking)
		CHECK(hear(fd, &v, 0) == -1 && errno == EAGAIN && d.sleepers == 1, "it has something, or %d sleepers", d.sleepers);
	CHECK(sendto(s, &(uint32_t){7}, sizeof v, 0, (void *)&at, sizeof at) == sizeof v, "send");
	CHECK(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 60000) == 1, "it does not come");
	alarm(60); // a receive that waits for ever
	CHECK(hear(fd, &v, 0) == sizeof v && v == 7, "the bell: %u", v);
	CHECK(d.sleepers == 1, "%d sleepers", d.sleepers);
	CHECK(hear(fd, &v, 0) == sizeof v && v == 8, "the record: %u", v);
	alarm(0);
	close(s);
	close(fd);
	free(f.mem);
	munmap(in, sizeof *in);
}

// A flow is over, and another one begins: what comes by that one is an arrival, even if it is as
// much as the first had. forgotten: this is the child of a fork, in which the first is no more.
static void arrivals(bool forgotten)
{
	struct ds_dgram *p = ds_dg_new(AF_INET, DS_NONBLOCK_YES);
	struct flow a, b;
	struct ds_dg_in *old = receiver(&a), *new = receiver(&b);
	uint8_t c;

	new->seg.info.port[0]++;
	CHECK(ds_dg_add(p, old), "it is not added");
	CHECK(ds_dg_arrivals(p) == 0, "%d arrivals", (int)ds_dg_arrivals(p));
	ds_dg_arm(&old->seg, DS_DG_AWAKE);
	CHECK(give(&a, "x", 1) == DS_DG_SENT, "give");
	uint64_t seen = ds_dg_arrivals(p);
	CHECK(seen > 0, "nothing has come");
	a.rx = old->seg;
	CHECK(take(&a, &c) == 1, "take");
	old->seg = a.rx;
	if (forgotten) {
		ds_dg_forked_unprepared(true);
	} else {
		ds_dg_in_close(p, old, 0);
		ds_dg_in_sweep(p);
	}
	CHECK(p->nin == 0 && ds_dg_arrivals(p) == seen, "%u flows, %d arrivals, before %d", p->nin, (int)ds_dg_arrivals(p), (int)seen);
	CHECK(ds_dg_add(p, new), "it is not added");
	ds_dg_arm(&new->seg, DS_DG_AWAKE);
	CHECK(give(&b, "y", 1) == DS_DG_SENT, "give");
	CHECK(ds_dg_arrivals(p) > seen, "%d arrivals, before %d", (int)ds_dg_arrivals(p), (int)seen);
	ds_dg_put(p);
	free(a.mem);
	free(b.mem);
}

// What the kernel brings is counted for a flow that goes on, and for none that has ended.
static void whose(void)
{
	struct flow a, b;
	struct ds_dg_in *old = receiver(&a), *new = receiver(&b);
	const struct ds_info *i = &new->seg.info;

	d = (struct ds_dgram){.family = AF_INET};
	CHECK(ds_dg_add(&d, old) && ds_dg_from(&d, i->addr[0], i->port[0]) == old, "it is not there");
	ds_dg_in_on(&d, old, DG_ON_DROP);
	CHECK(!ds_dg_from(&d, i->addr[0], i->port[0]), "one that has ended is there");
	d.flows[d.nin++] = new;
	CHECK(ds_dg_from(&d, i->addr[0], i->port[0]) == new, "the new one is not there");
	free(a.mem);
	free(b.mem);
	munmap(old, sizeof *old);
	munmap(new, sizeof *new);
}

#ifndef DS_MSAN
static typeof(ds_kernel) kernel;
static int looks;

// The kernel, which a signal interrupts in its first ppoll.
static long interrupts(long nr, ...)
{
	long a[6];
	va_list l;

	va_start(l, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(l, long);
	va_end(l);
	if (nr != SYS_ppoll || looks++)
		return kernel(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	errno = EINTR;
	return -1;
}

// A signal interrupts a look at the kernel's queue, which is empty: what a record waits for is not
// there.
static void interrupted(void)
{
	struct sockaddr_in at;
	struct flow f;
	struct ds_dg_in *in = receiver(&f);
	int fd = udp_socket(&at);

	in->state = DG_IN_RUNG;
	d = (struct ds_dgram){.family = AF_INET, .nin = 1, .nlisted = 1, .flows = {in}, .list = {in}, .credit = ds_dg_ticks(50000), .credited = ds_ticks()};
	CHECK(say(&f, 2, 1) == DS_DG_SENT && ds_dg_early(&in->seg), "it is not early");
	kernel = ds_kernel;
	ds_kernel = interrupts;
	CHECK(ds_dg_await_kernel(&d, fd), "an interrupted look finds something");
	ds_kernel = kernel;
	CHECK(looks == 2, "%d looks", looks);
	close(fd);
	free(f.mem);
	munmap(in, sizeof *in);
}
#endif

int main(void)
{
	nobody_else(false);
	nobody_else(true);
	arrivals(false);
	whose();
#ifndef DS_MSAN // where ds_kernel is not asked
	interrupted();
#endif
	arrivals(true); // from now on other processes may have all sockets
	CHECK(ds_dg_missteps == 0, "%u steps that no table has", ds_dg_missteps);
	if (failures)
		return 1;
	printf("ok\n");
	return 0;
}

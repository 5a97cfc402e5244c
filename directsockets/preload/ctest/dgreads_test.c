// What a UDP socket that has flows to it finds: in memory, and in the kernel's queue.
#include "reads.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

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

// ---- what the program was shown

static void by_flow(struct shown *s) { CHECK(give(&s->f, "flow", 4) == DS_DG_SENT, "give"); }

// How long the next datagram is: by MSG_PEEK, or by FIONREAD.
static int size(struct shown *s, bool peeks)
{
	uint32_t v;
	int n;

	if (peeks)
		return (int)hear(s->fd, &v, MSG_PEEK);
	n = ds_dg_next_size(&d, s->fd);
	if (n < 0)
		CHECK(ioctl(s->fd, FIONREAD, &n) == 0, "FIONREAD");
	return n;
}

// The next receive gives what the program was shown, whatever has come in between, and whose turn
// it is: unless somebody else has it.
static void shown(bool peeks)
{
	struct shown s;
	uint32_t v;
	int kernels = 0, n;

	shown_begin(&s);
	by_kernel(&s);
	CHECK(size(&s, peeks) == 1, "it is not shown");
	by_flow(&s);
	CHECK(size(&s, peeks) == 1 && size(&s, !peeks) == 1, "another one is shown");
	CHECK(hear(s.fd, &v, 0) == 1 && hear(s.fd, &v, 0) == 4, "the receive gives another one");
	by_kernel(&s);
	CHECK(size(&s, peeks) == 1, "it is not shown");
	by_flow(&s);
	CHECK(recv(s.fd, &v, sizeof v, 0) == 1, "recv"); // another process
	CHECK(size(&s, peeks) == 4 && hear(s.fd, &v, 0) == 4, "nobody has what was shown, and it is waited for");
	by_kernel(&s);
	for (int i = 0; i < 2 * DS_DG_TURN; i++)
		by_flow(&s);
	for (int i = 0; i < 2 * DS_DG_TURN; i++) {
		n = size(&s, peeks);
		kernels += n == 1;
		CHECK(n > 0 && hear(s.fd, &v, 0) == n, "datagram %d: shown %d, and another one comes", i, n);
	}
	CHECK(kernels == 1, "the kernel has had %d turns", kernels);
	CHECK(size(&s, peeks) == 4 && hear(s.fd, &v, 0) == 4 && hear(s.fd, &v, 0) == -1, "the last one");
	shown_end(&s);
}

// The flow that has what was shown goes on to be the next one when another has an earlier one, and
// when it is closed: and once it is over nothing of it is left.
static void shown_flow(void)
{
	struct shown s;
	struct flow f;
	struct ds_dg_in *in = receiver(&f);
	uint32_t v;

	shown_begin(&s);
	in->state = DG_IN_MEMORY;
	by_flow(&s);
	CHECK(size(&s, true) == 4 && d.shown == DG_SHOWN_MEMORY && d.shown_in == s.in, "it is not shown");
	d.flows[d.nin++] = d.list[d.nlisted++] = in;
	d.awake++;
	ds_dg_arm(&f.rx, DS_DG_AWAKE);
	in->seg.lap[1] = s.in->seg.lap[1] - 1000;
	CHECK(give(&f, "earlier", 3) == DS_DG_SENT && ds_dg_pick(&d) == in, "it is not earlier");
	ds_dg_in_close(&d, s.in, 0);
	CHECK(hear(s.fd, &v, 0) == 4 && d.shown == DG_SHOWN_NOTHING, "the receive gives another one");
	CHECK(size(&s, false) == 3 && d.shown_in == in, "it is not shown");
	ds_dg_in_on(&d, in, DG_ON_DROP);
	CHECK(d.shown == DG_SHOWN_NOTHING && !d.shown_in, "one that is over is shown");
	shown_end(&s);
	free(f.mem);
	munmap(in, sizeof *in);
}

// ---- receives that wait

static sigjmp_buf back;

static void jump(int sig)
{
	(void)sig;
	ds_jump(NULL);
	siglongjmp(back, 1);
}

static int counts(void) { return __atomic_load_n(&d.sleepers, __ATOMIC_SEQ_CST) + __atomic_load_n(&d.uncounted, __ATOMIC_SEQ_CST); }

static void *signals(void *thread)
{
	while (counts() < 2)
		sched_yield();
	pthread_kill(*(pthread_t *)thread, SIGUSR1);
	return NULL;
}

static void *waits(void *fd)
{
	uint32_t v;

	hear(*(int *)fd, &v, 0);
	return NULL;
}

// A jump, or a cancellation, leaves a receive that waits: it is not counted any more. Its caller's
// reference is dropped by the jump, and else by the caller's own cleanup.
static void left(bool jumps)
{
	struct shown s;
	pthread_t t, me = pthread_self();
	uint32_t v;

	shown_begin(&s);
	d.nonblock = DS_NONBLOCK_NO;
	d.users = 2;
	if (jumps) {
		signal(SIGUSR1, jump);
		CHECK(pthread_create(&t, NULL, signals, &me) == 0, "thread");
		if (!sigsetjmp(back, 1)) {
			hear(s.fd, &v, 0);
			CHECK(false, "the receive returns");
		}
	} else {
		CHECK(pthread_create(&t, NULL, waits, &s.fd) == 0, "thread");
		while (counts() < 2)
			sched_yield();
		pthread_cancel(t);
	}
	pthread_join(t, NULL);
	CHECK(d.sleepers == 0 && d.uncounted == 0 && d.users == (jumps ? 1 : 2), "%d sleepers, %d uncounted, %d users", d.sleepers, d.uncounted, d.users);
	shown_end(&s);
}

// Two threads are about to sleep for a record that waits for a datagram which the kernel has:
// neither takes the other for the one who asks the kernel.
static void both(void)
{
	struct shown s;

	shown_begin(&s);
	s.in->state = DG_IN_RUNG;
	d.awake = 0;
	CHECK(say(&s.f, 2, 8) == DS_DG_SENT, "no record");
	by_kernel(&s);
	alarm(60); // a thread that waits for ever
	for (d.sleepers = 1; d.sleepers <= 2; d.sleepers++)
		CHECK(ds_dg_early(&s.in->seg) && !ds_dg_sleep(&d, s.fd), "one of %d sleeps", d.sleepers);
	alarm(0);
	shown_end(&s);
}

// ---- what others do meanwhile

#ifndef DS_MSAN
static typeof(ds_kernel) kernel;

static struct shown hostile;

// The kernel. When it is asked what is first, the sender changes its record, and another thread
// takes what the kernel has.
static long hostile_kernel(long nr, ...)
{
	long a[6], rc;
	uint32_t v;
	va_list l;

	va_start(l, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(l, long);
	va_end(l);
	rc = kernel(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (nr == SYS_recvmsg && rc >= 0) {
		memset(hostile.f.rx.ring, 0, sizeof v);
		CHECK(recv(hostile.fd, &v, sizeof v, 0) == 1, "recv");
	}
	return rc;
}

// A flow is over while the kernel has its turn: nothing of it is used after that.
static void over(void)
{
	uint32_t v;

	shown_begin(&hostile);
	by_flow(&hostile);
	by_kernel(&hostile);
	ds_dg_in_close(&d, hostile.in, 0);
	d.streak = DS_DG_TURN;
	d.looked = d.swept = 0;
	d.turn = 1; // no look at the senders before that
	kernel = ds_kernel;
	ds_kernel = hostile_kernel;
	CHECK(hear(hostile.fd, &v, MSG_DONTWAIT) == -1 && errno == EAGAIN && d.nin == 0, "%u flows", d.nin);
	ds_kernel = kernel;
	close(hostile.fd);
	close(hostile.other);
	free(hostile.f.mem);
}

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
	shown(true);
	shown(false);
	shown_flow();
	left(true);
#ifdef __GLIBC__ // musl's cancellation unwinds nothing
	left(false);
#endif
	both();
#ifndef DS_MSAN // where ds_kernel is not asked
	over();
	interrupted();
#endif
	arrivals(true); // from now on other processes may have all sockets
	CHECK(ds_dg_missteps == 0, "%u steps that no table has", ds_dg_missteps);
	if (failures)
		return 1;
	printf("ok\n");
	return 0;
}

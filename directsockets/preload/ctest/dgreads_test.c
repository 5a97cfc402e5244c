// What a UDP socket that has flows to it finds: in memory, and in the kernel's queue.
#include "flow.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
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

// ---- what the program was shown

// A socket with a flow that is awake, and a sender whose datagrams come by the kernel.
struct shown {
	struct flow f;
	struct ds_dg_in *in;
	struct sockaddr_in at;
	int fd, other;
};

static void shown_begin(struct shown *s)
{
	struct sockaddr_in from;

	s->in = receiver(&s->f);
	s->in->state = DG_IN_MEMORY;
	s->fd = udp_socket(&s->at);
	s->other = udp_socket(&from);
	d = (struct ds_dgram){.family = AF_INET, .nonblock = DS_NONBLOCK_YES, .nin = 1, .nlisted = 1, .awake = 1, .flows = {s->in}, .list = {s->in}, .looked = ds_ticks(), .swept = ds_ticks()};
	ds_dg_arm(&s->f.rx, DS_DG_AWAKE);
}

static void shown_end(struct shown *s)
{
	close(s->fd);
	close(s->other);
	free(s->f.mem);
	munmap(s->in, sizeof *s->in);
}

// The kernel's datagrams have one byte, those of the flow have four.
static void by_kernel(struct shown *s)
{
	CHECK(sendto(s->other, "k", 1, 0, (void *)&s->at, sizeof s->at) == 1, "send");
	CHECK(poll(&(struct pollfd){s->fd, POLLIN, 0}, 1, 60000) == 1, "it does not come");
}

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

// ---- bells of other threads

#ifndef DS_MSAN
static typeof(ds_kernel) kernel;

// A thread sleeps, and its bell and a record come. It is slow to wake.
static struct {
	struct shown s;
	int naps;  // of the one that receives, meanwhile
	int taken; // by that one, while the other slept
	bool arms; // it begins to sleep only when the other one spins
	bool late; // the kernel has the bell only when it was asked whether it has one
} slow;

static void slow_sleeps(void)
{
	if (slow.s.in->state == DG_IN_MEMORY)
		ds_dg_in_on(&d, slow.s.in, DG_ON_ARM);
	ds_dg_in_on(&d, slow.s.in, DG_ON_EMPTY);
	ds_dg_arm(&slow.s.f.rx, DS_DG_BELL);
	d.sleepers++;
	CHECK(say(&slow.s.f, 1, 7) == DS_DG_ARMED && say(&slow.s.f, 2, 8) == DS_DG_SENT, "no bell");
	if (!slow.late)
		by_kernel(&slow.s);
}

static long slow_kernel(long nr, ...)
{
	long a[6], rc;
	va_list l;

	va_start(l, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(l, long);
	va_end(l);
	if (nr == SYS_nanosleep && ++slow.naps == 3)
		d.sleepers--;
	rc = kernel(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (nr == SYS_recvmsg && rc > 0)
		slow.taken += d.sleepers > 0;
	if (slow.late && nr == SYS_ppoll && rc == 0) {
		slow.late = false;
		by_kernel(&slow.s);
		errno = 0;
	}
	if (slow.arms && ((nr == SYS_recvmsg && rc < 0) || nr == SYS_sched_yield)) {
		int saved = errno;
		slow.arms = false;
		slow_sleeps();
		errno = saved;
	}
	return rc;
}

// Another thread receives meanwhile: it does not take what wakes the one that sleeps, which would
// sleep on. spins: it was looking already.
static void not_from_under(bool nonblocking, bool spins)
{
	struct sockaddr_in from;
	socklen_t n = sizeof from;
	uint32_t v;

	slow.naps = slow.taken = 0;
	slow.arms = spins;
	shown_begin(&slow.s);
	CHECK(getsockname(slow.s.other, (void *)&from, &n) == 0 && ds_address((void *)&from, slow.s.in->seg.info.addr[0], &slow.s.in->seg.info.port[0]), "address");
	d.nonblock = nonblocking ? DS_NONBLOCK_YES : DS_NONBLOCK_NO;
	if (!spins)
		slow_sleeps();
	kernel = ds_kernel;
	ds_kernel = slow_kernel;
	alarm(60); // a receive that waits for ever
	CHECK(hear(slow.s.fd, &v, 0) == 1, "the bell");
	CHECK(slow.naps == 3 && slow.taken == 0 && d.sleepers == 0, "%d naps, %d taken, %d sleepers", slow.naps, slow.taken, d.sleepers);
	CHECK(hear(slow.s.fd, &v, 0) == sizeof v && v == 8, "the record: %u", v);
	CHECK(d.no_bells, "it may come to that again");
	alarm(0);
	ds_kernel = kernel;
	shown_end(&slow.s);
}

// Another thread, which has the lock when the kernel gives a datagram to a receive.
static struct {
	typeof(ds_real.recvmsg) recvmsg;
	pthread_t self;
	bool holds;
	unsigned waiting; // how many wait, as it finds
} other;

static void *holds(void *p)
{
	ds_own_lock(&d.in);
	__atomic_store_n(&other.holds, true, __ATOMIC_RELEASE);
	while (!(__atomic_load_n(&d.in.word, __ATOMIC_RELAXED) & DS_WAITERS))
		sched_yield();
	other.waiting = ds_dg_waiting(&d);
	ds_own_unlock(&d.in);
	return p;
}

static ssize_t given(int fd, struct msghdr *h, int flags)
{
	ssize_t rc = other.recvmsg(fd, h, flags);

	CHECK(rc == 1 && pthread_create(&other.self, NULL, holds, NULL) == 0, "no bell");
	while (!__atomic_load_n(&other.holds, __ATOMIC_ACQUIRE))
		sched_yield();
	return rc;
}

// A receive that does not wait has the bell, and has not counted it. Who begins to wait meanwhile
// finds that it is not alone, and does not sleep over the record that follows.
static void not_counted(void)
{
	struct sockaddr_in from;
	socklen_t n = sizeof from;
	uint32_t v;

	shown_begin(&slow.s);
	CHECK(getsockname(slow.s.other, (void *)&from, &n) == 0 && ds_address((void *)&from, slow.s.in->seg.info.addr[0], &slow.s.in->seg.info.port[0]), "address");
	d.nonblock = DS_NONBLOCK_YES;
	slow_sleeps();
	d.sleepers--;
	other.recvmsg = ds_real.recvmsg;
	__atomic_store_n(&ds_real.recvmsg, given, __ATOMIC_RELAXED);
	CHECK(hear(slow.s.fd, &v, 0) == 1, "the bell");
	__atomic_store_n(&ds_real.recvmsg, other.recvmsg, __ATOMIC_RELAXED);
	pthread_join(other.self, NULL);
	CHECK(other.waiting == 1 && d.sleepers == 0, "%u wait, %d sleepers", other.waiting, d.sleepers);
	CHECK(hear(slow.s.fd, &v, 0) == sizeof v && v == 8, "the record: %u", v);
	shown_end(&slow.s);
}

// A thread that has not spun in vain yet.
static void *spins(void *p)
{
	not_from_under(false, true);
	return p;
}

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

static int told;

static void due(struct ds_dgram *of) { told += of == &d; }

// A thread sleeps in a set. Another one takes what a record waits for: the first is told. It is not
// told of a record that another one takes.
static void tells_sets(void)
{
	static const struct ds_notices above = {.due = due};
	uint32_t asleep = 1, v;
	struct sockaddr_in from;
	socklen_t n = sizeof from;
	struct shown s;

	ds_tell(&above);
	shown_begin(&s);
	CHECK(getsockname(s.other, (void *)&from, &n) == 0 && ds_address((void *)&from, s.in->seg.info.addr[0], &s.in->seg.info.port[0]), "address");
	d.sets[0].asleep = &asleep;
	ds_dg_arm_waiting(&d);
	CHECK(say(&s.f, 1, 7) == DS_DG_ARMED && say(&s.f, 2, 8) == DS_DG_SENT, "no bell");
	by_kernel(&s);
	CHECK(hear(s.fd, &v, 0) == 1 && told == 1, "told %d times of the record", told);
	CHECK(hear(s.fd, &v, 0) == sizeof v && v == 8 && told == 1, "told %d times", told);
	CHECK(say(&s.f, 2, 7) == DS_DG_ARMED, "not armed");
	by_kernel(&s);
	CHECK(hear(s.fd, &v, 0) == 1 && told == 1, "told %d times, and nothing is in memory", told);
	ds_tell(NULL);
	shown_end(&s);
}

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
	tells_sets();
#ifndef DS_MSAN // where ds_kernel is not asked
	not_from_under(false, false);
	not_from_under(true, false);
	slow.late = true;
	not_from_under(true, false);
	not_counted();
	pthread_t t;
	CHECK(pthread_create(&t, NULL, spins, NULL) == 0 && pthread_join(t, NULL) == 0, "thread");
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

// Threads that sleep for a UDP socket which has flows to it: another one leaves them what wakes
// them, and what follows that is found.
#include "reads.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/syscall.h>

// As shown_begin, and the sender of the flow is the one whose datagrams come by the kernel.
static void address_of(struct shown *s)
{
	struct sockaddr_in from;
	socklen_t n = sizeof from;

	shown_begin(s);
	CHECK(getsockname(s->other, (void *)&from, &n) == 0 && ds_address((void *)&from, s->in->seg.info.addr[0], &s->in->seg.info.port[0]), "address");
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
// sleep on. spins: it was looking already. asks: first it asks how long the next datagram is.
static void not_from_under(bool nonblocking, bool spins, bool asks)
{
	uint32_t v;

	slow.naps = slow.taken = 0;
	slow.arms = spins;
	address_of(&slow.s);
	d.nonblock = nonblocking ? DS_NONBLOCK_YES : DS_NONBLOCK_NO;
	if (!spins)
		slow_sleeps();
	if (asks)
		CHECK(ds_dg_next_size(&d, slow.s.fd) == -1, "it is not the kernel's");
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

// The one that sleeps never takes its bell. The others leave it there for a while, once in the life
// of the socket.
static void never_wakes(void)
{
	uint32_t v;

	address_of(&slow.s);
	d.nonblock = DS_NONBLOCK_YES;
	slow_sleeps();
	kernel = ds_kernel;
	ds_kernel = slow_kernel;
	alarm(60); // a receive that waits for ever
	for (int i = 0; i < 3; i++) {
		slow.naps = 3; // so it sleeps on
		CHECK(hear(slow.s.fd, &v, i < 2 ? MSG_PEEK : 0) == 1, "the bell");
		CHECK((slow.naps > 3) == (i == 0), "call %d: %d naps", i, slow.naps - 3);
	}
	CHECK(d.sleepers == 1 && hear(slow.s.fd, &v, 0) == sizeof v && v == 8, "the record: %u", v);
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
	uint32_t v;

	address_of(&slow.s);
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
	not_from_under(false, true, false);
	return p;
}
#endif

// ---- sets, and those who are about to sleep

static int told;

static void due(struct ds_dgram *of) { told += of == &d; }

// A thread sleeps in a set. Another one takes what a record waits for: the first is told. It is not
// told of a record that another one takes.
static void tells_sets(void)
{
	static const struct ds_notices above = {.due = due};
	uint32_t asleep = 1, v;
	struct shown s;

	ds_tell(&above);
	address_of(&s);
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

// A thread slept in a set, and what woke it is received: the set looks at the socket for the record
// that follows, even if the sender has closed its socket before that is counted.
static void queues(bool closes)
{
	struct ds_dg_set *live = NULL;
	uint32_t asleep = 1, v;
	struct shown s;

	address_of(&s);
	struct ds_info *i = &s.in->seg.info;
	CHECK(ds_address((void *)&s.at, i->addr[1], &i->port[1]) && ds_dg_reached(i->addr[1], i->port[1], i->addr[0], i->port[0], &s.in->cookie), "the kernel knows no sender");
	s.in->used = true;
	d.looked = 0;
	d.sets[0] = (struct ds_dg_set){.asleep = &asleep, .live = &live, .of = &d};
	ds_dg_arm_waiting(&d);
	CHECK(d.nlisted == 0 && !d.sets[0].queued, "%u flows are listed", d.nlisted);
	CHECK(say(&s.f, 1, 7) == DS_DG_ARMED && say(&s.f, 2, 8) == DS_DG_SENT, "no bell");
	by_kernel(&s);
	if (closes) {
		close(s.other);
		s.other = -1;
	}
	asleep = 0;
	CHECK(hear(s.fd, &v, MSG_DONTWAIT) == 1, "the bell");
	CHECK(s.in->state == (closes ? DG_IN_DRAINING : DG_IN_MEMORY) && ds_dg_ready(&d), "state %d", s.in->state);
	CHECK(d.sets[0].queued && live == &d.sets[0], "no set looks at the record");
	shown_end(&s);
}

// A count of those who sleep, in a page that cannot be read: the first look at it is seen.
static struct {
	uint32_t *asleep;
	uint32_t finds; // that many asleep
	int looks;
	unsigned listed;
} page;

static void first_look(int sig)
{
	(void)sig;
	if (page.looks++)
		abort();
	page.listed = d.nlisted;
	mprotect(page.asleep, 4096, PROT_READ | PROT_WRITE);
	*page.asleep = page.finds;
}

// A flow is listed before it is asked who sleeps, so that who is counted after that waits for the
// lock; and it stays listed unless somebody sleeps.
static void listed_first(uint32_t sleep)
{
	struct shown s;

	shown_begin(&s);
	ds_dg_arm_all(&d);
	CHECK(s.in->state == DG_IN_ARMED && d.nlisted == 0, "state %d, %u listed", s.in->state, d.nlisted);
	page.asleep = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	page.finds = sleep;
	page.looks = 0;
	d.sets[0].asleep = page.asleep;
	signal(SIGSEGV, first_look);
	signal(SIGBUS, first_look);
	ds_dg_took(&d, s.in, 1);
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	CHECK(page.looks == 1 && page.listed == 1, "%d looks, %u flows listed", page.looks, page.listed);
	CHECK(s.in->state == (sleep ? DG_IN_ARMED : DG_IN_MEMORY) && d.nlisted == !sleep, "state %d, %u listed", s.in->state, d.nlisted);
	d.sets[0].asleep = NULL;
	munmap(page.asleep, 4096);
	shown_end(&s);
}

int main(void)
{
	tells_sets();
	queues(false);
	queues(true);
	listed_first(0);
	listed_first(1);
#ifndef DS_MSAN // where ds_kernel is not asked
	not_from_under(false, false, false);
	not_from_under(true, false, false);
	not_from_under(false, false, true);
	slow.late = true;
	not_from_under(true, false, false);
	not_counted();
	never_wakes();
	pthread_t t;
	CHECK(pthread_create(&t, NULL, spins, NULL) == 0 && pthread_join(t, NULL) == 0, "thread");
#endif
	CHECK(ds_dg_missteps == 0, "%u steps that no table has", ds_dg_missteps);
	if (failures)
		return 1;
	printf("ok\n");
	return 0;
}

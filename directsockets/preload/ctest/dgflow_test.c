// Flows of two threads: no datagram is lost or overtaken, whenever one looks at the other.
#include "flow.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

static int enough;

// A receiver that takes one now and then.
static void *slow(void *arg)
{
	uint8_t b[64];

	while (!__atomic_load_n(&enough, __ATOMIC_ACQUIRE)) {
		usleep(10000);
		take(arg, b);
	}
	return NULL;
}

// A sender that has time to spare waits for a receiver that is awake; one that has none drops.
static void spares(void)
{
	uint8_t b[40] = {0};
	struct flow f;
	pthread_t th;
	struct ds_dg_out o = {.state = DG_OUT_UP};

	fresh(&f, DS_DG_MAX_RING);
	while (give(&f, b, sizeof b) == DS_DG_SENT)
		;
	o.seg = f.tx;
	CHECK(!ds_dg_room(&o) && !ds_dg_room(&o), "nobody has taken anything");
	CHECK(o.state == DG_OUT_STALLED, "state %d", o.state);
	pthread_create(&th, NULL, slow, &f);
	// On a busy machine the receiver may take nothing for as long as this one waits.
	bool room = false;
	for (int i = 0; i < 600 && !room; i++) {
		o.state = DG_OUT_UP;
		o.spare = ds_dg_ticks(100000000);
		room = ds_dg_room(&o) && o.spare > 0 && o.spare < ds_dg_ticks(100000000);
	}
	CHECK(room, "it had time to wait, and used some of it");
	__atomic_store_n(&enough, 1, __ATOMIC_RELEASE);
	pthread_join(th, NULL);
	free(f.mem);
}

// How long it may wait is what it has saved; at once less if its socket sends to others, too, or
// the call shall not block.
static void may_spare(void)
{
	struct ds_dg_out o = {.spare = ds_dg_ticks(1000)};

	CHECK(ds_dg_spare(&o) == ds_dg_ticks(1000), "what it has saved");
	o.spare = ds_dg_ticks(10000000);
	uint64_t others = ds_dg_spare(&o);
	o.alone = true;
	uint64_t alone = ds_dg_spare(&o);
	o.brief = true;
	uint64_t brief = ds_dg_spare(&o);
	CHECK(brief < others && others < alone && alone < o.spare, "brief %llu, others %llu, alone %llu", (unsigned long long)brief,
	      (unsigned long long)others, (unsigned long long)alone);
}

static void *late(void *arg)
{
	usleep(50000); // which is longer than it waits without time to spare
	__atomic_store_n(&((struct flow *)arg)->rx.in->taken, 100, __ATOMIC_RELEASE);
	return NULL;
}

// caught_up has a sender wait for a receiver that sleeps. It returns whether that has taken all
// within the time which the sender had to spare.
static bool caught_up(void)
{
	static struct ds_dgram d;
	struct flow f;
	pthread_t th;
	struct ds_dg_out o = {.state = DG_OUT_UP, .alive = -1};
	struct ds_dg_dest dest = {.flow = &o, .by_kernel = 100};

	fresh(&f, RING);
	ds_dg_arm(&f.rx, true);
	o.seg = f.tx;
	struct sockaddr_in from, to;
	int a = udp_socket(&from), b = udp_socket(&to);
	flow_ends(&o, &from, &to);
	o.spare = ds_dg_ticks(100000000);
	o.alone = true;
	f.rx.in->taken = 1;
	pthread_create(&th, NULL, late, &f);
	bool all = !ds_dg_flow(&d, &dest) && !o.unsettled && o.backoff == 0; // it has not waited in vain
	pthread_join(th, NULL);
	close(a);
	close(b);
	free(f.mem);
	return all;
}

// One that sends by the kernel to a receiver that sleeps, and has not taken what has come, waits,
// too. On a busy machine the receiver may be later than that.
static void catches_up(void)
{
	bool all = false;

	for (int i = 0; i < 100 && !all; i++)
		all = caught_up();
	CHECK(all, "it does not wait for a receiver that takes all in time");
}

// A datagram of a send that has not ended yet, and is in no count, does not stand for one that is
// on its way: what follows that would overtake it.
static void sends_under_way(void)
{
	static struct ds_dgram d;
	struct flow f;
	struct ds_dg_out o = {.state = DG_OUT_UP, .alive = -1, .lost = DS_DG_UNKNOWN};
	struct ds_dg_dest dest = {.flow = &o, .by_kernel = 100};
	struct sockaddr_in from, to;
	int a = udp_socket(&from), b = udp_socket(&to);

	fresh(&f, RING);
	o.seg = f.tx;
	flow_ends(&o, &from, &to);
	f.rx.in->dry = f.rx.in->taken = 100;
	dest.sending = 1;
	CHECK(!ds_dg_flow(&d, &dest) && o.lost == DS_DG_UNKNOWN, "the queue is dry before a send has ended");
	dest.sending = 0;
	CHECK(ds_dg_flow(&d, &dest) == &o, "it is settled");
	dest.by_kernel = 101; // in the queue
	dest.sending = 1; // taken
	f.rx.in->taken = 101;
	CHECK(!ds_dg_flow(&d, &dest), "a send that is under way stands for another");
	dest.sending = 1ull << DS_DG_UNDER_BITS; // it has ended, and sent one
	CHECK(!ds_dg_flow(&d, &dest) && dest.by_kernel == 102 && f.tx.out->by_kernel == 102 && !dest.sending, "it is not counted");
	f.rx.in->taken = 102;
	CHECK(ds_dg_flow(&d, &dest) == &o, "both are taken");
	o.seg.told = 103; // a record waits for a send that was under way, and that the kernel refuses, as it has others
	dest.sending = 5ull << DS_DG_ENDED_BITS << DS_DG_UNDER_BITS;
	CHECK(ds_dg_flow(&d, &dest) == &o && dest.by_kernel == 103 && f.tx.out->by_kernel == 103 && o.lost == 1 && !dest.sending, "it is not lost: by the kernel %llu, lost %llu", (unsigned long long)dest.by_kernel, (unsigned long long)o.lost);
	dest.sending = 5ull << DS_DG_ENDED_BITS << DS_DG_UNDER_BITS; // no record waits for those
	CHECK(ds_dg_flow(&d, &dest) == &o && dest.by_kernel == 103 && o.lost == 1 && !dest.sending, "no record waits for it: by the kernel %llu, lost %llu", (unsigned long long)dest.by_kernel, (unsigned long long)o.lost);
	close(a);
	close(b);
	free(f.mem);
}

// A receiver that never has quite all, and always something more, does not have a sender wait that
// sends to others, too.
static void always_behind(void)
{
	enum { SENDS = 2000, WAIT_MS = 2 };
	static struct ds_dgram d;
	struct flow f;
	struct ds_dg_out o = {.state = DG_OUT_UP, .alive = -1};
	struct ds_dg_dest dest = {.flow = &o, .by_kernel = 100};
	struct sockaddr_in from, to;
	int a = udp_socket(&from), b = udp_socket(&to);
	struct timespec t0, t1;

	fresh(&f, RING);
	o.seg = f.tx;
	flow_ends(&o, &from, &to);
	f.rx.in->dry = f.rx.in->taken = 100;
	CHECK(ds_dg_flow(&d, &dest) == &o, "it is settled");
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t0);
	for (int i = 0; i < SENDS; i++) {
		dest.by_kernel += i ? 1 : 70;
		f.rx.in->taken = dest.by_kernel - 65;
		CHECK(!ds_dg_flow(&d, &dest), "it has all");
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t1);
	long ms = (t1.tv_sec - t0.tv_sec) * 1000 + (t1.tv_nsec - t0.tv_nsec) / 1000000;
	// It waits by yielding: 2 ms of CPU each on an idle machine, and less on a busy one.
	CHECK(ms < SENDS * WAIT_MS / 8, "%d datagrams took %ld ms of CPU", SENDS, ms);
	close(a);
	close(b);
	free(f.mem);
}

// A sender that says that its datagrams are the oldest does not keep those of others waiting.
static void old(void)
{
	static struct ds_dgram d = {.family = AF_INET, .nonblock = DS_NONBLOCK_YES};
	static struct ds_dg_in in[2];
	struct flow f[2];
	struct sockaddr_in at;
	int fd = udp_socket(&at), got[2] = {0};

	for (int i = 0; i < 2; i++) {
		fresh(&f[i], RING);
		in[i] = (struct ds_dg_in){.seg = f[i].rx, .alive = -1, .state = DG_IN_MEMORY, .counters = ds_stats_counters(NULL)};
		d.flows[i] = d.list[i] = &in[i];
	}
	d.nin = d.nlisted = d.awake = 2;
	for (unsigned i = 0; i < 8 * RING / DS_DG_UNIT; i++) {
		uint8_t b = 0;
		struct iovec v = {&b, 1};
		struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
		d.looked = ds_ticks(); // nobody is asked whose addresses these are
		for (uint8_t k = 0; k < 2; k++) {
			struct ds_cursor c = cursor_of(&v, &k, 1);
			ds_dg_send(&f[k].tx, &(struct ds_dg_meta){.len = 1, .stamp = k ? ds_ticks() : 0}, &c);
		}
		v = (struct iovec){&b, 1};
		CHECK(ds_dg_recvmsg(&d, fd, &m, 0) == 1 && b < 2, "receive");
		got[b & 1]++;
	}
	CHECK(got[1] >= RING / DS_DG_UNIT / 2, "%d of the one that says it is older, %d of the other", got[0], got[1]);
	close(fd);
	free(f[0].mem);
	free(f[1].mem);
}

// ---- a sender that loses its processor

// A receiver, its flow's sender, and where that stops: it faults at a page, and the receiver looks
// meanwhile.
static struct {
	struct ds_dgram d;
	struct ds_dg_in in;
	struct flow f;
	uint8_t *page;	// that the sender faults at
	bool published; // it goes on to the end of busy first
} pause_;

static void in_pause(int sig, siginfo_t *si, void *context)
{
	uint8_t *at = si->si_addr;

	(void)context;
	if (at < pause_.page || at >= pause_.page + 4096) {
		signal(sig, SIG_DFL);
		return;
	}
	mprotect(pause_.page, 4096, PROT_READ | PROT_WRITE);
	if (pause_.published) {
		pause_.published = false;
		pause_.page = pause_.f.mem; // where busy is
		mprotect(pause_.page, 4096, PROT_READ);
		return;
	}
	ds_dg_arm_all(&pause_.d); // waits for 10 ms
}

// A receiver closes the flow of one that is busy for so long: its datagram goes by the kernel if
// the receiver has not seen it, and does not if it has.
static void pauses(void)
{
	enum { PAGE = 4096, BEFORE = PAGE / DS_DG_UNIT - 1 };
	struct sigaction was, act = {.sa_sigaction = in_pause, .sa_flags = SA_SIGINFO};
	uint8_t b[64];

#ifdef __SANITIZE_THREAD__
	return; // which holds locks of its own where the sender faults
#endif
	sigaction(SIGSEGV, &act, &was);
	for (int published = 0; published < 2; published++) {
		int fds[2], n = 0;
		memset(&pause_, 0, sizeof pause_);
		fresh(&pause_.f, RING);
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "pair");
		for (int i = 0; i < BEFORE; i++)
			CHECK(give(&pause_.f, "before", 6) == DS_DG_SENT, "%d", i);
		pause_.in = (struct ds_dg_in){.seg = pause_.f.rx, .alive = fds[0], .state = DG_IN_MEMORY, .counters = ds_stats_counters(NULL)};
		pause_.d.flows[0] = pause_.d.list[0] = &pause_.in;
		pause_.d.nin = pause_.d.nlisted = pause_.d.awake = 1;
		pause_.published = published;
		// The place after the next record, which the sender clears before it publishes.
		pause_.page = pause_.f.mem + DS_DG_RING + PAGE;
		CHECK(mprotect(pause_.page, PAGE, PROT_READ) == 0, "mprotect");
		int rc = give(&pause_.f, "paused", 6);
		CHECK(pause_.in.state >= DG_IN_DRAINING, "the receiver has not closed the flow");
		CHECK(rc == (published ? DS_DG_SENT : DS_DG_OVER), "%s, and the send says %d", published ? "seen" : "not seen", rc);
		pause_.f.rx = pause_.in.seg;
		while (take(&pause_.f, b) >= 0)
			n++;
		CHECK(n == BEFORE + published, "%d received", n);
		close(fds[0]);
		close(fds[1]);
		free(pause_.f.mem);
	}
	sigaction(SIGSEGV, &was, NULL);
}

static void *publishes(void *sender)
{
	usleep(2000);
	__atomic_store_n(&((struct ds_dg_sender *)sender)->busy, 0, __ATOMIC_RELEASE);
	return NULL;
}

// A sender that publishes for a while whenever a receiver is about to sleep has no flow any more
// before that costs much. What the test does between two sleeps does not count as the receiver's
// time: on a busy machine it is long.
static void busy(void)
{
	enum { SLEEPS = 2000 };
	static struct ds_dgram d;
	static struct ds_dg_in in;
	struct flow f;
	int i;

	fresh(&f, RING);
	in = (struct ds_dg_in){.seg = f.rx, .alive = -1, .counters = ds_stats_counters(NULL)};
	d.flows[0] = &in;
	d.nin = 1;
	for (i = 0; i < SLEEPS && in.state < DG_IN_DRAINING; i++) {
		pthread_t th;
		d.list[0] = &in;
		d.nlisted = d.awake = 1;
		in.state = DG_IN_MEMORY;
		ds_dg_arm(&in.seg, false);
		__atomic_store_n(&f.tx.out->busy, 1, __ATOMIC_SEQ_CST);
		CHECK(pthread_create(&th, NULL, publishes, f.tx.out) == 0, "thread");
		d.credited = ds_ticks();
		ds_dg_arm_all(&d);
		pthread_join(th, NULL);
	}
	CHECK(in.state >= DG_IN_DRAINING, "it has waited for it %d times, and goes on", i);
	free(f.mem);
}

// ---- no datagram is lost or overtaken while the receiver goes to sleep and wakes

enum { COUNT = 20000, LAPS = 100000, SECONDS = 2 };

static struct flow shared;
static uint32_t total; // that the sender sends: fewer on a machine that is busy, where each wait is long

// Is the sender's time up? Asked before each datagram, i are sent.
static bool over(uint32_t i, uint32_t most)
{
	static time_t end;
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	if (i == 0)
		end = t.tv_sec + SECONDS;
	if (i < most && t.tv_sec <= end)
		return false;
	__atomic_store_n(&total, i, __ATOMIC_RELEASE);
	return true;
}

// Has the receiver all, n?
static bool all(uint32_t n) { return n == __atomic_load_n(&total, __ATOMIC_ACQUIRE); }

static void begin(void)
{
	fresh(&shared, RING);
	total = UINT32_MAX;
}

static pthread_mutex_t kernel = PTHREAD_MUTEX_INITIALIZER;
static uint32_t queue[COUNT];
static unsigned queued, dequeued;
static uint64_t by_kernel;

static void *sender(void *arg)
{
	(void)arg;
	for (uint32_t i = 0; !over(i, COUNT);) {
		bool settled = ds_dg_settled(&shared.tx, by_kernel, 0);
		int rc = settled ? give(&shared, &i, sizeof i) : DS_DG_ARMED;
		if (rc == DS_DG_ARMED) {
			pthread_mutex_lock(&kernel);
			queue[queued++] = i;
			pthread_mutex_unlock(&kernel);
			__atomic_store_n(&shared.tx.out->by_kernel, ++by_kernel, __ATOMIC_RELEASE);
		}
		i += rc == DS_DG_ARMED || rc == DS_DG_SENT;
		if (rc == DS_DG_FULL)
			sched_yield();
	}
	return NULL;
}

// What the kernel has next; false: nothing.
static bool receive(uint32_t *v)
{
	pthread_mutex_lock(&kernel);
	bool some = dequeued < queued;
	if (some)
		*v = queue[dequeued++];
	pthread_mutex_unlock(&kernel);
	return some;
}

static void sleeps(void)
{
	pthread_t th;
	uint32_t v, next = 0;
	uint64_t taken = 0;
	bool armed = true;

	begin();
	ds_dg_arm(&shared.rx, true);
	pthread_create(&th, NULL, sender, NULL);
	while (!all(next) && !failures) {
		uint8_t b[65536];
		if (!armed) {
			if (take(&shared, b) == sizeof v) {
				memcpy(&v, b, sizeof v);
				CHECK(v == next, "%u through the ring in place of %u", v, next);
				next++;
				continue;
			}
			ds_dg_arm(&shared.rx, true);
			__atomic_thread_fence(__ATOMIC_SEQ_CST);
			while (ds_dg_busy(&shared.rx))
				sched_yield();
			armed = true;
			continue;
		}
		if (ds_dg_there(&shared.rx)) {
			take(&shared, b);
			memcpy(&v, b, sizeof v);
		} else if (receive(&v)) {
			__atomic_store_n(&shared.rx.in->taken, ++taken, __ATOMIC_RELEASE);
			armed = false;
			ds_dg_arm(&shared.rx, false);
		} else {
			sched_yield();
			continue;
		}
		CHECK(v == next, "%u in place of %u", v, next);
		next++;
	}
	if (failures)
		exit(1);
	pthread_join(th, NULL);
	free(shared.mem);
}

// A receiver that sees something can take it: a WRAP is not seen before what it leads to.
static void *long_sender(void *arg)
{
	static uint8_t b[5000];

	(void)arg;
	for (uint32_t i = 0; !over(i, LAPS);) {
		if (give(&shared, b, sizeof b) == DS_DG_SENT)
			i++;
		else
			sched_yield();
	}
	return NULL;
}

static void laps(void)
{
	static uint8_t b[5000];
	pthread_t th;

	begin();
	pthread_create(&th, NULL, long_sender, NULL);
	for (uint32_t i = 0; !all(i) && !failures;)
		if (ds_dg_there(&shared.rx)) {
			CHECK(take(&shared, b) == sizeof b, "datagram %u is there, and cannot be taken", i);
			i++;
		}
	if (failures)
		exit(1);
	pthread_join(th, NULL);
	free(shared.mem);
}

int main(void)
{
	spares();
	may_spare();
	catches_up();
	sends_under_way();
	always_behind();
	old();
	pauses();
	busy();
	sleeps();
	laps();
	CHECK(ds_dg_missteps == 0, "%u steps that no table has", ds_dg_missteps);
	if (failures)
		return 1;
	printf("ok\n");
	return 0;
}

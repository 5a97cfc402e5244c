// A receiver that sleeps is woken by one datagram through the kernel, and has what follows that one
// in memory: none is lost or overtaken (SPEC 10.3).
#include "flow.h"

#include <errno.h>
#include <linux/sock_diag.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

// What the sender knows of the kernel.
static struct ds_dg_meta known;

// Sends the number v, as one that knows how many were lost.
static int say(struct flow *f, uint32_t v)
{
	struct iovec vec;
	struct ds_cursor c = cursor_of(&vec, &v, sizeof v);
	struct ds_dg_meta m = known;

	m.len = sizeof v;
	m.after = true;
	return ds_dg_send(&f->tx, &m, &c);
}

// The next number that is due; UINT32_MAX: there is none.
static uint32_t hear(struct flow *f)
{
	uint32_t v = UINT32_MAX;

	if (ds_dg_there(&f->rx))
		CHECK(take(f, &v) == sizeof v, "it is there, and cannot be taken");
	return v;
}

static void rest(struct flow *f, uint32_t how)
{
	ds_dg_arm(&f->rx, how);
	CHECK(!ds_dg_busy(&f->rx), "it is publishing");
}

static void begin_flow(struct flow *f)
{
	fresh(f, RING);
	f->rx.in->flags = DS_DG_TAKES_AFTER;
	known = (struct ds_dg_meta){.kernel = 1, .lost = 1};
	f->tx.base = 1;
}

// One rings, the rest is in memory, and due when the bell has come. Then the receiver sleeps, and
// is rung again.
static void one_rings(void)
{
	struct flow f;

	begin_flow(&f);
	for (uint32_t burst = 0; burst < 3; burst++) {
		rest(&f, DS_DG_BELL);
		CHECK(say(&f, 0) == DS_DG_ARMED, "burst %u: no bell", burst);
		known.kernel++;
		for (uint32_t i = 1; i < 5; i++)
			CHECK(say(&f, i) == DS_DG_SENT, "burst %u: %u is not in memory", burst, i);
		CHECK(!ds_dg_there(&f.rx) && ds_dg_early(&f.rx), "1 is due before the bell");
		ds_dg_count(&f.rx);
		ds_dg_arm(&f.rx, DS_DG_AWAKE);
		CHECK(!ds_dg_early(&f.rx), "the bell has come");
		CHECK(say(&f, 5) == DS_DG_SENT, "it is awake");
		for (uint32_t i = 1; i < 6; i++)
			CHECK(hear(&f) == i, "burst %u: %u", burst, i);
		CHECK(hear(&f) == UINT32_MAX, "that was all");
	}
	free(f.mem);
}

// Who does not want bells, or does not know them, has none; nor is there one before it is known how
// many were lost.
static void none_rings(void)
{
	struct flow f;

	begin_flow(&f);
	rest(&f, DS_DG_ALL);
	CHECK(say(&f, 0) == DS_DG_ARMED, "armed for all");
	known.kernel++;
	CHECK(say(&f, 1) == DS_DG_ARMED && !ds_dg_unsettled_too(&f.tx), "armed for all, and one is on its way");
	rest(&f, DS_DG_BELL);
	CHECK(say(&f, 1) == DS_DG_SENT && ds_dg_unsettled_too(&f.tx), "armed for a bell, which is on its way");
	CHECK(give(&f, "x", 1) == DS_DG_ARMED, "what was lost is not known");
	f.rx.in->flags = 0;
	CHECK(say(&f, 2) == DS_DG_ARMED && !ds_dg_unsettled_too(&f.tx), "the receiver does not know AFTER");
	free(f.mem);
}

// The kernel has dropped the bell: the sender rings again when it must be there and is not, but not
// while the receiver would take that for the first one, and then for what is before the records.
static void lost_bell(void)
{
	struct flow f;

	begin_flow(&f);
	rest(&f, DS_DG_BELL);
	CHECK(say(&f, 0) == DS_DG_ARMED, "no bell");
	known.kernel++;
	CHECK(say(&f, 1) == DS_DG_SENT, "1");
	known.there = true;
	CHECK(say(&f, 2) == DS_DG_SENT, "the receiver would take 2 before 1");
	known.stale = true;
	CHECK(say(&f, 3) == DS_DG_ARMED, "it sleeps for ever");
	known.kernel++;
	known.there = known.stale = false;
	ds_dg_count(&f.rx); // that of 3
	CHECK(hear(&f) == 1 && hear(&f) == 2 && hear(&f) == UINT32_MAX, "1 and 2");
	// Two by the kernel, of which the receiver has had one: it gives the other up.
	ds_dg_arm(&f.rx, DS_DG_AWAKE);
	CHECK(say(&f, 4) == DS_DG_SENT && hear(&f) == UINT32_MAX && ds_dg_early(&f.rx), "4 is due");
	ds_dg_give_up(&f.rx);
	CHECK(hear(&f) == 4 && f.rx.lost == 1, "lost %d", (int)f.rx.lost);
	// It was wrong: what it had given up comes after all, and is counted.
	ds_dg_count(&f.rx);
	ds_dg_was_dry(&f.rx, known.kernel);
	CHECK(f.rx.lost == 0 && f.rx.in->dry == known.kernel, "lost %d", (int)f.rx.lost);
	known.kernel++;
	CHECK(say(&f, 5) == DS_DG_SENT && !ds_dg_there(&f.rx), "5 is due");
	free(f.mem);
}

// A record with AFTER at the end of the ring, and WRAP before it: it is not due before its bell.
static void wraps(void)
{
	enum { LONG = 3000 };
	static uint8_t b[LONG], to[LONG];
	struct flow f;
	int wrapped = 0;

	begin_flow(&f);
	for (int i = 0; i < 500; i++) {
		struct iovec vec;
		struct ds_cursor c = cursor_of(&vec, b, LONG);
		struct ds_dg_meta m = known;
		uint64_t before = f.tx.at;
		m.len = LONG;
		m.kernel = ++known.kernel;
		m.after = true;
		CHECK(ds_dg_send(&f.tx, &m, &c) == DS_DG_SENT, "%d", i);
		wrapped += f.tx.at / RING != before / RING;
		CHECK(!ds_dg_there(&f.rx) && ds_dg_early(&f.rx), "%d is due", i);
		ds_dg_count(&f.rx);
		CHECK(ds_dg_there(&f.rx) && take(&f, to) == LONG && !f.rx.broken, "%d is not due", i);
	}
	CHECK(wrapped > 5, "%d laps", wrapped);
	free(f.mem);
}

// A sender that says that ever more has gone by the kernel keeps its receiver waiting for a while,
// and not for ever. What the test does between two looks does not count as the receiver's time.
static void says_more(void)
{
	enum { RECORDS = 10000 };
	static struct ds_dgram d = {.nonblock = DS_NONBLOCK_YES};
	static struct ds_dg_in in;
	struct sockaddr_in at;
	struct flow f;
	int fd = udp_socket(&at), waits = 0, i;

	begin_flow(&f);
	in = (struct ds_dg_in){.seg = f.rx, .alive = -1, .state = DG_IN_RUNG, .counters = ds_stats_counters(NULL)};
	d.flows[0] = d.list[0] = &in;
	d.nin = d.nlisted = 1;
	d.credit = ds_dg_ticks(50000);
	for (i = 0; i < RECORDS; i++) {
		known.kernel += 1000;
		CHECK(say(&f, 1) == DS_DG_SENT, "record %d", i);
		d.credited = ds_ticks();
		bool wait = ds_dg_await_kernel(&d, fd);
		waits += wait;
		if (!wait)
			break;
		while (d.credited = ds_ticks(), ds_dg_await_kernel(&d, fd))
			waits++;
		f.rx = in.seg;
		CHECK(hear(&f) == 1, "record %d is not due", i);
		in.seg = f.rx;
		in.early = 0;
	}
	CHECK(i > 0 && i < RECORDS && ds_dg_there(&in.seg), "%d records, %d waits", i, waits);
	close(fd);
	free(f.mem);
}

// A receiver that has had all that was sent, from the first datagram on, says so before it sleeps:
// its sender does not know how many were lost before.
static void says_dry(void)
{
	static struct ds_dgram d = {.nonblock = DS_NONBLOCK_YES};
	static struct ds_dg_in in;
	struct sockaddr_in at;
	struct flow f;
	int fd = udp_socket(&at);

	begin_flow(&f);
	in = (struct ds_dg_in){.seg = f.rx, .alive = -1, .state = DG_IN_MEMORY, .counters = ds_stats_counters(NULL)};
	d.flows[0] = d.list[0] = &in;
	d.nin = d.nlisted = d.awake = 1;
	f.tx.out->by_kernel = 7;
	in.seg.taken = in.seg.in->taken = 7;
	ds_dg_rest(&d, fd);
	CHECK(f.rx.in->dry == 7 && f.rx.in->armed == DS_DG_BELL, "dry %d, armed %u", (int)f.rx.in->dry, f.rx.in->armed);
	close(fd);
	free(f.mem);
}

// A look at what the kernel has takes no error of the socket's: that nobody has the port to which
// its program has sent.
static void refused(void)
{
	enum { FOR_DRY, FOR_EARLY, FOR_TURN, LOOKS };

	for (int look = 0; look < LOOKS; look++) {
		static struct ds_dgram d;
		static struct ds_dg_in in;
		struct sockaddr_in at, gone;
		struct flow f;
		uint8_t b;
		struct iovec v = {&b, 1};
		struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
		int fd = udp_socket(&at), err = 0;
		socklen_t n = sizeof err;
		struct pollfd p = {.fd = fd};

		close(udp_socket(&gone));
		CHECK(connect(fd, (struct sockaddr *)&gone, sizeof gone) == 0 && send(fd, "x", 1, 0) == 1, "send");
		CHECK(poll(&p, 1, 10000) == 1 && p.revents & POLLERR, "the kernel knows of no error");
		begin_flow(&f);
		d = (struct ds_dgram){.family = AF_INET, .nonblock = DS_NONBLOCK_YES, .nin = 1, .nlisted = 1, .looked = ds_ticks()};
		in = (struct ds_dg_in){.seg = f.rx, .alive = -1, .state = DG_IN_RUNG, .counters = ds_stats_counters(NULL)};
		d.flows[0] = d.list[0] = &in;
		if (look == FOR_DRY) {
			d.awake = 1;
			in.state = DG_IN_MEMORY;
			f.tx.out->by_kernel = 7;
			ds_dg_rest(&d, fd);
			CHECK(f.rx.in->dry == 7, "it has not looked");
		} else if (look == FOR_EARLY) {
			known.kernel++;
			CHECK(say(&f, 1) == DS_DG_SENT && ds_dg_early(&in.seg), "it is not early");
			ds_dg_await_kernel(&d, fd);
			CHECK(in.early, "it has not looked");
		} else {
			CHECK(give(&f, "x", 1) == DS_DG_SENT, "give");
			d.streak = 64; // so the kernel has its turn
			CHECK(ds_dg_recvmsg(&d, fd, &m, MSG_DONTWAIT) == -1 && errno == ECONNREFUSED, "no error");
			CHECK(ds_dg_recvmsg(&d, fd, &m, MSG_DONTWAIT) == 1 && b == 'x', "nor a datagram");
		}
		CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n) == 0 && err == (look == FOR_TURN ? 0 : ECONNREFUSED), "look %d: error %d", look, err);
		close(fd);
		free(f.mem);
	}
}

// The receiver's queue had datagrams from before the flow when that began: its sender learns that
// all has come nevertheless, one more or several.
static void had_some(void)
{
	for (uint64_t more = 1; more < 4; more++) {
		static struct ds_dgram d;
		struct flow f;
		struct ds_dg_out o = {.state = DG_OUT_UP, .alive = -1, .lost = DS_DG_UNKNOWN};
		struct ds_dg_dest dest = {.flow = &o, .by_kernel = 100};
		struct sockaddr_in from, to;
		int a = udp_socket(&from), b = udp_socket(&to);

		fresh(&f, RING);
		o.seg = f.tx;
		flow_ends(&o, &from, &to);
		f.rx.in->dry = 100;
		f.rx.in->taken = 100 + more;
		CHECK(ds_dg_flow(&d, &dest) == &o, "%d more: it is not settled", (int)more);
		CHECK(ds_dg_flow(&d, &dest) == &o, "%d more: nor known", (int)more);
		dest.by_kernel++;
		CHECK(!ds_dg_flow(&d, &dest), "%d more: one has not come", (int)more);
		f.rx.in->taken++;
		CHECK(ds_dg_flow(&d, &dest) == &o, "%d more: it has", (int)more);
		close(a);
		close(b);
		free(f.mem);
	}
}

// Another socket has the sender's address, and the receiver counts its datagrams as the sender's:
// those that have come say nothing, only that its queue is empty does.
static void shared_address(void)
{
	static struct ds_dgram d;
	struct flow f;
	struct ds_dg_out o = {.state = DG_OUT_UP, .alive = -1, .lost = DS_DG_UNKNOWN, .shared = true};
	struct ds_dg_dest dest = {.flow = &o, .by_kernel = 100};
	struct sockaddr_in from, to;
	int a = udp_socket(&from), b = udp_socket(&to);

	fresh(&f, RING);
	o.seg = f.tx;
	flow_ends(&o, &from, &to);
	f.rx.in->flags = DS_DG_TAKES_AFTER;
	f.rx.in->dry = f.rx.in->taken = 100;
	CHECK(ds_dg_flow(&d, &dest) == &o && o.lost == DS_DG_UNKNOWN, "it is settled, and knows how many were lost");
	dest.by_kernel++;
	f.rx.in->taken++; // of the other socket
	CHECK(!ds_dg_flow(&d, &dest), "its own datagram has not come");
	ds_dg_arm(&f.rx, DS_DG_BELL);
	f.rx.in->dry++;
	CHECK(!ds_dg_flow(&d, &dest), "the receiver sleeps, and another one may wake it");
	CHECK(ds_dg_shareable(a) == false, "its address is its own");
	CHECK(setsockopt(a, SOL_SOCKET, SO_REUSEPORT, &(int){1}, sizeof(int)) == 0 && ds_dg_shareable(a), "others may have it");
	close(a);
	close(b);
	free(f.mem);
}

// A receiver that has no bells takes no records that wait for datagrams by the kernel: another
// socket may have got those, and what the kernel brings next would be taken for them. A flow that
// is closed stays so.
static void no_bells(void)
{
	static struct ds_dgram d;
	struct flow f, g;

	begin_flow(&f);
	begin_flow(&g);
	struct ds_dg_in in = {.state = DG_IN_ARMED, .seg = f.rx}, over = {.state = DG_IN_ENDED, .seg = g.rx};
	d = (struct ds_dgram){.nin = 2, .flows = {&in, &over}};
	ds_dg_close(&over.seg);
	uint32_t closed = g.rx.in->flags;
	ds_dg_arm(&in.seg, DS_DG_AWAKE);
	CHECK(ds_dg_unsettled_too(&f.tx), "it takes such records");
	ds_dg_end_bells(&d);
	CHECK(d.no_bells && !ds_dg_unsettled_too(&f.tx), "it takes such records without bells");
	CHECK(g.rx.in->flags == closed && closed & DS_DG_CLOSED, "a flow is open again");
	struct ds_dg_out o = {.state = DG_OUT_UP, .alive = -1, .lost = 1, .last = ds_ticks(), .seg = f.tx};
	struct ds_dg_dest dest = {.flow = &o, .by_kernel = 3};
	struct sockaddr_in from, to;
	int a = udp_socket(&from), b = udp_socket(&to);
	flow_ends(&o, &from, &to);
	f.rx.in->taken = 1;
	CHECK(!ds_dg_flow(&d, &dest), "the receiver is awake, and one by the kernel is missing");
	f.rx.in->taken = 2;
	CHECK(ds_dg_flow(&d, &dest) == &o, "nothing is on its way");
	close(a);
	close(b);
	free(f.mem);
	free(g.mem);
}

// ---- a sender and a receiver that goes to sleep all the time

enum { COUNT = 200000, SECONDS = 2 };

static struct flow shared;
static pthread_mutex_t kernel = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t rung = PTHREAD_COND_INITIALIZER;
static uint32_t queue[COUNT + 1];
static unsigned queued, dequeued;
static uint32_t sent;
static int done;

static void *sender(void *arg)
{
	struct timespec t, end;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += SECONDS;
	for (uint32_t i = 0; i < COUNT;) {
		int rc = say(&shared, i);
		if (rc == DS_DG_ARMED) {
			pthread_mutex_lock(&kernel);
			queue[queued++] = i;
			pthread_cond_signal(&rung);
			pthread_mutex_unlock(&kernel);
			__atomic_store_n(&shared.tx.out->by_kernel, ++known.kernel, __ATOMIC_RELEASE);
		}
		i += rc != DS_DG_FULL;
		if (rc == DS_DG_FULL || i % 64 == 0)
			sched_yield();
		clock_gettime(CLOCK_MONOTONIC, &t);
		if (t.tv_sec > end.tv_sec || i == COUNT) {
			sent = i;
			break;
		}
	}
	pthread_mutex_lock(&kernel);
	__atomic_store_n(&done, 1, __ATOMIC_RELEASE);
	pthread_cond_signal(&rung);
	pthread_mutex_unlock(&kernel);
	return NULL;
}

// What the kernel has next: false, nothing. It waits for that, if the sender has not ended.
static bool receive(uint32_t *v, bool wait)
{
	pthread_mutex_lock(&kernel);
	while (wait && dequeued == queued && !done)
		pthread_cond_wait(&rung, &kernel);
	bool some = dequeued < queued;
	if (some)
		*v = queue[dequeued++];
	pthread_mutex_unlock(&kernel);
	return some;
}

// The receiver takes what is due, then what the kernel has, and sleeps for a bell if there is
// neither. It never sleeps while the ring holds something that no bell comes for.
static void sleeps(void)
{
	pthread_t th;
	uint32_t v, next = 0;
	unsigned by_memory = 0, naps = 0;

	begin_flow(&shared);
	ds_dg_arm(&shared.rx, DS_DG_BELL);
	CHECK(pthread_create(&th, NULL, sender, NULL) == 0, "thread");
	while (!failures) {
		bool over = __atomic_load_n(&done, __ATOMIC_ACQUIRE);
		if ((v = hear(&shared)) != UINT32_MAX) {
			by_memory++;
		} else if (receive(&v, false)) {
			ds_dg_count(&shared.rx);
			ds_dg_arm(&shared.rx, DS_DG_AWAKE);
		} else if (over) {
			break;
		} else {
			ds_dg_arm(&shared.rx, DS_DG_BELL);
			__atomic_thread_fence(__ATOMIC_SEQ_CST);
			while (ds_dg_busy(&shared.rx))
				sched_yield();
			if (ds_dg_there(&shared.rx))
				continue;
			naps++;
			if (!receive(&v, true))
				continue;
			ds_dg_count(&shared.rx);
			ds_dg_arm(&shared.rx, DS_DG_AWAKE);
		}
		CHECK(v == next, "%u in place of %u", v, next);
		next++;
	}
	if (failures)
		exit(1);
	pthread_join(th, NULL);
	CHECK(next == sent, "%u of %u", next, sent);
	CHECK(by_memory > 0, "all by the kernel");
	printf("%u sent, %u in memory, %u naps\n", sent, by_memory, naps);
	free(shared.mem);
}

// Has the kernel drop some of fd's datagrams, and takes the others: how many it has dropped.
static uint32_t overflow(int fd, struct sockaddr_in *to)
{
	uint32_t info[SK_MEMINFO_DROPS + 1] = {0};
	struct sockaddr_in from;
	int sender = udp_socket(&from);
	char b[1000] = {0};

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){1}, sizeof(int)); // the kernel's least
	for (int i = 0; i < 10000 && info[SK_MEMINFO_DROPS] < 3; i++) {
		socklen_t n = sizeof info;
		CHECK(sendto(sender, b, sizeof b, 0, (struct sockaddr *)to, sizeof *to) == sizeof b, "send");
		CHECK(getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &n) == 0, "SO_MEMINFO");
	}
	while (recv(fd, b, sizeof b, MSG_DONTWAIT) > 0)
		;
	close(sender);
	return info[SK_MEMINFO_DROPS];
}

// The kernel has dropped fewer datagrams than are missing before a record: it may be late with one
// of them, and the record waits for it. With as many it does not.
static void few_drops(void)
{
	enum { LOST_US = 2000, LATE_US = 20000 };

	for (int fewer = 0; fewer < 2; fewer++) {
		static struct ds_dgram d;
		struct sockaddr_in at;
		int fd = udp_socket(&at);
		uint32_t n = overflow(fd, &at);
		struct flow f;

		begin_flow(&f);
		struct ds_dg_in in = {.state = DG_IN_RUNG};
		d = (struct ds_dgram){.nin = 1, .nlisted = 1, .flows = {&in}, .list = {&in}};
		ds_dg_arm(&f.rx, DS_DG_AWAKE);
		known.kernel += n + (uint32_t)fewer;
		CHECK(n >= 3 && say(&f, 1) == DS_DG_SENT, "%u dropped", n);
		in.seg = f.rx;
		bool waits = false, slow = true;
		for (int i = 0; i < 1000 && slow; i++) { // until it is not this thread that is late
			uint64_t begin = in.early = ds_ticks() - ds_dg_ticks(LOST_US);
			waits = ds_dg_await_kernel(&d, fd);
			slow = ds_ticks() - begin > ds_dg_ticks(LATE_US) && !waits && fewer;
			if (slow)
				in.seg = f.rx;
		}
		CHECK(waits == fewer && d.gone == (fewer ? 0 : n), "%u dropped, %u missing: it waits %d, %u are known", n, n + (uint32_t)fewer, waits, d.gone);
		close(fd);
		free(f.mem);
	}
}

int main(void)
{
	one_rings();
	none_rings();
	lost_bell();
	wraps();
	says_more();
	says_dry();
	refused();
	had_some();
	shared_address();
	no_bells();
	sleeps();
	few_drops();
	CHECK(ds_dg_missteps == 0, "%u steps that no table has", ds_dg_missteps);
	if (failures)
		return 1;
	printf("ok\n");
	return 0;
}
